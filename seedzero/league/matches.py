"""The course of matches: whole games of two players in turn, one in each slot, and games of two seats, a slot each.

In a whole game's rows since `first`, the row of an even number is the first mover's; rewards belong to the mover of
the row before. Where rows are seats, the home has a game's first row, and the slot of that names the game; a seat's
rewards are its own, and need not sum to zero. Shape letters: S slots, B rows of messages.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

_ROUNDING = 1e-3
"""Of sums of rewards, which are float32 on their way, as a share of their size."""


class Moves(NamedTuple):
    """The meaning of observed rows [B] for their slots' matches.

    `outcome` and `total` are the home player's, `other` is its opponent's; they count where `ended` is true.
    """

    home: np.ndarray  # bool, true: the home player moves, or the row is a whole game's last
    begins: np.ndarray  # bool, true: the row begins a match; one row of a match
    ended: np.ndarray  # bool, true: the row ends a match; one row of a match
    # bool, true: a match of the row is cancelled, because another begins before its end, or a result is unknown
    void: np.ndarray
    side: np.ndarray  # int8, 0: the home made the match's first move
    outcome: np.ndarray  # int8: payoff.WIN, the larger sum, DRAW or LOSS; a truncated match is a draw
    total: np.ndarray  # float64, sum of rewards so far
    other: np.ndarray  # float64, likewise; of a game whose returns sum to zero the exact negative


@dataclasses.dataclass(frozen=True)
class Boards:
    """Matches under way, by the game's slot [S] and the row in it: the home's, and the opponent's.

    A whole game has one.

    A match begins with a row's first observation while no row of its game is live, and ends when none is any more. A
    cancelled match of a game of seats ends in the same way if the game continues, but does not count.
    """

    begun: np.ndarray  # [S, 2] bool, the row was shown in the match
    live: np.ndarray  # [S, 2] bool, and has not ended
    total: np.ndarray  # [S, 2] float64, the rewards so far of the row's seat, or of a whole game's home
    truncated: np.ndarray  # [S] bool, a row was truncated
    void: np.ndarray  # [S] bool, the match does not count
    rows: np.ndarray  # [S] int64, of the newest observation of a whole game since `first`
    number: np.ndarray  # [S] int64, matches that the slot has begun
    has_seats: bool
    sums_to_zero: bool  # no match so far, ended by the game itself, has had returns with another sum

    @classmethod
    def empty(cls, num_slots: int, *, has_seats: bool, sums_to_zero: bool = True) -> Boards:
        pairs, none, zero = np.zeros((num_slots, 2), bool), np.zeros(num_slots, bool), np.zeros(num_slots, np.int64)
        return cls(pairs, pairs, np.zeros((num_slots, 2)), none, none, zero, zero, has_seats, sums_to_zero)

    def advance(
        self,
        slots: np.ndarray,
        *,
        reward: np.ndarray,
        first: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        game: np.ndarray,
        chair: np.ndarray,
    ) -> tuple[Boards, Moves]:
        """Returns the boards after the rows that a step shows of some games, and the rows' meaning.

        A seat that never moves shows no row, so its rewards are unknown: they are the negative of the other's, or the
        match is cancelled once the game is known for other sums.

        Args:
          slots: [B] int, distinct; all shown rows of a game.
          reward: [B] of the row's own seat; of a whole game, of the step to the row, its mover's.
          first: [B] bool, true: first row of a seat, or of a whole game, in a match.
          terminated, truncated: [B] bool, true: likewise, last row; no first one is.
          game: [B] int, the slot of the first row of each row's game; a whole game's own.
          chair: [B] int, 0: the row's seat is the game's first one; of seats alone.
        """
        row, final = np.where(slots == game, 0, 1), terminated | truncated
        void = first & self.live[game, row]
        begins = _once(game, first & (void | ~np.any(self.live[game], axis=1)))
        begun, live, total, cut, lost, rows, number, *_ = dataclasses.astuple(self)  # copies
        for array in (begun, live, total, cut, lost, rows):
            array[game[begins]] = 0
        number[game[begins]] += 1
        running = first | live[game, row]
        if self.has_seats:
            side, home = np.where(row == 0, chair, 1 - chair), row == 0
        else:  # sides take turns, neighbours differ
            rows[slots] += ~first
            side = (slots + number[slots] - 1) % 2
            mine = (rows[slots] + side) % 2 == 0
            home, reward = mine | final | ~running, np.where(mine, -reward, reward)  # the other one moved before mine
        begun[game, row] |= running
        live[game, row] = running & ~final
        total[game, row] = np.where(first, 0.0, total[game, row] + reward)
        cut[game[running & truncated & ~terminated]] = True
        ended = _once(game, np.any(begun[game], axis=1) & ~np.any(live[game], axis=1))
        found = np.where(begun[game, 0], total[game, 0], -total[game, 1])
        both, ends = np.all(begun[game], axis=1), ended & ~lost[game]
        uneven = both & (np.abs(total[game].sum(axis=1)) > _ROUNDING * (1.0 + np.abs(total[game]).max(axis=1)))
        sums_to_zero = self.sums_to_zero and not np.any(uneven & ends & ~cut[game])
        other = np.where(uneven & (not sums_to_zero), total[game, 1], -found)
        unknown = ends & ~both & self.has_seats & (not sums_to_zero)
        begun[game[ended]] = False
        outcome = np.where(cut[game], 0, np.sign(np.where(other == -found, found, found - other))).astype(np.int8)
        moves = Moves(home, begins, ends & ~unknown, void | unknown, side.astype(np.int8), outcome, found, other)
        return Boards(begun, live, total, cut, lost, rows, number, self.has_seats, sums_to_zero), moves

    def lose(self, slots: np.ndarray, *, goes_on: bool = False) -> tuple[Boards, int]:
        """Returns the boards without the matches of slots [B], and the number of such matches; goes_on: of games."""
        begun, live, void = self.begun.copy(), self.live.copy(), self.void.copy()
        is_lost = np.any(live[slots], axis=1)
        num_void = int(np.count_nonzero(is_lost & ~void[slots]))
        if goes_on and self.has_seats:
            void[slots] |= is_lost
        else:
            begun[slots] = live[slots] = False
        return dataclasses.replace(self, begun=begun, live=live, void=void), num_void


def _once(game: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Returns the first chosen row [B] of each game alone."""
    found = np.zeros_like(chosen)
    places = np.flatnonzero(chosen)
    found[places[np.unique(game[places], return_index=True)[1]]] = True
    return found
