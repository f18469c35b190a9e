"""Defines the record of a loop's call, an observer for loops that nobody watches, and a buffer of newest items."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

# Keeps the newest items of a stream by number, for readers that remember the last number they have seen.
Item = TypeVar("Item")


class Buffer(Generic[Item]):
    """Keeps a limited number and size of items, but always the newest one; not thread-safe."""

    def __init__(self, max_items: int, max_bytes: float = math.inf, *, first: int = 0) -> None:
        """first: number of the first item."""
        self.next = first
        """Number of the next item."""
        self._max_items, self._max_bytes = max_items, max_bytes
        self._kept: collections.deque[tuple[int, Item, int]] = collections.deque()  # number, item, bytes
        self._num_bytes = 0

    def add(self, item: Item, num_bytes: int = 0) -> None:
        """Adds an item of `num_bytes` bytes and drops the oldest ones if necessary."""
        self._kept.append((self.next, item, num_bytes))
        self.next += 1
        self._num_bytes += num_bytes
        while len(self._kept) > 1 and (len(self._kept) > self._max_items or self._num_bytes > self._max_bytes):
            self._num_bytes -= self._kept.popleft()[2]

    def since(self, number: int, until: float = math.inf, *, most_bytes: float = math.inf) -> list[Item]:
        """Returns the kept items with numbers from `number` to `until`, the oldest first.

        most_bytes: limit of their total size; older items are left out.
        """
        found: list[Item] = []
        for place, item, num_bytes in reversed(self._kept):
            if place > until:
                continue
            most_bytes -= num_bytes
            if place < number or most_bytes < 0:
                break
            found.append(item)
        found.reverse()
        return found

    def clear(self) -> None:
        """Drops all items; their numbers are not used again."""
        self._kept.clear()
        self._num_bytes = 0


class Acted(NamedTuple):
    """One part of an acting call: the rows whose home is one player."""

    rows: Any  # `device.batches.Batch` joined from messages, N environments or seats
    messages: Sequence[Any]  # the `device.batches.Message`s with the rows' observations
    actions: np.ndarray | None = None  # [N, ...]; None if no actions follow
    size: int = 0  # rows of its batches, including padding
    age: int = 0  # updates between the acting parameters and the newest ones
    # by slot, the `device.newest_rows.NewestRows` that are being read since the call
    looks: Mapping[int, Any] | None = None


class CallRecord(NamedTuple):
    """A call on the devices that has returned, or a wait of the loop; times are in seconds of the observer's clock."""

    kind: str
    began: float  # when its preparation began
    dispatched: float
    ended: float  # when its results were on the host
    acted: Sequence[Acted] = ()
    held: Sequence[str] = ()  # why the loop waited, as in `scheduler.Wait`

    def to_json(self) -> list[Any]:
        """Returns kind, three times, rows of an acting batch, its size and age, and the reason of a wait."""
        times = (round(time, 6) for time in self[1:4])
        rows, size = sum(len(one.rows.slot) for one in self.acted), sum(one.size for one in self.acted)
        age = self.acted[-1].age if self.acted else None
        return [self.kind, *times, rows, size, age, self._reason() if self.kind == WAIT else ""]

    def _reason(self) -> str:
        if not self.held:
            return "calls on the devices"
        if "acting_held_seconds" in self.held:
            return "acting waits for learning"
        return "learning waits for steps" if "updating_held_seconds" in self.held else "environments"


WAIT = "wait"
"""Kind of a `CallRecord` that is a wait instead of a call."""


class Observer:
    """Receives the calls of the device loop. This base class keeps nothing."""

    def clock(self) -> float:
        """Returns the time in seconds."""
        return 0.0

    def look(self, slots: np.ndarray, place: Any) -> Mapping[int, Any] | None:
        """Loop's thread, after acting for slots [N] of a `loop.places.Place`: begins to read rows of watched rings."""

    def see(self, acted: Acted) -> None:
        """Loop's thread: receives rows that no call follows, at the end of an evaluation."""

    def note(self, call: CallRecord) -> None:
        """Any thread: receives calls in the order in which they end."""


NOBODY = Observer()
