"""Runs programs, a limited number at a time, each once and with its own cores."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from seedzero.processes import programs


class Task(NamedTuple):
    """A program of a pool.

    write: takes each line of output. ended: takes the end; None: the pool was stopped before the start.
    """

    command: Sequence[str]
    began: Callable[[], None]
    write: Callable[[bytes], None]
    ended: Callable[[programs.Death | None], object]


class ProgramPool:
    """Runs programs in their order, `num_parallel` at a time. They must watch their standard input: `stop` closes it.

    `began`, `write` and `ended` are called on threads of the pool, and must be thread-safe.
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
        """environment: added to the programs' own. share_cores: the programs of a moment share the cores evenly."""
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
        """Starts the first programs; each end starts the next one."""
        for thread in self._threads:
            thread.start()

    def wait(self, seconds: float) -> bool:
        """Waits for the end of all programs, at most so long; returns whether they have ended."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Starts no more programs, and asks the running ones to end, by the end of their input; does not wait."""
        for _, program in self._tasks:
            program.finish()
        for process in self._running():
            process.close_input()

    def kill(self) -> None:
        """Kills all programs without waiting: for a process that leaves at once."""
        for _, program in self._tasks:
            program.stopping.set()
        for process in self._running():
            process.kill_group()

    def _running(self) -> list[programs.Process]:
        return [process for _, program in self._tasks if (process := program.process)]

    def _work(self, share: Sequence[int]) -> None:
        if share:
            os.sched_setaffinity(0, share)  # of this thread, and so of the programs that it starts
        while True:
            with self._lock:
                if not self._waiting:
                    return
                task, program = self._waiting.pop()
            task.ended(program.live(task.command, started=task.began))


def cores(num_shares: int) -> list[Sequence[int]]:
    """Returns this process's cores in even shares, the same core in several if need be; empty: no choice here."""
    if not hasattr(os, "sched_getaffinity"):
        return [()] * num_shares
    mine = sorted(os.sched_getaffinity(0))
    size = max(1, len(mine) // num_shares)
    return [[mine[(index * size + place) % len(mine)] for place in range(size)] for index in range(num_shares)]
