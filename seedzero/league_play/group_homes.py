"""The table of the players at home in groups of environments, which changes as players come and go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seedzero.league import homes, members
from seedzero.loop import seatings


class GroupHomes:
    """The player at home in each slot. Groups are slots one after the other.

    Attributes:
      size: slots of a group.
      table: [S] place of the player at home in each slot, among the learning players.
    """

    def __init__(self, num_slots: int, size: int, pool: members.Pool) -> None:
        self.size = size
        self.table = seatings.homes(num_slots, size, len(pool.learning))
        self._numbers = _numbers(pool)

    @property
    def of_groups(self) -> list[int]:
        """The numbers of the players at home in the groups [G], in the order of their slots."""
        return [self._numbers[place] for place in self.table[:: self.size]]

    def change(self, pool: members.Pool) -> np.ndarray:
        """Deals the groups to other learning players; returns the slots [B] that change their home."""
        before = self.of_groups
        after = homes.deal(before, _numbers(pool))
        self._seat(after, pool)
        return np.flatnonzero(np.repeat(np.not_equal(before, after), self.size)[: len(self.table)])

    def restore(self, of_groups: Sequence[int] | None, pool: members.Pool) -> None:
        """Continues a checkpoint's table; None: of a run whose groups stay. Raises ValueError for a damaged one."""
        found = self.of_groups if of_groups is None else of_groups
        if len(found) != len(self.of_groups) or set(found) - set(_numbers(pool)):
            raise ValueError(f"the homes of groups are {found}; expected {len(self.of_groups)} of {_numbers(pool)}")
        self._seat(found, pool)

    def mine(self) -> list[np.ndarray]:
        """Returns for each learning player its slots, [S] bool."""
        return [self.table == place for place in range(len(self._numbers))]

    def _seat(self, of_groups: Sequence[int], pool: members.Pool) -> None:
        self._numbers = _numbers(pool)
        places = [self._numbers.index(number) for number in of_groups]
        self.table = np.repeat(places, self.size)[: len(self.table)]


def _numbers(pool: members.Pool) -> list[int]:
    return [pool.of(name).number for name in pool.learning]
