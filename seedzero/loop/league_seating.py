"""The seating of a league: matches of the learning player against itself and its frozen past."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.agents import base
from seedzero.config import config as configs
from seedzero.core import errors, types
from seedzero.device import batch as batches
from seedzero.league import matches, matchmaking
from seedzero.league import payoff as payoffs
from seedzero.league import players as members
from seedzero.loop import pool as pools
from seedzero.loop import seating as seats

_SELF = -1
"""In place of a frozen player's number: the home plays against itself."""
_MODES = {"explore": types.EXPLORE, "sample": types.SAMPLE, "greedy": types.GREEDY}


class LeagueSeating(seats.Seating):
    """A league of one learning player, at home everywhere, and its frozen past: matches of two players in turn.

    A group has an opponent at a time; its slots take it at their next match, so for a match's length a group may have
    two. What a slot meets follows from the run's seed and counts alone, never from the order of arrival.
    """

    def __init__(
        self,
        config: configs.Config,
        num_slots: int,
        pool: pools.ParamsPool,
        digits: Callable[[int], str],
        report: Callable[[str], None],
    ) -> None:
        """digits: of the name of the Nth snapshot, hexadecimal. report: shows the user a line."""
        self._settings, self._seed = config.league, config.run.seed
        self._pool, self._digits, self._report = pool, digits, report
        self._num_slots = num_slots
        self.members = members.Pool()
        self.payoff = payoffs.Payoff()
        self._num_matches = self._num_void = 0
        self._num_sets, self._active = -1, tuple[str, ...]()
        self._frozen_at = 0  # training steps at the newest snapshot, though it may be refused or lost
        self._redraw()
        self.reset()

    def reset(self) -> None:
        self._boards = matches.Boards.empty(self._num_slots)
        self._opponent = np.full(self._num_slots, _SELF)  # place among `members.members`' frozen, `_names`
        self._taken = np.full(self._num_slots, -1)  # number of the group's draw that a slot has taken
        self._drawn: dict[int, tuple[int, str]] = {}  # number and opponent of a group's draw, by its first slot
        self._epoch = self._num_matches
        self._names: list[str] = []

    # ------------------------------------------------------------------------------------ matches

    def deal(self, joined: batches.Joined) -> Sequence[seats.Hand]:
        order, slots = np.argsort(joined.slots), joined.slots
        self._boards, moves = self._boards.advance(
            slots,
            reward=joined.reward,
            first=joined.first,
            terminated=joined.terminated,
            truncated=joined.truncated,
        )
        self._num_void += int(np.count_nonzero(moves.void))
        self.count(
            [
                _match(
                    moves, row, self._names[place] if (place := self._opponent[slots[row]]) != _SELF else members.MAIN
                )
                for row in order[moves.ended[order]].tolist()
            ]
        )
        for row in order[joined.first[order]].tolist():
            group = int(joined.group[row])
            self._opponent[slots[row]] = self._next(int(slots[row]), group, slots[joined.group == group])
        opponent = np.where(moves.home, _SELF, self._opponent[slots])
        hands = []
        for place in np.unique(opponent).tolist():
            params = None if place == _SELF else self._load(self._names[place])
            if params is None and place != _SELF:  # its matches under way are void, and the home goes on
                self.lose(np.flatnonzero(self._opponent == place))
                self._opponent[self._opponent == place] = _SELF
            mode = types.EXPLORE if params is None else _MODES[self._settings.opponents]
            hands.append(seats.Hand(opponent == place, params, mode))
        return hands if len(hands) > 1 else [hands[0]._replace(mine=None)]

    def count(self, ended: Sequence[payoffs.Match]) -> None:
        """As above, and draws the opponents anew where it is time; matches of evaluations leave them."""
        if not ended:
            return
        self.payoff = payoffs.record(self.payoff, ended, decay=self._settings.decay)
        num_training = sum(match.type != payoffs.EVALUATION for match in ended)
        before, self._num_matches = self._num_matches, self._num_matches + num_training
        if before // self._settings.redraw != self._num_matches // self._settings.redraw:
            self._redraw()

    def _redraw(self) -> None:
        self._num_sets += 1
        self._active = matchmaking.active_set(
            self.payoff, self.members, members.MAIN, self._settings, seed=self._seed, number=self._num_sets
        )

    def _next(self, slot: int, group: int, slots: np.ndarray) -> int:
        """Returns the number of a slot's next opponent: the group's, which draws anew once all slots have it."""
        number, name = self._drawn.get(group, (-1, ""))
        if np.all(self._taken[slots] == number):
            number += 1
            size, epoch = len(self._active), self._epoch
            place = matchmaking.turn(seed=self._seed, first_slot=group, epoch=epoch, number=number, size=size)
            name = self._active[place]
            self._drawn[group] = number, name
        self._taken[slot] = number
        if name not in self.members.frozen or self._load(name) is None:
            return _SELF
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)

    def _load(self, name: str) -> base.Params | None:
        """Returns a frozen player's parameters; None: they are lost, and the league goes on without the player."""
        try:
            return self._pool.get(name)
        except errors.CheckpointError as error:
            if name in self.members.frozen:
                self._report(f"the league goes on without player {name}: {error}")
                self.remove(name)
            return None

    def lose(self, slots: np.ndarray) -> None:
        self._boards, num_void = self._boards.lose(slots)
        self._num_void += num_void
        self._taken[slots] = -1

    # ------------------------------------------------------------------------------------ snapshots

    def freezes(self, env_steps: int) -> bool:
        every = self._settings.freeze_every
        return every > 0 and env_steps // every > self._frozen_at // every

    def freeze(self, params: base.Params, *, version: int, env_steps: int) -> str:
        digits = self._digits(self.members.num_frozen)
        self.members, member = self.members.freeze(members.MAIN, digits, version=version, env_steps=env_steps)
        self._frozen_at = env_steps
        self._pool.add(member.name, params)
        self._redraw()
        return member.name

    def remove(self, name: str) -> None:
        self._pool.forget(name)
        self.members = self.members.without(name)

    def frozen(self) -> tuple[str, ...]:
        return self.members.frozen

    # ------------------------------------------------------------------------------------ counters

    def num_matches(self) -> Mapping[str, int]:
        return {**self.payoff.num_matches(), "void": self._num_void}

    def win_rate(self) -> float | None:
        return matchmaking.active_rate(self.payoff, members.MAIN, self._active, self._settings)

    def to_json(self) -> dict[str, Any]:
        return {
            "league": {
                "pool": self.members.to_json(),
                "payoff": self.payoff.to_json(),
                "active": list(self._active),
                "num_sets": self._num_sets,
                "num_void": self._num_void,
            }
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        found = saved["league"]
        self.members = members.Pool.from_json(found["pool"])
        self.payoff = payoffs.Payoff.from_json(found["payoff"])
        self._active, self._num_sets = tuple(found["active"]), found["num_sets"]
        self._num_void, self._frozen_at = found["num_void"], self.members.members[-1].env_steps
        counts = self.payoff.num_matches()
        self._num_matches = counts[payoffs.SELF_PLAY] + counts[payoffs.PAST]
        self.reset()


def _match(moves: matches.Moves, row: int, opponent: str) -> payoffs.Match:
    """Returns the match that ends with a row."""
    kind = payoffs.SELF_PLAY if opponent == members.MAIN else payoffs.PAST
    side, outcome, total = int(moves.side[row]), int(moves.outcome[row]), float(moves.total[row])
    return payoffs.Match(kind, members.MAIN, opponent, side, outcome, total)
