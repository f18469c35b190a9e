"""Prints the output of commands: messages on standard error, and a line of JSON at the end of standard output."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from seedzero.core import errors, json_object, printable

_STDOUT, _STDERR = 1, 2
PROGRESS_SECONDS = 10.0
"""Seconds between two messages about progress, as between two lines of training."""


@contextlib.contextmanager
def _read_or_not() -> Iterator[None]:
    """Ignores a closed standard error, because messages are not results, and training does not need it."""
    try:
        yield
    except BrokenPipeError:
        # for what is still buffered, and for everything later
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


say = _read_or_not()(printable.say)
"""Prints a message for the user, if anyone reads it."""


def progress(what: str, clock: Callable[[], float] = time.monotonic) -> Callable[[int, int], None]:
    """Returns a function that prints the numbers done and expected, at most every `PROGRESS_SECONDS`."""
    last = clock()

    def tell(done: int, expected: int) -> None:
        nonlocal last
        if clock() - last >= PROGRESS_SECONDS:
            last = clock()
            say(f"{done} of {expected} {what}")

    return tell


def show(text: str) -> None:
    """Prints a report, a listing or a help text on standard output, with lines broken to the terminal's width."""
    print(printable.wrap(text, printable.columns(sys.stdout)))


def show_command(text: str, command: str) -> None:
    """Prints a text and a command line on standard output.

    The command line is not broken, so that it can be copied.
    """
    print(printable.with_command(text, command, printable.columns(sys.stdout)))


def table(rows: Sequence[Mapping[str, object]], *, num_left: int = 1) -> str:
    """Returns rows as columns below their names, the first `num_left` of them left-aligned; None is shown as -."""
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)] if rows else []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    justify = [str.ljust] * num_left + [str.rjust] * (len(widths) - num_left)
    lines = ("  ".join(f(text, width) for f, text, width in zip(justify, line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else printable.escape(str(value))


def fail(error: errors.Error) -> int:
    """Prints an error; returns the exit code."""
    say(f"error: {error}")
    return errors.BAD_USAGE if isinstance(error, errors.UsageError) else errors.FAILED


@contextlib.contextmanager
def others_aside() -> Iterator[None]:
    """Redirects to standard error, while entered, what others print on standard output, such as an environment.

    The answer of a command is then a separate line and the last one. C code writes its output whenever it likes, for
    example at the end of the process.
    """
    sys.stdout.flush()
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, _STDOUT)
        os.close(kept)


def write_file(out: pathlib.Path, content: bytes) -> None:
    """Writes the file of --out as a whole. Raises UsageError if it cannot."""
    from seedzero.storage.checkpoints import durable

    try:
        with durable.new_file(out) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise errors.UsageError(f"--out={out} cannot be written: {error.strerror}") from None


def print_json(value: Mapping[str, object] | Sequence[object]) -> None:
    """Prints a line of strict JSON; numbers that are not finite become texts."""

    print(json_object.encode(value), flush=True)
