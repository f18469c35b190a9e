"""Makes texts safe to show, and lays out lines for a terminal."""

from __future__ import annotations

import io
import os
import re
import sys
import textwrap
from typing import Any, TextIO, cast

from seedzero.core import packages


def escape(text: str) -> str:
    """Returns a text as one line; unprintable characters become backslash escapes.

    Otherwise a name or a reason from another machine could move the cursor, or imitate one of our messages.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def escape_lines(text: str) -> str:
    return "\n".join(map(escape, text.split("\n")))


class _StandIn(io.TextIOBase):
    """Passes texts on to a stand-in for a stream, which may have only `write`; texts are lost if it is None."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if self._stream is not None:
            self._stream.write(text)
        return len(text)


def standard_error() -> TextIO:
    """Returns sys.stderr as a complete stream: without a console it is None, and a program may put a logger there."""
    is_whole = all(hasattr(sys.stderr, name) for name in ("write", "flush", "isatty", "fileno"))
    return sys.stderr if is_whole else cast(TextIO, _StandIn(sys.stderr))


def columns(stream: TextIO) -> int | None:
    """Returns the width of a stream's terminal, or None if it is not a terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):  # it is closed, or no file
        return None


def wrap(text: str, width: int | None) -> str:
    """Returns a text with lines of at most `width` columns, broken only between words; None leaves it unchanged.

    What does not fit continues below the second column of a table, which begins after two spaces, or else is indented.
    A command that installs packages stays on one line, so that you can copy it.
    """
    if width is None:
        return text
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def with_command(text: str, command: str, width: int | None) -> str:
    """Returns a text and a command line, which is below the text if both do not fit one line, to be copied."""
    both = f"{text} {command}" if command else text
    if width is None or len(both) <= width or not command:
        return wrap(both, width)
    return f"{wrap(text, width)}\n  {command}"


def lasting(seconds: float) -> str:
    """Returns a time in words: 40 s, 8 minutes, 5 hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.0f} hours"


def say(text: str, command: str = "") -> None:
    """Prints a message for the user on standard error. command: a command line at its end, to be copied.

    Unprintable characters, which a directory's name may have, are escaped.
    """
    stream = standard_error()
    shown = with_command(escape_lines(f"seedzero: {text}"), escape(command), columns(stream))
    print(shown, file=stream, flush=True)


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    if command := packages.command_at_the_end(line):
        text = line.removesuffix(command).rstrip()
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        return f"{_wrapped(text, width)}\n{indent}{command}" if text else line
    first_column = re.match(r"\s*\S+(?: \S+)*\s{2,}", line)
    hang = len(first_column[0]) if first_column else width
    if hang > width // 2:
        hang = len(line) - len(line.lstrip()) + 2
    return textwrap.fill(line, width, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False)
