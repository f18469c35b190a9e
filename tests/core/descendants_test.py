"""Simulators in sessions of their own end with the program that started them."""

from __future__ import annotations

import os
import pathlib
import select
import signal
import subprocess
from collections.abc import Callable

import pytest

from seedzero.core import descendants
from seedzero.learner.processes import programs

TIMEOUT_SECONDS = 600.0
WORKER = """
import subprocess, sys
simulator = ["sh", "-c", 'echo begun; exec sleep 1000']
with open(sys.argv[1], "wb") as pipe:
    subprocess.Popen(simulator, stdout=pipe, start_new_session=True)
"""
"""Starts a simulator, which holds a pipe open, and ends, or is killed, at the end of its input."""


def _ended(process: programs.Process) -> None:
    process.close_input()
    process.wait(TIMEOUT_SECONDS)
    process.kill_group()


def _killed(process: programs.Process) -> None:
    process.kill_group()
    process.wait(TIMEOUT_SECONDS)


@pytest.mark.parametrize("end", [_ended, _killed])
def test_a_program_ends_with_all_that_it_started_and_with_nothing_else(
    end: Callable[[programs.Process], None], tmp_path: pathlib.Path
) -> None:
    place = tmp_path / "pipe"
    os.mkfifo(place)
    words = ["python", "-c", WORKER + "sys.stdin.read()", str(place)]
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        try:
            with programs.launch(words) as process, open(place, "rb", buffering=0) as pipe:
                assert pipe.read(6) == b"begun\n"
                end(process)
                assert select.select([pipe], [], [], TIMEOUT_SECONDS)[0] and pipe.read(1) == b""
            assert other.poll() is None
        finally:
            other.kill()


def test_a_program_without_a_parent_ends_with_all_that_it_started(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "pipe"
    os.mkfifo(place)
    alone = "from seedzero.core import descendants; sys.stdin.read(); descendants.kill_own()"
    with programs.launch(["python", "-c", WORKER + alone, str(place)]) as process, open(place, "rb", 0) as pipe:
        assert pipe.read(6) == b"begun\n"
        process.close_input()
        assert process.wait(TIMEOUT_SECONDS) == -signal.SIGKILL
        assert select.select([pipe], [], [], TIMEOUT_SECONDS)[0] and pipe.read(1) == b""


def test_a_program_of_a_program_has_the_numbers_of_both() -> None:
    outer, first = descendants.marked({"A": "1"})
    inner, second = descendants.marked(outer)
    assert inner == {"A": "1", descendants.MARK: f" {first} {second}"} and first != second
