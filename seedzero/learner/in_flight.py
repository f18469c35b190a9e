"""The device calls on their way, and the thread that waits for each in turn.

JAX's dispatch does not block. The completion thread waits for the oldest call, hands its actions to the server and
fetches its metrics.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from seedzero.core import errors


class InFlight:
    """Counts dispatched calls and completes them in order.

    changed: notified after each completion. maximum: calls at a time; `has_room` says before one whether it may go.
    """

    def __init__(self, changed: threading.Condition, maximum: int) -> None:
        self._changed = changed
        self._maximum = maximum
        self._number = 0
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=maximum + 1)  # and the end's mark
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="completions")

    def start(self) -> None:
        """Starts the completion thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the completion thread after the calls in flight."""
        self._waiting.put(None)
        self._thread.join()

    @property
    def has_room(self) -> bool:
        """Whether another call may be dispatched."""
        with self._changed:
            return self._number < self._maximum

    @property
    def is_empty(self) -> bool:
        """Whether the device has nothing to do."""
        with self._changed:
            return self._number == 0

    @property
    def has_failed(self) -> bool:
        """Whether a call failed."""
        return self._failure is not None

    def add(self, when_done: Callable[[], None]) -> None:
        """Counts a dispatched call; the completion thread runs `when_done`, which waits for its results."""
        with self._changed:
            self._number += 1
        self._waiting.put(when_done)

    def settle(self) -> None:
        """Waits until nothing is in flight; raises what `check` raises."""
        with self._changed:
            self._changed.wait_for(lambda: self._number == 0 or self._failure is not None)
        self.check()

    def check(self) -> None:
        """Raises the failure of a call.

        Raises:
          Error: as the call's completion raised it.
          TrainingFailure: the device's call failed.
        """
        if self._failure is None:
            return
        if isinstance(self._failure, errors.Error):
            raise self._failure
        raise errors.TrainingFailure(
            f"a call on the device failed ({self._failure}); its state is lost: run the same command again to "
            f"resume from the last checkpoint"
        ) from self._failure

    def complete_next(self) -> bool:
        """Completion thread: waits for the oldest call and completes it; returns False at the end."""
        when_done = self._waiting.get()
        if when_done is None:
            return False
        try:
            if self._failure is None:
                when_done()
        except Exception as error:  # a failed device call has consumed its donated state: everything stops
            self._failure = error
        with self._changed:
            self._number -= 1
            self._changed.notify_all()
        return True

    def _work(self) -> None:
        while self.complete_next():
            pass
