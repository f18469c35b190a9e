"""The end of a learner out of time within a stuck call: nothing can interrupt a call."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

GRACE_SECONDS = 10.0
"""Longest wait for one call past the end of the budget."""
_LOOK_SECONDS = 0.5


class Deadline:
    """Leaves after one call has taken `GRACE_SECONDS` since the budget's end; returning calls may follow each other.

    Args:
      seconds_left: returns the rest of the budget; below 0: it has passed.
      pulse: returns a value that changes with every call that returns; None: no call is under way.
      leave: ends the process.
    """

    def __init__(
        self, seconds_left: Callable[[], float], pulse: Callable[[], object | None], leave: Callable[[], None]
    ) -> None:
        self._seconds_left, self._pulse, self._leave = seconds_left, pulse, leave
        self._last: object | None = None
        self._since = 0.0  # of the budget was left when the pulse changed, at most 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While entered, looks from a thread of its own: the main thread may wait for a call, too."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_LOOK_SECONDS):
                self.look()

        threading.Thread(target=watch, name="deadline", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def look(self) -> None:
        """Leaves if the time has come."""
        left, pulse = self._seconds_left(), self._pulse()
        if pulse is None or pulse != self._last or left > 0:
            self._last, self._since = pulse, min(left, 0.0)
        elif left <= self._since - GRACE_SECONDS:
            self._leave()
