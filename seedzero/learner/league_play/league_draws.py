"""Draws the opponents of groups: the active sets of learning players, and the groups' turns through them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.config import league_config
from seedzero.core import opponents
from seedzero.league import matchmaking, members, payoffs


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
