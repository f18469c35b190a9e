"""The messages that wait for the device loop: at most one for each group of environments, which bounds them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from seedzero.core import types
from seedzero.device import batch as batches


class Inbox:
    """Messages waiting for the device loop, and the meanwhile ended sessions.

    `changed` is the one condition that the device loop waits on; every source of work notifies it.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._waiting: dict[types.Role, list[batches.Message]] = {role: [] for role in types.Role}
        self._ended: list[tuple[np.ndarray, str]] = []

    def notify(self) -> None:
        """Wakes the loop."""
        with self.changed:
            self.changed.notify_all()

    def put(self, message: batches.Message) -> None:
        """Adds a message and wakes the loop."""
        with self.changed:
            self._waiting[message.request.role].append(message)
            self.changed.notify_all()

    def end_session(self, session_id: str, role: types.Role, slots: np.ndarray, reason: str) -> None:
        """Drops the messages of an ended session, and keeps its slots and the ledger's reason for the loop."""
        with self.changed:
            self.drop_session(session_id, role)
            self._ended.append((slots, reason))
            self.changed.notify_all()

    def drop_session(self, session_id: str, role: types.Role) -> None:
        """Drops the messages of a session ended by the loop itself."""
        with self.changed:
            waiting = self._waiting[role]
            self._waiting[role] = [message for message in waiting if message.request.session_id != session_id]

    def take_ended(self) -> list[tuple[np.ndarray, str]]:
        """Returns slots and reasons of the sessions ended since the last call."""
        with self.changed:
            ended, self._ended = self._ended, []
            return ended

    @property
    def has_ended(self) -> bool:
        """Whether sessions ended since the last `take_ended`."""
        with self.changed:
            return bool(self._ended)

    def num_rows(self, role: types.Role, holds: Callable[[np.ndarray], bool] | None = None) -> int:
        """Returns the number of waiting environments, without messages on hold."""
        with self.changed:
            waiting = [message.slots for message in self._waiting[role]]
            return sum(len(slots) for slots in waiting if holds is None or not holds(slots))

    def oldest(self, role: types.Role, holds: Callable[[np.ndarray], bool] | None = None) -> float | None:
        """Returns the arrival of the longest waiting message, without messages on hold."""
        with self.changed:
            waiting = self._waiting[role]
            return next((found.arrived for found in waiting if holds is None or not holds(found.slots)), None)

    def take(
        self,
        role: types.Role,
        layout: batches.Layout,
        max_rows: int,
        holds: Callable[[np.ndarray], bool] | None = None,
    ) -> list[batches.Message]:
        """Returns the ready messages, oldest first, up to `max_rows` rows of every shard.

        holds: says of a message's slots [E] whether it must wait; None: none must.
        """
        with self.changed:
            taken: list[batches.Message] = []
            left: list[batches.Message] = []
            counts = np.zeros(layout.num_shards, np.int64)
            for index, message in enumerate(self._waiting[role]):
                if holds is not None and holds(message.slots):
                    left.append(message)
                    continue
                shard, _ = layout.place(message.slots)
                more = counts + np.bincount(shard, minlength=layout.num_shards)
                if more.max() > max_rows:
                    left += self._waiting[role][index:]
                    break
                counts = more
                taken.append(message)
            self._waiting[role] = left
            return taken
