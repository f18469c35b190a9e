"""Keeps who meets whom: the matches in progress, and the opponent in each game."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from seedzero.device import batches
from seedzero.league import matches

_SELF = -1
"""Takes the place of an opponent's number if the home plays against itself."""
_LOST = -2
"""Takes the place of an opponent's number if the match is cancelled; the home then makes all moves until it ends."""


class Mover(NamedTuple):
    """The rows of a batch that a player moves."""

    mine: np.ndarray  # [B] bool
    opponent: str  # its name; "" for the home, also in the place of a lost opponent
    is_home: bool  # whether the home moves for itself


class Meetings:
    """The matches in progress by their games' slots [S]."""

    def __init__(self, boards: matches.Boards, report: Callable[[str], None]) -> None:
        """boards: without matches. report: shows the user a message."""
        self._boards, self._report = boards, report
        self._opponent = np.full(len(boards.number), _SELF)  # index in `_names` of each game's opponent
        self._names: list[str] = []

    def follow(self, joined: batches.Batch) -> matches.Moves:
        """Follows the matches through a batch, and returns what its rows mean."""
        summed_to_zero = self._boards.sums_to_zero
        self._boards, moves = self._boards.advance(
            joined.slot,
            reward=joined.reward,
            first=joined.first,
            terminated=joined.terminated,
            truncated=joined.truncated,
            game=joined.game,
            chair=joined.task,
        )
        if summed_to_zero and not self._boards.sums_to_zero:
            self._report("league: returns of this game do not sum to zero; the own return of each side counts")
        return moves

    def begin(self, game: int) -> None:
        """Begins a match of the home against itself."""
        self._opponent[game] = _SELF

    def join(self, game: int, opponent: str) -> None:
        """Makes another player the home's opponent in a match that begins."""
        if opponent not in self._names:
            self._names.append(opponent)
        self._opponent[game] = self._names.index(opponent)

    def opponent(self, game: int) -> str:
        """Returns the opponent in a game, or "" if the home plays against itself."""
        place = self._opponent[game]
        return "" if place == _SELF else self._names[place]

    def movers(self, joined: batches.Batch, moves: matches.Moves) -> Iterator[Mover]:
        """Yields the movers of a batch, the home first."""
        movers = np.where(moves.home, _SELF, self._opponent[joined.game])
        for place in sorted(set(movers.tolist())):
            yield Mover(movers == place, self._names[place] if place >= 0 else "", place == _SELF)

    def lose(self, slots: np.ndarray, *, goes_on: bool) -> int:
        """Cancels the matches in slots [B] and returns their number. goes_on: as in `matches.Boards.lose`."""
        self._boards, num_void = self._boards.lose(slots, goes_on=goes_on)
        return num_void

    def free(self, name: str) -> np.ndarray:
        """Removes a player as opponent and returns the slots of games that had it."""
        number = self._names.index(name) if name in self._names else len(self._names)
        slots = np.flatnonzero(self._opponent == number)
        self._opponent[slots] = _LOST
        return slots
