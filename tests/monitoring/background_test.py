"""A console that nobody reads."""

import contextlib
import errno
import io
import logging
import os
import pathlib
import re
import threading
from collections.abc import Iterator

import pytest

from seedzero.core import errors
from seedzero.monitoring import background, console

SNAPSHOT = console.ConsoleSnapshot(seconds=1.0, env_steps=2, updates=3)


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """Yields a reading end and a writing end; the pipe is full."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while True:
        try:
            os.write(writer, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    stream = open(writer, "w")  # noqa: SIM115  closed below
    yield reader, stream
    os.close(reader)
    with contextlib.suppress(BrokenPipeError):
        stream.close()


def test_messages_and_snapshots_come_in_order() -> None:
    stream = io.StringIO()
    shown = background.Screen(console.Console(0.0, stream=stream, live=False))
    shown.message("first")
    shown.update(SNAPSHOT)
    shown.message("last")
    shown.close()
    first, line, last = stream.getvalue().splitlines()
    assert (first, line.split()[1:3], last) == ("first", ["2", "steps"], "last")


def test_the_console_is_kept_in_a_file_with_the_error_that_ends_it(tmp_path: pathlib.Path) -> None:
    for number in (1, 2):  # a resume continues the file
        shown = background.Screen(console.Console(0.0, stream=io.StringIO(), live=False))
        shown.keep(tmp_path / "learner.log")
        shown.message(f"start {number}", "a command")
        for _ in range(3):
            shown.update(SNAPSHOT)
        shown.update(SNAPSHOT, last=True)
        error = errors.TrainingFailure("no worker") if number == 1 else ZeroDivisionError("division by zero")
        shown.log_failure(type(error), error, None)
        shown.log_failure(None, None, None)
        shown.close()
    state = console.line_of(SNAPSHOT)
    first = ["start 1 a command", state, state, "error: no worker"]  # the first state, and the last one
    assert (tmp_path / "learner.log").read_text().splitlines() == [
        *first,
        "start 2 a command",
        state,
        state,
        "ZeroDivisionError: division by zero",
    ]


def test_a_console_that_cannot_be_kept_is_reported_once_and_goes_on(tmp_path: pathlib.Path) -> None:
    stream = io.StringIO()
    shown = background.Screen(console.Console(0.0, stream=stream, live=False))
    shown.keep(tmp_path / "nowhere" / "learner.log")
    shown._put(lambda: shown._shown.keep(Full()))  # type: ignore[arg-type]
    for number in range(3):
        shown.message(f"message {number}")
    shown.close()
    found = stream.getvalue()
    assert found.count("cannot be written: No such file") == found.count("full cannot be written: No space left") == 1
    assert all(f"message {number}" in found for number in range(3))


class Full:
    """A file on a full disk."""

    name = "full"

    def write(self, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_nobody_waits_for_a_reader_and_dropped_lines_are_counted(pipe: tuple[int, io.TextIOWrapper]) -> None:
    reader, stream = pipe
    shown = background.Screen(console.Console(0.0, stream=stream, live=False), max_waiting=10)
    for index in range(50):  # would block at the first, were it written here
        shown.message(f"line {index}")
        shown.update(SNAPSHOT)
    shown.close(0.0)  # gives up: the queue is full
    received = b""
    while not (dropped := re.search(rb"(\d+) lines are not shown", received)):
        received += os.read(reader, 2**16)
    lines = received.replace(b"x", b"").splitlines()
    written = [line for line in lines[: next(i for i, line in enumerate(lines) if b"not shown" in line)] if line]
    assert len(written) <= 12 and len(written) + int(dropped[1]) >= 90
    shown.message("the end")
    while b"the end" not in received:
        received += os.read(reader, 2**16)
    shown.close()


def test_warnings_of_the_log_come_too_and_cannot_imitate_a_line() -> None:
    stream = io.StringIO()
    shown = background.Screen(console.Console(0.0, stream=stream, live=False))
    try:
        raise ValueError("no\nfinished: 100 updates\x1b[2J")
    except ValueError as error:
        logging.getLogger("seedzero.somewhere").error("a call failed", exc_info=error)
    shown.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "a call failed" and lines[-1] == "    finished: 100 updates\\x1b[2J"
    logging.getLogger("seedzero.somewhere").error("after the end")
    assert "after the end" not in stream.getvalue()


def test_a_wrong_call_of_the_log_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    shown = background.Screen(console.Console(0.0, stream=io.StringIO(), live=False))
    shown._handler.handle(logging.LogRecord("a.library", logging.WARNING, "", 1, "%d", ("no number",), None))
    shown.close()
    assert "Logging error" in capsys.readouterr().err


def test_what_cannot_be_shown_is_told_and_ends_nothing() -> None:
    stream = io.StringIO()
    shown = background.Screen(console.Console(0.0, stream=stream, live=False))
    shown.update(console.ConsoleSnapshot(seconds=float("inf"), env_steps=2, updates=3))
    shown.message("last")
    shown.close()
    told, last = stream.getvalue().splitlines()
    assert "OverflowError: " in told and last == "last"


def test_while_nobody_shows_anything_the_state_is_asked_for_until_the_last() -> None:
    asked = threading.Event()

    def look() -> console.ConsoleSnapshot:
        asked.set()
        return SNAPSHOT

    stream = io.StringIO()
    shown = background.Screen(console.Console(0.0, stream=stream, live=False), idle_seconds=0.001)
    shown.follow(look)
    assert asked.wait(60.0)
    shown.update(SNAPSHOT, last=True)
    assert shown._look is None
    shown.message("the end")
    shown.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) > 2 and lines[-1] == "the end" and all("2 steps" in line for line in lines[:-1])
