"""Texts of strangers on the screen."""

import fcntl
import io
import os
import pty
import struct
import sys
import termios

import pytest

from seedzero.core import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a worker's name, π ± 1", "a worker's name, π ± 1"),
        ("bye\nfinished: 100 updates", "bye\\nfinished: 100 updates"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\r\x9b2J", "\\r\\x9b2J"),
        ("left\u202egnp.exe", "left\\u202egnp.exe"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable.escape(text) == shown


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("no terminal at all", None, "no terminal at all"),
        ("it fits as it is", 16, "it fits as it is"),
        ("seedzero: words stay whole", 16, "seedzero: words\n  stay whole"),
        ("a --long.flag=that-has-no-break at all", 12, "a\n  --long.flag=that-has-no-break\n  at all"),
        ("  --flag=N    help that goes on", 28, "  --flag=N    help that goes\n" + " " * 14 + "on"),
        ("  episodes  61 ended in 40 steps", 24, "  episodes  61 ended in\n" + " " * 12 + "40 steps"),
        ("it needs a: /v/python -m pip install 'a<2' b", 20, "it needs a:\n  /v/python -m pip install 'a<2' b"),
        ("/v/python -m pip install 'a<2' b", 20, "/v/python -m pip install 'a<2' b"),
        ("one line\n  and two more words", 12, "one line\n  and two\n    more\n    words"),
    ],
)
def test_lines_are_broken_between_words_alone(text: str, width: int | None, shown: str) -> None:
    assert printable.wrap(text, width) == shown


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (None, "stopped; to resume: seedzero train --run_dir=runs/a"),
        (60, "stopped; to resume: seedzero train --run_dir=runs/a"),
        (20, "stopped; to resume:\n  seedzero train --run_dir=runs/a"),
    ],
)
def test_a_command_is_never_broken(width: int | None, shown: str) -> None:
    assert printable.with_command("stopped; to resume:", "seedzero train --run_dir=runs/a", width) == shown


def test_a_text_without_a_command_is_broken() -> None:
    assert printable.with_command("finished: 60 updates", "", 12) == "finished: 60\n  updates"


def test_only_a_terminal_has_columns() -> None:
    closed = io.StringIO()
    closed.close()
    assert printable.columns(io.StringIO()) is None and printable.columns(closed) is None
    main, other = pty.openpty()
    with os.fdopen(main, "wb"), os.fdopen(other, "w") as stream:
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        assert printable.columns(stream) == 80


@pytest.mark.parametrize("has_logger", [True, False])
def test_a_standard_error_that_is_no_stream_is_written_to_nonetheless(
    monkeypatch: pytest.MonkeyPatch, has_logger: bool
) -> None:
    written: list[str] = []

    class Logger:
        """As programs put in place of standard error."""

        def write(self, text: str) -> None:
            written.append(text)

    monkeypatch.setattr(sys, "stderr", Logger() if has_logger else None)
    stream = printable.standard_error()
    print("a message", file=stream, flush=True)
    assert "".join(written) == ("a message\n" if has_logger else "")
    assert printable.columns(stream) is None
    stream.close()


def test_a_whole_standard_error_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    assert printable.standard_error() is stream
