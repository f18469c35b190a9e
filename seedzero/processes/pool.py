"""Runs many programs once each, a limited number at a time, each on its own share of the cores."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from seedzero.processes import programs


class Task(NamedTuple):
    """A program for a pool.

    write: receives each line of output. ended: receives the end, or None if the pool was stopped before the start.
    """

    command: Sequence[str]
    began: Callable[[], None]
    write: Callable[[bytes], None]
    ended: Callable[[programs.Death | None], object]


class ProgramPool:
    """Runs programs in order, `num_parallel` at a time. They must watch their standard input, which `stop` closes.

    Threads of the pool call `began`, `write` and `ended`, which must be thread-safe.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        num_parallel: int,
        *,
        environment: Mapping[str, str] = {},
        share_cores: bool = True,
        launch: Callable[..., programs.Process] = programs.launch,
    ) -> None:
        """environment: added to the programs' own. share_cores: whether running programs share the cores evenly."""
        system = programs.System(functools.partial(launch, environment=environment))
        self._tasks = [(task, programs.Program(task.write, system)) for task in tasks]
        self._waiting = list(reversed(self._tasks))
        self._lock = threading.Lock()
        shares = cores(num_parallel) if share_cores else [()] * num_parallel
        self._threads = [
            threading.Thread(target=self._work, args=(share,), name=f"pool-{index}", daemon=True)
            for index, share in enumerate(shares)
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
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Starts no more programs, and asks the running ones to end by closing their input; does not wait."""
        for _, program in self._tasks:
            program.finish()
        for process in self._running():
            process.close_input()

    def kill(self) -> None:
        """Kills all programs without waiting, for a process that leaves at once."""
        for _, program in self._tasks:
            program.stopping.set()
        for process in self._running():
            process.kill_group()

    def _running(self) -> list[programs.Process]:
        return [process for _, program in self._tasks if (process := program.process)]

    def _work(self, share: Sequence[int]) -> None:
        if share:
            os.sched_setaffinity(0, share)  # for this thread, and so for the programs that it starts
        while True:
            with self._lock:
                if not self._waiting:
                    return
                task, program = self._waiting.pop()
            task.ended(program.live(task.command, started=task.began))


def cores(num_shares: int) -> list[Sequence[int]]:
    """Divides this process's cores into even shares, which may overlap; shares are empty if cores cannot be chosen."""
    if not hasattr(os, "sched_getaffinity"):
        return [()] * num_shares
    mine = sorted(os.sched_getaffinity(0))
    size = max(1, len(mine) // num_shares)
    return [[mine[(index * size + place) % len(mine)] for place in range(size)] for index in range(num_shares)]
