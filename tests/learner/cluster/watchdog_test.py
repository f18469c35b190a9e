"""A process that stands still is killed by the one beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from seedzero.learner.cluster import watchdog


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


def test_silence_kills(sleeper: subprocess.Popen[bytes], pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.write(writing, b".")
    assert watchdog.watch(sleeper.pid, 0.05, reading)
    assert sleeper.wait() == -signal.SIGKILL
    os.close(writing)


def test_the_end_of_the_pipe_is_an_end_without_harm(sleeper: subprocess.Popen[bytes], pipe: tuple[int, int]) -> None:
    os.close(pipe[1])
    assert not watchdog.watch(sleeper.pid, 600, pipe[0])
    assert sleeper.poll() is None


def test_a_process_that_has_gone_is_none_to_kill(pipe: tuple[int, int]) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert not watchdog.watch(process.pid, 0.0, pipe[0])
    os.close(pipe[1])


def test_the_program_says_what_it_has_done(sleeper: subprocess.Popen[bytes]) -> None:
    command = [sys.executable, "-m", "seedzero.learner.cluster.watchdog", str(sleeper.pid), "0.05"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert sleeper.wait() == -signal.SIGKILL
        assert "stood still for 0.05 s" in process.communicate()[1]
    assert process.returncode == 0
