"""Records which player is at home in each group of environments, and draws the groups' opponents."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.config import league_config
from seedzero.core import opponents
from seedzero.league import homes, matchmaking, members, payoffs

# Records which player is at home in each group of environments, also while players come and go.
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
        """places: [S] as in `setups.places_table`; None for a single place.

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


@dataclasses.dataclass(eq=False)
class Home:
    """A learning player's draws."""

    name: str
    active: tuple[str, ...] = ()  # its opponents, where the player itself means self-play
    num_sets: int = -1  # number of its active set
    num_matches: int = 0  # training matches at home
    number: int = 0  # as in `Member.number`


class Draws:
    """Draws opponents from the run's seed and counts alone, so that the order of messages does not matter."""

    def __init__(self, settings: league_config.LeagueConfig, seed: int, pool: members.Pool, table: np.ndarray) -> None:
        """table: [S] index among the learning players of the one at home in each slot."""
        self._settings, self._seed, self._table = settings, seed, table
        self.homes = [Home(name, number=pool.of(name).number) for name in pool.learning]
        self.reset()

    def change(self, pool: members.Pool, table: np.ndarray, moved: np.ndarray) -> None:
        """Continues after the learning players have changed.

        table: as in `__init__`. moved: slots [B] that change their home.
        """
        known = {home.name: home for home in self.homes}
        self.homes = [known.get(name, Home(name, number=pool.of(name).number)) for name in pool.learning]
        self._table = table
        for slot in moved.tolist():
            self._drawn.pop(slot, None)
        self.release(moved)

    def reset(self) -> None:
        """Begins again, because all environments do."""
        self._taken = np.full(len(self._table), -1)  # number of the group's draw that each slot has taken
        # number and opponent of each draw, by the group's first slot or, against scripted members alone, by the slot
        self._drawn: dict[int, tuple[int, str]] = {}
        self._epoch = sum(home.num_matches for home in self.homes)

    def redraw(self, payoff: payoffs.Payoff, pool: members.Pool, homes: Sequence[Home] | None = None) -> None:
        """Draws new active sets for some learning players, or for all if None."""
        for home in self.homes if homes is None else homes:
            home.num_sets += 1
            home.active = matchmaking.active_set(
                payoff, pool, home.name, self._settings, seed=self._seed, number=home.num_sets
            )

    def count(self, ended: Sequence[payoffs.Match]) -> list[Home]:
        """Counts finished training matches, and returns the players that need a new active set."""
        due = []
        for home in self.homes:
            before = home.num_matches // self._settings.redraw
            home.num_matches += sum(match.player == home.name for match in ended if match.type != payoffs.EVALUATION)
            if before != home.num_matches // self._settings.redraw:
                due.append(home)
        return due

    def next(
        self, slot: int, group: int, slots: np.ndarray, can_meet: Callable[[str], bool] = lambda name: True
    ) -> str:
        """Returns a slot's next opponent: its group's, which is drawn again once all its slots [E] have met it.

        Scripted members need no pass through a network, so against them alone each slot has draws of its own.

        can_meet: whether the group's worker can play against a player. If not, the next entry is taken, or the home
        itself if no entry is possible.
        """
        home = self.homes[self._table[group]]
        if all(map(opponents.is_member, home.active)):
            group, slots = slot, np.array([slot])
        number, name = self._drawn.get(group, (-1, ""))
        if np.all(self._taken[slots] == number) or not can_meet(name):
            size = len(home.active)
            key = dict(seed=self._seed, first_slot=group, epoch=self._epoch, size=size, home=home.number)
            for _ in range(size):
                number += 1
                name = home.active[matchmaking.turn(number=number, **key)]
                if can_meet(name):
                    break
            else:
                name = home.name
            self._drawn[group] = number, name
        self._taken[slot] = number
        return name

    def release(self, slots: np.ndarray) -> None:
        """Frees the slots [B] of cancelled matches."""
        self._taken[slots] = -1

    def to_json(self) -> dict[str, Any]:
        """Returns the draws' part of a checkpoint's counters, with an entry for each player if several may learn."""
        first = self.homes[0]
        found = {"active": list(first.active), "num_sets": first.num_sets}
        if self._settings.most_players == 1:
            return found
        return {**found, "homes": [{**dataclasses.asdict(home), "active": list(home.active)} for home in self.homes]}

    def restore(self, saved: Mapping[str, Any], num_matches: int, table: np.ndarray) -> None:
        """Restores a checkpoint's counters. num_matches: training matches so far. table: as in `__init__`."""
        self._table = table
        first = dict(name=members.MAIN, num_matches=num_matches, active=saved["active"], num_sets=saved["num_sets"])
        homes = saved.get("homes", [first])
        self.homes = [Home(**{**home, "active": tuple(home["active"])}) for home in homes]
        self.reset()
