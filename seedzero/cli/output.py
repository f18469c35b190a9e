"""The output of commands: messages on standard error; one line of JSON ends standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from seedzero.core import errors, exit_codes, printable


def say(text: str, command: str = "") -> None:
    """Prints a message for the user; command: a command line that ends it, to be copied."""
    shown = printable.with_command(f"seedzero: {text}", command, printable.columns(sys.stderr))
    print(shown, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Prints a report, a listing or a help text on standard output, lines broken to the terminal's width."""
    print(printable.wrap(text, printable.columns(sys.stdout)))


def fail(error: errors.Error) -> int:
    """Prints an error; returns the exit code that follows from it."""
    say(f"error: {error}")
    return exit_codes.BAD_USAGE if isinstance(error, errors.UsageError) else exit_codes.FAILED


def print_json(value: Mapping[str, object] | Sequence[object]) -> None:
    """Prints one line of strict JSON, numbers that are not finite as text."""
    from seedzero.checkpoints import run_dir  # numpy, which a mistake in the command line need not wait for

    print(run_dir.encode(value), flush=True)
