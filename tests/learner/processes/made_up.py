"""Processes that are made up, and a system that starts them: its clock stands still, and pauses take no time."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

from seedzero.learner.processes import programs

TIMEOUT_SECONDS = 600.0


class Process(programs.Process):
    """Writes its lines, then lives until a signal comes, its input is closed or `end` is called."""

    pid = 1234

    def __init__(self, *lines: bytes, status: int | None = None) -> None:
        """status: of an end at once; None: it lives on."""
        self._lines = lines
        self._status: queue.Queue[int] = queue.Queue()
        self.signals: list[int] = []
        self.read = threading.Event()
        if status is not None:
            self.end(status)

    def end(self, status: int) -> None:
        self._status.put(status)

    def lines(self) -> Iterator[bytes]:
        yield from self._lines
        self.read.set()

    def wait(self) -> int:
        return self._status.get(timeout=TIMEOUT_SECONDS)

    def close_input(self) -> None:
        self.end(0)

    def kill_group(self) -> None:
        pass

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        self.end(0 if number == signal.SIGTERM else -number)


class System:
    """Starts what `launch` returns, or raises it; keeps the commands and pauses."""

    def __init__(self, launch: Callable[[], Process | OSError]) -> None:
        self.commands: list[Sequence[str]] = []
        self.pauses: list[float] = []
        self._next = launch
        self.functions = programs.System(self._launch, clock=lambda: 0.0, wait=self._wait)

    def _launch(self, command: Sequence[str]) -> Process:
        self.commands.append(command)
        process = self._next()
        if isinstance(process, OSError):
            raise process
        return process

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        return event.is_set()
