"""Collects causes that end a run, from any thread for the main thread, and ends a learner whose call is stuck."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable

from seedzero.core import errors
from seedzero.device import patience

# Ends a learner that runs out of time in a stuck call, which nothing can interrupt.
GRACE_SECONDS = 10.0
"""How long one call may last after the end of the budget."""
_LOOK_SECONDS = 0.5


@dataclasses.dataclass(eq=False)
class Deadline:
    """Leaves once a call has taken `GRACE_SECONDS` since the budget's end; if calls return, others may follow."""

    seconds_left: Callable[[], float]  # returns what is left of the budget; negative if it is over
    # returns a value that changes with every call that returns; None if no call is in flight
    pulse: Callable[[], object | None]
    leave: Callable[[], None]  # ends the process

    def __post_init__(self) -> None:
        self._last: object | None = None
        self._since = 0.0  # what was left of the budget when the pulse changed, at most 0

    def watched(self) -> contextlib.AbstractContextManager[None]:
        """Watches from a separate thread while entered, because the main thread may wait for a call, too."""

        def watch(over: threading.Event) -> None:
            while not over.wait(_LOOK_SECONDS):
                self.look()

        return patience.beside("deadline", watch)

    def look(self) -> None:
        """Leaves if it is time."""
        left, pulse = self.seconds_left(), self.pulse()
        if pulse is None or pulse != self._last or left > 0:
            self._last, self._since = pulse, min(left, 0.0)
        elif left <= self._since - GRACE_SECONDS:
            self.leave()


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
