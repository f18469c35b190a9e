"""Videos of evaluations, with the process that makes them imitated; acting/tables/scoring_test.py has the film."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

import made_up
import pytest

from seedzero.learner import learner_parts
from seedzero.learner.processes import programs

DEADLINE_SECONDS = 600.0


FILMED = json.dumps({"ledger": {"stored": 600, "discarded": {"unfinished_unroll": 40}}})


class Process(made_up.Process):
    """Writes the video and prints its last line, once it may."""

    pid = -1  # nobody's

    def __init__(self, target: pathlib.Path, last: str, may_end: threading.Event, status: int) -> None:
        super().__init__(last.encode() + b"\n")
        self._target, self._may_end, self._after = target, may_end, status
        self.was_killed = False

    def lines(self) -> Iterator[bytes]:
        assert self._may_end.wait(DEADLINE_SECONDS)
        if not self.was_killed:
            self._target.write_bytes(b"GIF89a")
            yield from super().lines()
        self.end(self._after)

    def kill_group(self) -> None:
        self.was_killed = True
        self._may_end.set()


class World:
    """A filmer with imitated processes."""

    def __init__(self, every: int, last: str = FILMED, status: int = 0) -> None:
        self.commands: list[Sequence[str]] = []
        self.written: list[tuple[bytes, int]] = []
        self.said: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.processes: list[Process] = []

        def launch(command: Sequence[str]) -> programs.Process:
            self.commands.append(command)
            self.processes.append(Process(pathlib.Path(command[-1]), last, self.may_end, status))
            return self.processes[-1]

        self.launch: Callable[[Sequence[str]], programs.Process] = launch
        self.filmer = learner_parts.Filmer(
            pathlib.Path("/runs/one"),
            every,
            write=lambda gif, env_steps: self.written.append((gif, env_steps)),
            say=self.said.append,
            launch=lambda command: self.launch(command),
        )

    def evaluate(self, durable_update: int | None = 9) -> None:
        self.filmer.evaluated(durable_update)

    def settle(self) -> None:
        if self.filmer._thread is not None:
            self.filmer._thread.join(DEADLINE_SECONDS)
            assert not self.filmer._thread.is_alive()


@pytest.mark.parametrize(("every", "num_videos"), [(0, 0), (1, 4), (2, 2), (3, 1)])
def test_every_nth_evaluation_has_a_video_at_the_steps_of_its_checkpoint(every: int, num_videos: int) -> None:
    world = World(every)
    for _ in range(4):
        world.evaluate()
        world.settle()
    assert world.written == [(b"GIF89a", 640)] * num_videos and not world.said
    assert all(list(command[1:4]) == ["-m", "seedzero.acting.tables", "/runs/one"] for command in world.commands)


def test_before_the_first_checkpoint_and_during_another_video_there_is_none() -> None:
    world = World(1)
    world.evaluate(durable_update=None)
    world.evaluate(durable_update=None)
    assert world.filmer._thread is None
    (message,) = world.said
    assert "--checkpoint.every_seconds" in message
    world.may_end.clear()
    world.evaluate()
    world.evaluate()
    world.may_end.set()
    world.settle()
    assert len(world.commands) == 1 == len(world.written)


@pytest.mark.parametrize(
    ("last", "status"), [("environment 'Mine-v0' renders NoneType", 1), ("", 0), ("[]", 0), ('{"step": 3}', 0)]
)
def test_a_failure_is_told_once_and_ends_the_videos(last: str, status: int) -> None:
    world = World(1, last, status)
    for _ in range(3):
        world.evaluate()
        world.settle()
    assert len(world.commands) == 1 and not world.written
    (text,) = world.said
    assert last in text and "--evaluation.video_every" in text


def test_a_process_that_cannot_be_started_is_told() -> None:
    def fail(command: Sequence[str]) -> programs.Process:
        raise OSError(errno.EAGAIN, "no more processes")

    world = World(1)
    world.launch = fail
    world.evaluate()
    world.settle()
    assert "no more processes" in world.said[0]


def test_a_stop_kills_the_process_and_tells_nothing() -> None:
    world = World(1)
    world.may_end.clear()
    started = threading.Event()
    launch = world.launch

    def launch_and_tell(command: Sequence[str]) -> programs.Process:
        process = launch(command)
        started.set()
        return process

    world.launch = launch_and_tell
    world.evaluate()
    assert started.wait(DEADLINE_SECONDS)
    world.filmer.stop()
    assert world.processes[0].was_killed and not world.written and not world.said
    world.evaluate()
    assert len(world.commands) == 1


def test_what_a_process_started_ends_with_it() -> None:
    world = World(1)
    world.evaluate()
    world.settle()
    assert world.processes[0].was_killed and world.written


_LEAVES_ANOTHER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-S", "-c", "open(%r).read()"], start_new_session=True, stdin=subprocess.DEVNULL)
open(sys.argv[-1], "wb").write(b"GIF89a")
print('{"ledger": {"stored": 600, "discarded": {"unfinished_unroll": 40}}}', flush=True)
"""


def test_a_process_left_in_its_own_session_with_the_output_holds_nothing(tmp_path: pathlib.Path) -> None:
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDWR)  # the left process ends when this is closed
    launched: list[programs.Process] = []

    def launch(command: Sequence[str]) -> programs.Process:
        launched.append(programs.launch([sys.executable, "-S", "-c", _LEAVES_ANOTHER % str(fifo), command[-1]]))
        return launched[0]

    world = World(1)
    world.launch = launch
    try:
        world.evaluate()
        world.settle()
    finally:
        os.close(held)
    assert world.written == [(b"GIF89a", 640)] and launched[0].returncode == 0
