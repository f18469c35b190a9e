"""Records which player is at home in each group of environments, also while players come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from seedzero.league import homes, members

NOBODY = -1
"""The home, in tables, of groups whose place has no learning player yet."""


class GroupHomes:
    """The player at home in each slot; a group's slots follow one another.

    Attributes:
      size: number of slots in a group.
      table: [S] index among the learning players of the one at home in each slot.
      where: each player's place, by number; groups never change their place.
    """

    def __init__(
        self,
        num_slots: int,
        size: int,
        pool: members.Pool,
        places: np.ndarray | None = None,
        where: Mapping[int, int] | None = None,
    ) -> None:
        """places: [S] as in `placements.table`; None for a single place.

        where: None: players are dealt to places in turn.
        """
        self.size, self._num_slots = size, num_slots
        self._places = (np.zeros(num_slots, int) if places is None else places)[::size]  # place of each group
        num_places = int(self._places.max()) + 1
        in_turn = {number: at % num_places for at, number in enumerate(_numbers(pool))}
        self.where = in_turn if where is None else dict(where)
        self._begin(pool)

    @property
    def of_groups(self) -> list[int]:
        """Numbers of the players at home in the groups [G], in the order of their slots."""
        return [NOBODY if at == NOBODY else self._numbers[at] for at in self.table[:: self.size]]

    def change(self, pool: members.Pool) -> np.ndarray:
        """Deals the groups again after the learning players have changed.

        Returns the slots [B] that change their home.
        """
        before = self.of_groups
        after, learning = list(before), _numbers(pool)
        for place, groups in self._by_place():
            here = [number for number in learning if self.where.get(number, 0) == place]
            dealt = homes.deal([before[group] for group in groups], here) if here else [NOBODY] * len(groups)
            for group, home in zip(groups, dealt, strict=True):
                after[group] = home
        self._seat(after, pool)
        return np.flatnonzero(np.repeat(np.not_equal(before, after), self.size)[: self._num_slots])

    def restore(self, of_groups: Sequence[int] | None, pool: members.Pool) -> None:
        """Restores a checkpoint's table, or None from a run whose groups never move.

        Raises ValueError if it is damaged.

        If the places have changed, groups are dealt to the players in turn.
        """
        self._begin(pool)
        if of_groups is None:
            return
        known = {*_numbers(pool), NOBODY}  # on other devices, a place may have had no player
        if len(of_groups) != len(self._places) or set(of_groups) - known:
            raise ValueError(f"the homes of groups are {of_groups}; expected {len(self._places)} of {sorted(known)}")
        taken = {self.where.get(number, 0) for number in _numbers(pool)}
        places = zip(of_groups, self._places.tolist(), strict=True)
        if all(place not in taken if home == NOBODY else self.where.get(home, 0) == place for home, place in places):
            self._seat(of_groups, pool)

    def mine(self) -> list[np.ndarray]:
        """Returns the slots of each learning player as masks [S] bool."""
        return [self.table == at for at in range(len(self._numbers))]

    def _by_place(self) -> list[tuple[int, list[int]]]:
        """Returns each place with its groups."""
        return [(place, np.flatnonzero(self._places == place).tolist()) for place in range(self._places.max() + 1)]

    def _begin(self, pool: members.Pool) -> None:
        """Deals each place's groups to its players in turn."""
        found = [NOBODY] * len(self._places)
        for place, groups in self._by_place():
            here = [number for number in _numbers(pool) if self.where.get(number, 0) == place]
            for turn, group in enumerate(groups if here else []):
                found[group] = here[turn % len(here)]
        self._seat(found, pool)

    def _seat(self, of_groups: Sequence[int], pool: members.Pool) -> None:
        self._numbers = _numbers(pool)
        found = [NOBODY if number == NOBODY else self._numbers.index(number) for number in of_groups]
        self.table = np.repeat(found, self.size)[: self._num_slots]


def _numbers(pool: members.Pool) -> list[int]:
    return [pool.of(name).number for name in pool.learning]
