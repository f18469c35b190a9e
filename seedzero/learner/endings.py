"""Collects causes from outside the device loop that end a run, which any thread may report to the main thread."""

from __future__ import annotations

import math
import threading
import time

from seedzero.core import errors


class Ending:
    """Wakes the main thread."""

    def __init__(self) -> None:
        self.interrupted_at = math.inf  # of time.monotonic(): when the user or the machine first asked for a stop
        self.failure: errors.TrainingFailure | None = None  # of a worker or the bucket; training cannot continue
        self._wake = threading.Event()

    @property
    def is_interrupted(self) -> bool:
        """Whether the user or the machine asked for a stop."""
        return self.interrupted_at < math.inf

    def interrupt(self) -> None:
        """Any thread: asks for a stop."""
        self.interrupted_at = min(self.interrupted_at, time.monotonic())
        self._wake.set()

    def fail(self, reason: str) -> None:
        """Any thread: reports a fatal error of training."""
        self.failure = errors.TrainingFailure(reason)
        self._wake.set()

    def notify(self) -> None:
        """Any thread: wakes the main thread."""
        self._wake.set()

    def wait(self, seconds: float) -> None:
        """Main thread: waits until something has happened, or until a timeout."""
        self._wake.wait(min(seconds, threading.TIMEOUT_MAX))
        self._wake.clear()

    def check(self) -> None:
        """Raises the failure if there is one."""
        if self.failure is not None:
            raise self.failure
