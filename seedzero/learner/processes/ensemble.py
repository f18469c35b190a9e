"""Runs programs that belong together: all start at once, and if one fails, all are restarted together."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from seedzero.core import errors
from seedzero.learner.processes import pool, programs

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
        self._running: pool.ProgramPool | None = None
        self._stopping = threading.Event()

    def run(self) -> int:
        """Returns the exit code of program 0's last run, or of the program that failed for good."""
        failed_at: list[float] = []
        delay = programs.FIRST_DELAY_SECONDS
        while True:
            began = time.monotonic()
            commands = self._commands()
            num_programs, deaths = len(commands), self._live(commands)
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
            failed_at = [at for at in failed_at if now - at < programs.FAILURE_WINDOW_SECONDS] + [now]
            if len(failed_at) >= programs.MAX_FAILURES * num_programs:
                self._say(
                    f"{self._name(index)} failed {len(failed_at)} times within a minute, the last time with {cause}"
                )
                return errors.FAILED
            self._say(f"{self._name(index)}: {cause}; all start again together")
            long_life = now - began > programs.LONG_LIFE_SECONDS
            delay = programs.FIRST_DELAY_SECONDS if long_life else min(2 * delay, programs.MAX_DELAY_SECONDS)
            self._stopping.wait(delay)

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
            pool.Task(command, lambda: None, functools.partial(self._write, index), functools.partial(ended, index))
            for index, command in enumerate(commands)
        ]
        self._running = running = pool.ProgramPool(tasks, len(tasks), environment=self._environment)
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
