"""Keeps the newest items of a stream by number, for readers that remember the last number they have seen."""

from __future__ import annotations

import collections
import math
from typing import Generic, TypeVar

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
