"""The messages that wait for the device: at most one for each group of environments, which bounds them."""

from __future__ import annotations

import threading

import numpy as np

from seedzero.core import types
from seedzero.device import batch


class Inbox:
    """Messages that wait for the device loop, and the runs that ended meanwhile.

    `changed` is the one condition that the device loop waits on; whoever makes work possible notifies it.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._waiting: dict[types.Role, list[batch.Message]] = {role: [] for role in types.Role}
        self._ended: list[np.ndarray] = []

    def put(self, message: batch.Message) -> None:
        """Adds a message and wakes the loop."""
        with self.changed:
            self._waiting[message.request.role].append(message)
            self.changed.notify_all()

    def end_session(self, session_id: str, role: types.Role, slots: np.ndarray) -> None:
        """Drops the messages of a run that is over; the loop learns which slots it had."""
        with self.changed:
            self._drop(session_id, role)
            self._ended.append(slots)
            self.changed.notify_all()

    def drop_session(self, session_id: str, role: types.Role) -> None:
        """Drops the messages of a run that the loop itself ended."""
        with self.changed:
            self._drop(session_id, role)

    def _drop(self, session_id: str, role: types.Role) -> None:
        self._waiting[role] = [message for message in self._waiting[role] if message.request.session_id != session_id]

    def take_ended(self) -> list[np.ndarray]:
        """Returns the slots of the runs that ended since the last call."""
        with self.changed:
            ended, self._ended = self._ended, []
            return ended

    @property
    def has_ended(self) -> bool:
        """Whether runs ended since the last `take_ended`."""
        with self.changed:
            return bool(self._ended)

    def num_rows(self, role: types.Role) -> int:
        """Returns how many environments wait."""
        with self.changed:
            return sum(len(message.slots) for message in self._waiting[role])

    def oldest(self, role: types.Role) -> float | None:
        """Returns when the longest waiting message arrived."""
        with self.changed:
            waiting = self._waiting[role]
            return waiting[0].arrived if waiting else None

    def take(self, role: types.Role, layout: batch.Layout, max_rows: int) -> list[batch.Message]:
        """Returns what is ready, oldest first, as much as fits into `max_rows` rows of every shard."""
        with self.changed:
            taken: list[batch.Message] = []
            counts = np.zeros(layout.num_shards, np.int64)
            for message in self._waiting[role]:
                shard, _ = layout.place(message.slots)
                more = counts + np.bincount(shard, minlength=layout.num_shards)
                if more.max() > max_rows:
                    break
                counts = more
                taken.append(message)
            self._waiting[role] = self._waiting[role][len(taken) :]
            return taken
