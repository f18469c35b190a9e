"""Requests of other threads to the device loop."""

from __future__ import annotations

from collections.abc import Callable

from seedzero.learner import inbox as inbox_lib


class Requests:
    """What other threads ask of the loop; `inbox.changed` wakes it."""

    def __init__(self, inbox: inbox_lib.Inbox) -> None:
        self.reason_to_stop: str | None = None
        self._inbox = inbox
        self._action: Callable[[], None] | None = None
        self._stop: str | None = None

    def put(self, action: Callable[[], None]) -> None:
        """Any thread: has `action` run on the loop's thread, in place of an earlier one that still waits."""
        with self._inbox.changed:
            self._action = action
            self._inbox.changed.notify_all()

    def stop(self, reason: str) -> None:
        """Any thread: ends the loop."""
        with self._inbox.changed:
            self._stop = reason
            self._inbox.changed.notify_all()

    @property
    def are_waiting(self) -> bool:
        """Whether `handle` has something to do."""
        return self._action is not None or self._stop is not None

    def handle(self) -> None:
        """Runs the newest action, and takes the reason to stop."""
        with self._inbox.changed:
            action, self._action = self._action, None
            stop = self._stop
        if action is not None:
            action()
        if stop is not None:
            self.reason_to_stop = stop
