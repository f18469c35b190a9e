"""A program is kept running: without processes where the rule is meant, with real ones where the system's part is."""

from __future__ import annotations

import os
import pathlib
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import made_up
import pytest
from made_up import TIMEOUT_SECONDS

from seedzero.core import errors
from seedzero.learner.processes import keepers, programs

State = keepers.ProgramState


class Harness:
    """A keeper whose processes are made up."""

    def __init__(self, judge: Callable[[programs.Death], keepers.Verdict | None] = lambda death: None) -> None:
        self.processes: queue.Queue[made_up.Process | OSError] = queue.Queue()
        self.written: list[bytes] = []
        system = made_up.System(lambda: self.processes.get(timeout=TIMEOUT_SECONDS))
        self.commands, self.pauses = system.commands, system.pauses
        self.keeper = keepers.Keeper(
            announcement=r"listening on (\S+)", judge=judge, write=self.written.append, system=system.functions
        )

    def add(self, *lines: bytes) -> made_up.Process:
        process = made_up.Process(*lines)
        self.processes.put(process)
        return process

    def until(self, condition: Callable[[keepers.ProgramSnapshot], bool]) -> keepers.ProgramSnapshot:
        """Waits for a state as callers of the keeper do."""
        found = self.keeper.snapshot()
        while not condition(found):
            later = self.keeper.snapshot(after=found.number, seconds=TIMEOUT_SECONDS)
            assert later.number != found.number, f"nothing changes from {found}"
            found = later
        return found


def test_a_stop_between_two_runs_is_final() -> None:
    stopped: list[keepers.ProgramSnapshot] = []

    def judge(death: programs.Death) -> None:
        stopped.append(harness.keeper.stop(TIMEOUT_SECONDS))

    harness = Harness(judge)
    harness.add().end(1)
    harness.keeper.start(lambda: ["program"])
    assert harness.keeper._thread is not None
    harness.keeper._thread.join(TIMEOUT_SECONDS)
    assert stopped[0].state is State.STOPPED and harness.keeper.snapshot() == stopped[0]


def test_it_announces_and_writes_what_the_program_says() -> None:
    harness = Harness()
    process = harness.add(b"hello\n", b"seedzero learner listening on 10.0.0.1:7\n")
    assert harness.keeper.snapshot() == keepers.ProgramSnapshot()
    harness.keeper.start(lambda: ["program"])
    found = harness.until(lambda now: bool(now.heard))
    assert (found.state, found.starts, found.heard, found.problem) == (State.RUNNING, 1, "10.0.0.1:7", "")
    assert harness.commands == [["program"]]
    assert harness.keeper.stop(TIMEOUT_SECONDS).state is State.STOPPED
    assert process.signals == [signal.SIGTERM]
    assert harness.written == [b"hello\n", b"seedzero learner listening on 10.0.0.1:7\n"]


def test_a_program_that_dies_is_started_again_and_what_it_announced_counts_no_more() -> None:
    harness = Harness()
    first, _ = harness.add(b"listening on a:1\n", b"out of memory\n"), harness.add()
    harness.keeper.start(lambda: ["program"])
    harness.until(lambda now: bool(now.heard))
    first.read.wait(TIMEOUT_SECONDS)
    first.end(1)
    again = harness.until(lambda now: now.starts == 2)
    assert (again.state, again.heard, again.status) == (State.RUNNING, "", 1)
    assert harness.pauses == [programs.FIRST_DELAY_SECONDS]
    harness.keeper.stop(TIMEOUT_SECONDS)


def test_five_failures_within_a_minute_are_the_end_and_the_last_words_are_told() -> None:
    missing = FileNotFoundError(2, "No such file or directory", "python9")
    for process, words in ((None, "exit code 1: no such game"), (missing, "No such file or directory: python9")):
        harness = Harness()
        for _ in range(programs.MAX_FAILURES):
            harness.processes.put(process or made_up.Process(b"no such game\n", status=1))
        harness.keeper.start(lambda: ["program"])
        found = harness.until(lambda now: now.state in keepers.OVER)
        assert (found.state, found.starts) == (State.FAILED, 0 if process else programs.MAX_FAILURES)
        assert found.problem.startswith("failed 5 times within 60 s") and found.problem.endswith(words)


@pytest.mark.parametrize("status", [0, errors.TRY_LATER])
def test_an_end_in_peace_and_a_directory_in_use_wait_longer_and_are_no_failures(status: int) -> None:
    harness = Harness()
    for _ in range(2 * programs.MAX_FAILURES):
        harness.add().end(status)
    last = harness.add()
    harness.keeper.start(lambda: ["program"])
    found = harness.until(lambda now: now.starts == 2 * programs.MAX_FAILURES + 1)
    assert (found.state, found.problem) == (State.RUNNING, "")
    assert set(harness.pauses) == {keepers.PEACE_SECONDS}
    harness.keeper.stop(TIMEOUT_SECONDS)
    assert last.signals == [signal.SIGTERM]


@pytest.mark.parametrize("state", [State.FINISHED, State.FAILED])
def test_the_judge_decides_what_is_the_end(state: State) -> None:
    harness = Harness(lambda death: keepers.Verdict(state, "why") if death.status == 3 else None)
    harness.add().end(1)
    harness.add().end(3)
    harness.keeper.start(lambda: ["program"])
    found = harness.until(lambda now: now.state in keepers.OVER)
    assert (found.state, found.problem, found.starts, found.status) == (state, "why", 2, 3)


def test_a_renewed_program_is_started_at_once_with_what_the_command_is_then() -> None:
    harness = Harness()
    first, second = harness.add(), harness.add()
    addresses = iter(["old", "new"])
    harness.keeper.start(lambda: [next(addresses)])
    harness.until(lambda now: now.starts == 1)
    harness.keeper.renew()
    harness.until(lambda now: now.starts == 2)
    assert harness.commands == [["old"], ["new"]]
    assert harness.pauses == [] and first.signals == [signal.SIGTERM]
    harness.keeper.stop(TIMEOUT_SECONDS)
    assert second.signals == [signal.SIGTERM]


def test_a_program_that_is_renewed_while_it_starts_is_started_again() -> None:
    harness = Harness()
    first, second = harness.add(), harness.add()
    addresses, take = iter(["old", "new"]), harness.processes.get

    def get(timeout: float) -> made_up.Process | OSError:
        if (process := take(timeout=timeout)) is first:
            harness.keeper.renew()  # after the command was made
        return process

    harness.processes.get = get  # type: ignore[method-assign,assignment]
    harness.keeper.start(lambda: [next(addresses)])
    harness.until(lambda now: now.starts == 2)
    assert harness.commands == [["old"], ["new"]]
    assert harness.pauses == [] and first.signals == [signal.SIGTERM]
    harness.keeper.stop(TIMEOUT_SECONDS)
    assert second.signals == [signal.SIGTERM]


@pytest.mark.parametrize(
    ("error", "problem"),
    [(errors.ResumeError("the disk is gone"), "the disk is gone"), (KeyError("x"), "KeyError: 'x'")],
)
def test_a_command_that_cannot_be_made_is_told(error: Exception, problem: str) -> None:
    def command() -> Sequence[str]:
        raise error

    harness = Harness()
    harness.keeper.start(command)
    found = harness.until(lambda now: now.state in keepers.OVER)
    assert (found.state, found.problem) == (State.FAILED, problem)


def test_a_program_that_waits_for_its_start_is_never_started_once_it_is_stopped() -> None:
    harness = Harness()
    blocked, free = threading.Event(), threading.Event()

    def command() -> Sequence[str]:
        harness.keeper.tell("waits")
        blocked.set()
        free.wait(TIMEOUT_SECONDS)
        return ["program"]

    harness.keeper.start(command)
    assert blocked.wait(TIMEOUT_SECONDS)
    assert harness.keeper.snapshot().problem == "waits"
    assert harness.keeper.stop(TIMEOUT_SECONDS).state is State.STOPPED
    free.set()
    harness.keeper._thread.join(TIMEOUT_SECONDS)  # type: ignore[union-attr]
    assert harness.commands == []


def test_without_a_start_there_is_nothing_to_stop() -> None:
    assert Harness().keeper.stop(TIMEOUT_SECONDS).state is State.STOPPED


def test_a_real_program_that_does_not_listen_is_killed(tmp_path: pathlib.Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('listening on x', flush=True)\n"
    kept = keepers.Keeper(announcement=r"listening on (\S+)", judge=lambda death: None, write=lambda line: None)
    kept.start(lambda: [sys.executable, "-c", code + "time.sleep(600)"])
    found = kept.snapshot()
    while not found.heard:
        found = kept.snapshot(after=found.number, seconds=TIMEOUT_SECONDS)
    last = kept.stop(0.2)
    assert (last.state, last.status) == (State.STOPPED, -signal.SIGKILL)
    assert last.problem.startswith("killed by SIGKILL")


_SIGNALLED = """
import signal, sys
from seedzero.learner.processes import keepers

def address():
    with worker._told._cond:  # as within Event.set
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    return "a learner"

worker = keepers.Respawner(lambda server: [sys.executable, "-c", "import time; time.sleep(600)"], address)
sys.exit(worker.run())
"""


def test_a_signal_may_come_while_another_is_handled() -> None:
    assert subprocess.run([sys.executable, "-c", _SIGNALLED], timeout=600, check=False).returncode in (0, 143)


_CRASHING = """
import os, signal, subprocess, sys
if os.path.exists("crashed"):
    sys.exit(0)
open("crashed", "w").close()
child = "import time; held = open('left', 'w'); print('x', file=held, flush=True); time.sleep(60)"
subprocess.Popen([sys.executable, "-S", "-c", child])
open("go").read()
os.kill(os.getpid(), signal.SIGSEGV)
"""

_KEEPING = """
import sys
from seedzero.learner.processes import keepers

sys.exit(keepers.Respawner(lambda server: [sys.executable, "-c", sys.argv[1]], lambda: "a learner").run())
"""


def test_what_a_crashed_worker_started_ends_with_it(tmp_path: pathlib.Path) -> None:
    for name in ("left", "go"):
        os.mkfifo(tmp_path / name)
    command = [sys.executable, "-c", _KEEPING, _CRASHING]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        open(os.open(tmp_path / "left", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as left,
        subprocess.Popen(command, cwd=tmp_path, env=environment) as keeping,
    ):
        assert select.select([left], [], [], 60.0)[0] and left.read(8)
        (tmp_path / "go").write_text("")
        assert select.select([left], [], [], 20.0)[0] and left.read(8) == b""
        assert keeping.wait(600) == 0
