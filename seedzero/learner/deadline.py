"""The end of a learner out of time within a stuck call: nothing can interrupt a call."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable

from seedzero.device import patience

GRACE_SECONDS = 10.0
"""Longest wait for one call past the end of the budget."""
_LOOK_SECONDS = 0.5


@dataclasses.dataclass(eq=False)
class Deadline:
    """Leaves after one call has taken `GRACE_SECONDS` since the budget's end; calls that return may follow others."""

    seconds_left: Callable[[], float]  # returns the rest of the budget; below 0: it has passed
    pulse: Callable[[], object | None]  # a value that changes with every call that returns; None: no call is under way
    leave: Callable[[], None]  # ends the process

    def __post_init__(self) -> None:
        self._last: object | None = None
        self._since = 0.0  # of the budget was left when the pulse changed, at most 0

    def watched(self) -> contextlib.AbstractContextManager[None]:
        """While entered, looks from a thread of its own: the main thread may wait for a call, too."""

        def watch(over: threading.Event) -> None:
            while not over.wait(_LOOK_SECONDS):
                self.look()

        return patience.beside("deadline", watch)

    def look(self) -> None:
        """Leaves if the time has come."""
        left, pulse = self.seconds_left(), self.pulse()
        if pulse is None or pulse != self._last or left > 0:
            self._last, self._since = pulse, min(left, 0.0)
        elif left <= self._since - GRACE_SECONDS:
            self.leave()
