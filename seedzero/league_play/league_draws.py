"""The opponents of groups: active sets of the learning players, and the groups' turns through them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.config import league_config
from seedzero.league import matchmaking, members, payoffs


@dataclasses.dataclass(eq=False)
class Home:
    """The draws of a learning player."""

    name: str
    active: tuple[str, ...] = ()  # its opponents; itself: self-play
    num_sets: int = -1  # number of the active set
    num_matches: int = 0  # of training, at home here
    number: int = 0  # as of `Member.number`


class Draws:
    """Draws the opponents of slots by the run's seed and counts alone, never by the order of arrival."""

    def __init__(self, settings: league_config.LeagueConfig, seed: int, pool: members.Pool, table: np.ndarray) -> None:
        """table: [S] place of the player at home in each slot, among the learning players."""
        self._settings, self._seed, self._table = settings, seed, table
        self.homes = [Home(name, number=pool.of(name).number) for name in pool.learning]
        self.reset()

    def change(self, pool: members.Pool, table: np.ndarray, moved: np.ndarray) -> None:
        """Continues with other learning players; table: as given before. moved: slots [B] that change their home."""
        known = {home.name: home for home in self.homes}
        self.homes = [known.get(name, Home(name, number=pool.of(name).number)) for name in pool.learning]
        self._table = table
        for slot in moved.tolist():
            self._drawn.pop(slot, None)
        self.release(moved)

    def reset(self) -> None:
        """All environments begin again."""
        self._taken = np.full(len(self._table), -1)  # number of the group's draw that a slot has taken
        self._drawn: dict[int, tuple[int, str]] = {}  # number and opponent of a group's draw, by its first slot
        self._epoch = sum(home.num_matches for home in self.homes)

    def redraw(self, payoff: payoffs.Payoff, pool: members.Pool, homes: Sequence[Home] | None = None) -> None:
        """Draws new active sets of some learning players; None: of all."""
        for home in self.homes if homes is None else homes:
            home.num_sets += 1
            home.active = matchmaking.active_set(
                payoff, pool, home.name, self._settings, seed=self._seed, number=home.num_sets
            )

    def count(self, ended: Sequence[payoffs.Match]) -> list[Home]:
        """Counts finished matches of training; returns the players that need a new active set."""
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
        """Returns a slot's next opponent: the group's, which draws again once all its slots [E] have it.

        can_meet: tells whether the group's worker can play against a player; else the next entry is taken, or, without
        another one, the home itself.
        """
        home, (number, name) = self.homes[self._table[group]], self._drawn.get(group, (-1, ""))
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
        """Takes slots [B] of cancelled matches."""
        self._taken[slots] = -1

    def to_json(self) -> dict[str, Any]:
        """Returns the part of a checkpoint's counters; of several learning players, each one's."""
        first = self.homes[0]
        found = {"active": list(first.active), "num_sets": first.num_sets}
        if self._settings.most_players == 1:
            return found
        return {**found, "homes": [{**dataclasses.asdict(home), "active": list(home.active)} for home in self.homes]}

    def restore(self, saved: Mapping[str, Any], num_matches: int, table: np.ndarray) -> None:
        """Continues a checkpoint's counters. num_matches: of training so far. table: as given before."""
        self._table = table
        first = dict(name=members.MAIN, num_matches=num_matches, active=saved["active"], num_sets=saved["num_sets"])
        homes = enumerate(saved.get("homes", [first]))  # of earlier versions without numbers
        self.homes = [Home(**{"number": at, **home, "active": tuple(home["active"])}) for at, home in homes]
        self.reset()
