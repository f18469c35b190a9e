"""The course of matches: whole games of two players in turn, one in each slot.

In a slot's rows since `first`, the row of an even number is the first mover's; rewards belong to the mover of the row
before. Shape letters: S slots, B rows of messages.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

_NONE = -1


class Moves(NamedTuple):
    """The meaning of observed rows [B] for their slots' matches.

    `outcome` and `total` are the home player's, and count where `ended` is true.
    """

    home: np.ndarray  # bool, true: the home player moves, or the row is a match's last
    ended: np.ndarray  # bool, true: the row ends a match
    void: np.ndarray  # bool, true: the row begins a match before the slot's last one has ended
    side: np.ndarray  # int8, 0: the home made the match's first move
    outcome: np.ndarray  # int8: payoff.WIN, DRAW or LOSS; a truncated match is a draw
    total: np.ndarray  # float64, sum of rewards so far


@dataclasses.dataclass(frozen=True)
class Boards:
    """Matches under way. number: [S] int64, matches that a slot has begun."""

    rows: np.ndarray  # [S] int64, of the newest observation since `first`; -1: no match
    total: np.ndarray  # [S] float64, the home's rewards so far
    number: np.ndarray

    @classmethod
    def empty(cls, num_slots: int) -> Boards:
        """Returns boards without matches."""
        return cls(np.full(num_slots, _NONE, np.int64), np.zeros(num_slots), np.zeros(num_slots, np.int64))

    def side(self, slots: np.ndarray) -> np.ndarray:
        """Returns the home's sides [B] int8 in the slots' newest matches: sides take turns, neighbours differ."""
        side: np.ndarray = ((slots + self.number[slots] - 1) % 2).astype(np.int8)
        return side

    def advance(
        self,
        slots: np.ndarray,
        *,
        reward: np.ndarray,
        first: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> tuple[Boards, Moves]:
        """Returns the boards after one more row of each given slot, and the rows' meaning.

        Args:
          slots: [B] int, distinct.
          reward: [B] of the step to the row, its mover's.
          first: [B] bool, true: first row of a match.
          terminated, truncated: [B] bool, true: last row of a match.
        """
        before, number = self.rows[slots], self.number.copy()
        number[slots] += first
        boards = Boards(self.rows.copy(), self.total.copy(), number)
        side = boards.side(slots)
        running, final = first | (before != _NONE), terminated | truncated
        rows = np.where(first, 0, before + 1)
        sign = np.where((before + side) % 2 == 0, 1.0, -1.0)
        total = np.where(first, 0.0, self.total[slots] + sign * reward)
        boards.rows[slots] = np.where(final | ~running, _NONE, rows)
        boards.total[slots] = total
        outcome = np.where(truncated & ~terminated, 0, np.sign(total)).astype(np.int8)
        home = final | ~running | ((rows + side) % 2 == 0)
        return boards, Moves(home, final & running & ~first, first & (before != _NONE), side, outcome, total)

    def lose(self, slots: np.ndarray) -> tuple[Boards, int]:
        """Returns the boards without the matches of lost or reset slots [B], and the number of such matches."""
        rows = self.rows.copy()
        num_void = int(np.count_nonzero(rows[slots] != _NONE))
        rows[slots] = _NONE
        return dataclasses.replace(self, rows=rows), num_void
