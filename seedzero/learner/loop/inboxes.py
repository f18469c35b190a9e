"""Keeps the messages that wait for the device loop; each group of environments has at most one, which bounds them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from seedzero.core import types
from seedzero.device import batches
from seedzero.learner.loop import rosters
from seedzero.transport import messages

Homes: TypeAlias = Callable[[np.ndarray], Mapping[int, np.ndarray]]
"""Returns the slots of each player at home in a message's slots [E], or {} if the group must wait."""


class News(threading.Condition):
    """The one condition that the device loop waits on; every source of work notifies it."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def tell(self) -> None:
        """Any thread: wakes the loop."""
        with self:
            self.number += 1
            self.notify_all()

    def wait_beyond(self, number: int, seconds: float) -> None:
        """Returns once there is more news than `number`, or after a timeout."""
        with self:
            self.wait_for(lambda: self.number != number, min(seconds, threading.TIMEOUT_MAX))


class Waiting(NamedTuple):
    """A waiting message without its content."""

    slots: np.ndarray  # [E] int32, global
    num_envs: int  # rows of the group; more than slots if only some seats of games are shown


class Inbox:
    """Holds messages that wait for the device loop, and the sessions that ended meanwhile."""

    def __init__(self) -> None:
        self.news = News()
        self._waiting: dict[types.Role, list[batches.Message]] = {role: [] for role in types.Role}
        self._ended: list[tuple[np.ndarray, str]] = []

    def step(
        self, find: Callable[[str], rosters.Session | None], clock: Callable[[], float], request: messages.StepRequest
    ) -> None:
        """Takes new observations, as the server's handler. find: returns a living session by its id."""
        with self.news:  # so that the loop cannot end the session in between
            session = find(request.session_id)
            if session is not None:  # else the loop ended it a moment ago, and the worker will hear of it
                slots, now = session.slots[request.group], clock()
                if session.num_seats:
                    self.put(batches.seated(request, slots, now, session.num_seats))
                else:
                    self.put(batches.Message(request, slots, now))

    def put(self, message: batches.Message) -> None:
        """Adds a message and wakes the loop."""
        with self.news:
            self._waiting[message.request.role].append(message)
            self.news.tell()

    def end_session(self, session_id: str, role: types.Role, slots: np.ndarray, reason: str) -> None:
        """Drops the messages of an ended session, but keeps its slots and the ledger's reason for the loop."""
        with self.news:
            self.drop_session(session_id, role)
            self._ended.append((slots, reason))
            self.news.tell()

    def drop_session(self, session_id: str, role: types.Role) -> None:
        """Drops the messages of a session that the loop itself ended."""
        with self.news:
            waiting = self._waiting[role]
            self._waiting[role] = [message for message in waiting if message.request.session_id != session_id]

    def take_ended(self) -> list[tuple[np.ndarray, str]]:
        """Returns slots and reasons of the sessions ended since the last call."""
        with self.news:
            ended, self._ended = self._ended, []
            return ended

    def waiting(self, role: types.Role) -> list[Waiting]:
        """Returns the waiting messages, the oldest first."""
        with self.news:
            return [Waiting(one.slots, one.num_envs) for one in self._waiting[role]]

    def take(self, role: types.Role, layout: batches.Layout, max_rows: int, homes: Homes) -> list[batches.Message]:
        """Takes messages that fit into an acting call of each home, the oldest first; the others keep their places.

        A message of several homes needs room in the calls of all.

        Args:
          max_rows: most rows of a call on each shard.
          homes: finds the homes.
        """
        with self.news:
            taken: list[batches.Message] = []
            left: list[batches.Message] = []
            counts: dict[int, np.ndarray | int] = {}  # rows of each home on each shard
            full = set[int]()
            for message in self._waiting[role]:
                at_home = homes(message.slots)
                if not at_home or not full.isdisjoint(at_home):
                    full.update(at_home)  # else later messages would overtake it
                    left.append(message)
                    continue
                more = {home: counts.get(home, 0) + _rows(slots, layout) for home, slots in at_home.items()}
                if any(np.max(number) > max_rows for number in more.values()):
                    full.update(at_home)
                    left.append(message)
                    continue
                counts |= more
                taken.append(message)
            self._waiting[role] = left
            return taken


def _rows(slots: np.ndarray, layout: batches.Layout) -> np.ndarray | int:
    """Returns the number of slots on each shard; with one shard it is known, and this is called for each message."""
    if layout.num_shards == 1:
        return len(slots)
    shard, _ = layout.place(slots)
    return np.bincount(shard, minlength=layout.num_shards)
