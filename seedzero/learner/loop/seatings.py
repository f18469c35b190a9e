"""Seats players: some are at home in the rows of a group of environments, and some move there.

A home's rings and accounting get its rows, and its rate limiter allows the group to act. A mover's parameters act on a
row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.agents import base
from seedzero.core import types
from seedzero.device import batches, states
from seedzero.league import payoffs


class Hand(NamedTuple):
    """The rows of a home's messages that have the same mover."""

    mine: np.ndarray | None = None  # [N] bool; None: all rows
    params: base.Params | None = None  # the mover's parameters; None: the home's
    action_mode: np.int8 = types.EXPLORE  # how to act
    # whether it goes to the home's rings and accounting; if not, it is an opponent's seat, which only keeps its memory
    stored: bool = True
    # Of a scripted mover. The home's parameters then only fill the stored arrays, and do not act if there are none.
    given: np.ndarray | None = None  # [n] int32, the actions of its rows
    bot: int = 0  # number of the worker's bot that chooses them, in `types.Assignment.bots` from 1

    @property
    def is_scripted(self) -> bool:
        """Whether no parameters choose the actions."""
        return self.given is not None or self.bot > 0

    @property
    def own(self) -> bool:
        """Whether the home moves."""
        return self.params is None and not self.is_scripted


def stored(joined: batches.Batch, hands: Sequence[Hand]) -> batches.Batch:
    """Returns the rows that the home's rings and accounting receive."""
    chosen = np.zeros(len(joined.slot), bool)
    for hand in hands:
        if hand.stored:
            chosen[slice(None) if hand.mine is None else hand.mine] = True
    return joined if chosen.all() else joined.those(chosen)


def measured(sides: Sequence[int], slots: np.ndarray) -> np.ndarray:
    """Returns those of an evaluation's slots [E], whole games, whose episodes count: of one side, each in turn."""
    if not sides:
        return slots
    game, row = np.divmod(np.arange(len(slots)), len(sides))
    found: np.ndarray = slots[np.array(sides)[row] == game % 2]
    return found


class Seating:
    """Seats one player, at home everywhere, who moves every row. For the loop's thread."""

    by_seat = False
    """Whether players are at home in seats; then a group has rows of several, and all of them play evaluations."""
    sides: tuple[int, ...] = ()
    """As in `matches.Boards`; in evaluations the player then has one side, and the other one moves at random."""
    random_hand: Callable[[batches.Batch, np.ndarray], Hand]
    """Returns the hand of random moves in some rows, [N] bool; only if there are sides."""

    def home(self, slots: np.ndarray) -> int:
        """Returns the number of the player at home in the group of these slots [E], or -1 for nobody.

        Not for homes by seat.
        """
        return 0

    def rows(self, slots: np.ndarray) -> Mapping[int, np.ndarray]:
        """Returns the slots of each player at home in a message's slots [E], by its number; {} if nobody is."""
        home = self.home(slots)
        return {} if home < 0 else {home: slots}

    def parties(self, messages: Sequence[batches.Message]) -> list[tuple[tuple[int, ...], list[batches.Message]]]:
        """Groups the messages of a tick by their homes, all of which wait for each other's calls."""
        found = dict[tuple[int, ...], list[batches.Message]]()
        for message in messages:
            found.setdefault(tuple(self.rows(message.slots)), []).append(message)
        return sorted(found.items(), key=lambda party: party[0])

    def deal(self, joined: batches.Batch, home: int) -> Sequence[Hand]:
        """Splits a home's rows among its messages into hands; each row is in one of them."""
        return (Hand(),)

    def evaluating(self, joined: batches.Batch, measured: np.ndarray) -> Sequence[tuple[int, Hand]]:
        """Returns the hands of an evaluation, each with its player's number. measured: slots whose episodes count."""
        mine = np.isin(joined.slot, measured)
        if mine.all():
            return ((0, Hand()),)
        others = self.random_hand(joined, ~mine)._replace(stored=False)
        return [(0, hand) for hand in ([Hand(mine), others] if mine.any() else [others])]

    def count(self, ended: Sequence[payoffs.Match]) -> None:
        """Counts finished matches in their order."""

    def lose(self, slots: np.ndarray) -> None:
        """Notes that slots [B] have lost their environments, which cancels their matches."""

    def reset(self) -> None:
        """Notes that all environments restart."""

    def freezes(self, home: int, env_steps: int) -> bool:
        """Returns whether a snapshot of a home is due after this number of its training steps."""
        return False

    def freeze(
        self, home: int, snapshot: states.PlayerSnapshot, *, version: int, env_steps: int, reason: str = ""
    ) -> str:
        """Takes a snapshot of a home on the devices, and returns its name."""
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Continues without a frozen player."""

    def frozen(self) -> tuple[str, ...]:
        """Returns the frozen players' names, for a checkpoint."""
        return ()

    def num_matches(self) -> Mapping[str, int]:
        """Any thread: returns the numbers of finished matches by type; {} without a league."""
        return {}

    def win_rate(self) -> float | None:
        """Any thread: returns the recent win rate against the active frozen players, or None."""
        return None

    def to_json(self) -> dict[str, Any]:
        """Returns the part of a checkpoint's counters."""
        return {}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restores a checkpoint's counters."""


class SeatHomes(Seating):
    """Each seat of all games is at home with one player, which makes its moves.

    A group's slots are whole games, one after the other, so a slot's seat follows from its number. A message waits
    until all of its homes may act, and its reply waits for all of their calls.
    """

    by_seat = True

    def __init__(self, of_seats: Sequence[int]) -> None:
        """of_seats: [S] the number of the player at home in each seat of a game."""
        self._of_seats = np.array(of_seats)

    def table(self, num_slots: int) -> np.ndarray:
        """Returns the number of the player at home in each training slot [num_slots]."""
        return self._homes(np.arange(num_slots))

    def rows(self, slots: np.ndarray) -> Mapping[int, np.ndarray]:
        homes = self._homes(slots)
        return {home: slots[homes == home] for home in np.unique(homes).tolist()}

    def parties(self, messages: Sequence[batches.Message]) -> list[tuple[tuple[int, ...], list[batches.Message]]]:
        homes = {home for message in messages for home in self.rows(message.slots)}
        return [(tuple(sorted(homes)), list(messages))] if messages else []

    def deal(self, joined: batches.Batch, home: int) -> Sequence[Hand]:
        return (Hand(self._homes(joined.slot) == home),)

    def evaluating(self, joined: batches.Batch, measured: np.ndarray) -> Sequence[tuple[int, Hand]]:
        homes: np.ndarray = self._of_seats[joined.task]  # evaluating slots have higher numbers than the others
        return [(home, Hand(homes == home)) for home in np.unique(homes).tolist()]

    def _homes(self, slots: np.ndarray) -> np.ndarray:
        homes: np.ndarray = self._of_seats[slots % len(self._of_seats)]
        return homes
