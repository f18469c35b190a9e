"""Runs several programs: once each and a few at a time, or all together, restarted together if one fails."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from seedzero.core import errors
from seedzero.learner.processes import programs


class Task(NamedTuple):
    """A program for a pool.

    write: receives each line of output; returns whether to ask the program to end. ended: receives its end.
    """

    command: Sequence[str]
    began: Callable[[], None]
    write: Callable[[bytes], bool | None]
    ended: Callable[[programs.Death], object]


class ProgramPool:
    """Runs programs in order, `num_parallel` at a time. They must watch their standard input, which `stop` closes.

    Threads of the pool call `began`, `write` and `ended`, which must be thread-safe. They draw the next task when
    there is room for it, one thread at a time. An exception from any of these ends all programs, and `wait` raises it.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        num_parallel: int,
        *,
        environment: Mapping[str, str] = {},
    ) -> None:
        """environment: added to the programs' own."""
        self._system = programs.System(functools.partial(programs.launch, environment=environment))
        self._waiting = iter(tasks)
        self._programs: list[programs.Program] = []  # at work, or about to start
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._failure: Exception | None = None
        self._threads = [
            threading.Thread(target=self._work, args=(share,), name=f"pool-{index}", daemon=True)
            for index, share in enumerate(cores(num_parallel))
        ]

    def start(self) -> None:
        """Starts the first programs; whenever one ends, the next one starts."""
        for thread in self._threads:
            thread.start()

    def wait(self, seconds: float) -> bool:
        """Waits until all programs have ended, at most for a time; returns whether they have."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        has_ended = not any(thread.is_alive() for thread in self._threads)
        if has_ended and self._failure is not None:
            raise self._failure
        return has_ended

    def stop(self) -> None:
        """Starts no more programs, and asks the running ones to end by closing their input; does not wait."""
        self._stopped.set()
        for program in list(self._programs):
            _finish(program)

    def kill(self) -> None:
        """Kills all programs without waiting, for a process that leaves at once."""
        self._stopped.set()
        for program in list(self._programs):
            program.stopping.set()
            program.kill()

    def _work(self, share: Sequence[int]) -> None:
        if share:
            with contextlib.suppress(OSError):  # some containers forbid it; the programs then share all cores
                os.sched_setaffinity(0, share)  # for this thread, and so for the programs that it starts
        try:
            while (drawn := self._draw()) is not None:
                task, program = drawn
                if (death := program.live(task.command, started=task.began)) is not None:
                    task.ended(death)
                self._programs.remove(program)
        except Exception as error:
            self._fail(error)

    def _draw(self) -> tuple[Task, programs.Program] | None:
        """Returns the next task and its program; None if there is none, or the pool was stopped."""
        with self._lock:
            task = None if self._stopped.is_set() else next(self._waiting, None)
            if task is None:
                return None
            program = programs.Program(lambda line: self._take(task, program, line), self._system)
            self._programs.append(program)
        if self._stopped.is_set():  # meanwhile
            program.finish()
        return task, program

    def _take(self, task: Task, program: programs.Program, line: bytes) -> None:
        try:
            if task.write(line):
                _finish(program)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self.stop()


def _finish(program: programs.Program) -> None:
    """Starts a program no more, and asks the running one to end."""
    program.finish()
    if (process := program.process) is not None:  # another thread may set it to None
        process.close_input()


def cores(num_shares: int) -> list[Sequence[int]]:
    """Divides this process's cores into even shares, which may overlap; shares are empty if cores cannot be chosen."""
    if not hasattr(os, "sched_getaffinity"):
        return [()] * num_shares
    mine = sorted(os.sched_getaffinity(0))
    size = max(1, len(mine) // num_shares)
    return [[mine[(index * size + place) % len(mine)] for place in range(size)] for index in range(num_shares)]


GRACE_SECONDS = 40.0
"""Time for the others to end by themselves after one has ended; longer than they need to notice."""
_LOOK_SECONDS = 0.5


class Ensemble:
    """Runs N programs again and again until all have succeeded, `stop` is called, or too many failures follow."""

    def __init__(
        self,
        commands: Callable[[], Sequence[Sequence[str]]],
        *,
        write: Callable[[int, bytes], None],
        say: Callable[[str], None],
        name: Callable[[int], str] = "program {}".format,
        environment: Mapping[str, str] = {},
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """Prepares the programs.

        Args:
          commands: called before each start. Program 0 leads: once it has succeeded, all have.
          write: receives each line of a program's output, on a separate thread.
          say: receives a message for each restart.
        """
        self._commands, self._write, self._say, self._name = commands, write, say, name
        self._environment, self._grace_seconds = environment, grace_seconds
        self._running: ProgramPool | None = None
        self._stopping = threading.Event()

    def run(self) -> int:
        """Returns the exit code of program 0's last run, or of the program that failed for good."""
        failed_at: list[tuple[float, int]] = []  # and which program
        delay = programs.FIRST_DELAY_SECONDS
        while True:
            began = time.monotonic()
            deaths = self._live(self._commands())
            first = deaths.get(0)
            if first is not None and first.status == errors.DONE:
                return errors.DONE
            if self._stopping.is_set():
                return errors.DONE if all(_is_peaceful(death) for death in deaths.values()) else errors.FAILED
            # The others ended only because one failed.
            index, cause = next(
                ((index, death) for index, death in deaths.items() if not _is_peaceful(death)), (0, first)
            )
            if cause is not None and cause.status == errors.BAD_USAGE:
                return errors.BAD_USAGE
            now = time.monotonic()
            failed_at = [one for one in failed_at if now - one[0] < programs.FAILURE_WINDOW_SECONDS] + [(now, index)]
            if (number := sum(which == index for _, which in failed_at)) >= programs.MAX_FAILURES:
                self._say(f"{self._name(index)} failed {number} times within a minute, the last time with {cause}")
                return errors.FAILED
            self._say(f"{self._name(index)}: {cause}; all start again together")
            long_life = now - began > programs.LONG_LIFE_SECONDS
            delay = programs.FIRST_DELAY_SECONDS if long_life else min(2 * delay, programs.MAX_DELAY_SECONDS)
            if self._stopping.wait(delay):
                return errors.DONE

    def stop(self) -> None:
        """Asks the programs to end by closing their input. Any thread may call it."""
        self._stopping.set()
        if self._running is not None:
            self._running.stop()

    def kill(self) -> None:
        """Kills all programs without waiting, for a process that leaves at once."""
        self._stopping.set()
        if self._running is not None:
            self._running.kill()

    def _live(self, commands: Sequence[Sequence[str]]) -> dict[int, programs.Death]:
        """Runs all programs once; returns how they ended, in that order."""
        deaths: dict[int, programs.Death] = {}

        def ended(index: int, death: programs.Death | None) -> None:
            if death is not None:
                deaths[index] = death

        tasks = [
            Task(command, lambda: None, functools.partial(self._write, index), functools.partial(ended, index))
            for index, command in enumerate(commands)
        ]
        self._running = running = ProgramPool(tasks, len(tasks), environment=self._environment)
        running.start()
        if self._stopping.is_set():  # `stop` was called meanwhile
            running.stop()
        ends_at = float("inf")
        while not running.wait(_LOOK_SECONDS):
            now = time.monotonic()
            if deaths and ends_at == float("inf") and not self._stopping.is_set():
                ends_at = now + self._grace_seconds
            if now >= ends_at:
                running.kill()
        return deaths


def _is_peaceful(death: programs.Death) -> bool:
    return death.status in (errors.DONE, errors.TRY_LATER, errors.INTERRUPTED)
