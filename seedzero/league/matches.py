"""Follows matches: whole games of two players in turn, one in each slot, or games of seats with a slot each.

Since `first`, a whole game's rows of even number are the first mover's; a reward belongs to the mover of the row
before. If rows are seats, the slot of a game's first row identifies the game; each seat has its own rewards, which
need not sum to zero. Of two seats, which swap chairs from game to game, the home has the first row. Agents, which
keep their chairs, belong to two sides, and the home has all rows of one, each in turn; a side's return is the mean of
its agents' returns.

Shape letters: S slots, B rows of messages, R rows of a game (2 in whole games).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

_ROUNDING = 1e-3
"""Rounding error of sums of rewards, which are float32 before they are added, relative to their size."""


class Moves(NamedTuple):
    """What observed rows [B] mean for the matches of their slots.

    `outcome` and `total` are the home player's, and `other` is its opponent's; they are valid where `ended` is true.
    """

    home: np.ndarray  # bool, true if the home player moves, or if the row is the last of a whole game
    begins: np.ndarray  # bool, true in one row of each match that begins
    ended: np.ndarray  # bool, true in one row of each match that ends
    # bool, true if a match is cancelled, because another one begins before it ends, or its result is unknown
    void: np.ndarray
    side: np.ndarray  # int8, 0 if the home made the match's first move
    outcome: np.ndarray  # int8, payoffs.WIN (the larger sum), DRAW or LOSS; a truncated match is a draw
    total: np.ndarray  # float64, the home's rewards so far
    other: np.ndarray  # float64, the opponent's rewards; exactly -total if returns sum to zero


@dataclasses.dataclass(frozen=True)
class Boards:
    """The matches in progress, by the game's slot [S] and row in the game.

    A whole game has only one row. Of two seats the first row is the home's, and the second one the opponent's.

    A match begins with a row's first observation while no row of its game is live, and ends when no row is live any
    more. In games of seats, a cancelled match whose game continues ends in the same way, but does not count.
    """

    begun: np.ndarray  # [S, R] bool, true if the row was shown in this match
    live: np.ndarray  # [S, R] bool, true if the row was shown and has not ended
    total: np.ndarray  # [S, R] float64, rewards so far of the row's seat, or of a whole game's home
    truncated: np.ndarray  # [S] bool, true if a row was truncated
    void: np.ndarray  # [S] bool, true if the match does not count
    rows: np.ndarray  # [S] int64, number of a whole game's newest observation since `first`
    number: np.ndarray  # [S] int64, number of matches that the slot has begun
    has_seats: bool
    sums_to_zero: bool  # whether the returns of every match that the game itself ended have summed to zero so far
    sides: tuple[int, ...] = ()  # [R] 0 or 1 for each agent; (): seats swap chairs, or there are none

    @classmethod
    def empty(
        cls, num_slots: int, *, has_seats: bool, sums_to_zero: bool = True, sides: tuple[int, ...] = ()
    ) -> Boards:
        shape = num_slots, len(sides) or 2
        rows, none, zero = np.zeros(shape, bool), np.zeros(num_slots, bool), np.zeros(num_slots, np.int64)
        return cls(rows, rows, np.zeros(shape), none, none, zero, zero, has_seats, sums_to_zero, sides)

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
        """Returns the boards after a step has shown rows of some games, and what the rows mean.

        A seat that never moves shows no row, so its rewards are unknown. They are taken as the negative of the other
        side's; once the game is known to have other sums, or if neither side's are known, the match is cancelled
        instead. A truncated match is a draw, but not between sides of agents, whose environments end by time.

        Args:
          slots: [B] int, distinct; all rows of a game that are shown.
          reward: [B] reward of the row's seat, or in a whole game, of the step's mover.
          first: [B] bool, true at the first row of a seat, or of a whole game, in a match.
          terminated, truncated: [B] bool, true at the last row, which is never a first one.
          game: [B] int, slot of the first row in each row's game; in a whole game, the row's own slot.
          chair: [B] int, 0 if the row's seat is the game's first one; only used for seats.
        """
        row = chair if self.sides else np.where(slots == game, 0, 1)
        final = terminated | truncated
        void = first & self.live[game, row]
        begins = _once(game, first & (void | ~np.any(self.live[game], axis=1)))
        begun, live, total, cut, lost, rows, number, *_ = dataclasses.astuple(self)  # copied by `astuple`
        for array in (begun, live, total, cut, lost, rows):
            array[game[begins]] = 0
        number[game[begins]] += 1
        running = first | live[game, row]
        own = np.broadcast_to(np.array([True, False]), (len(game), 2))  # [B, R] the home's rows of each game
        if self.sides:  # the home's side alternates likewise
            side = (game // len(self.sides) + number[game] - 1) % 2
            own = np.array(self.sides) == side[:, np.newaxis]
            home = own[np.arange(len(game)), row]
        elif self.has_seats:
            side, home = np.where(row == 0, chair, 1 - chair), row == 0
        else:  # sides alternate in time, and differ between neighbours
            rows[slots] += ~first
            side = (slots + number[slots] - 1) % 2
            mine = (rows[slots] + side) % 2 == 0
            # the opponent made the move before a row of mine
            home, reward = mine | final | ~running, np.where(mine, -reward, reward)
        begun[game, row] |= running
        live[game, row] = running & ~final
        total[game, row] = np.where(first, 0.0, total[game, row] + reward)
        if not self.sides:
            cut[game[running & truncated & ~terminated]] = True
        ended = _once(game, np.any(begun[game], axis=1) & ~np.any(live[game], axis=1))
        mine, theirs = (total[game].mean(axis=1, where=chosen) for chosen in (own, ~own))
        knows_mine, knows_theirs = (np.all(begun[game] | ~chosen, axis=1) for chosen in (own, ~own))
        found = np.where(knows_mine, mine, -theirs)
        both, ends = knows_mine & knows_theirs, ended & ~lost[game]
        uneven = both & (np.abs(mine + theirs) > _ROUNDING * (1.0 + np.maximum(np.abs(mine), np.abs(theirs))))
        sums_to_zero = self.sums_to_zero and not np.any(uneven & ends & ~cut[game])
        other = np.where(uneven & (not sums_to_zero), theirs, -found)
        unknown = ends & self.has_seats & np.where(knows_mine | knows_theirs, ~both & (not sums_to_zero), True)
        begun[game[ended]] = False
        outcome = np.where(cut[game], 0, np.sign(np.where(other == -found, found, found - other))).astype(np.int8)
        moves = Moves(home, begins, ends & ~unknown, void | unknown, side.astype(np.int8), outcome, found, other)
        now = Boards(begun, live, total, cut, lost, rows, number, self.has_seats, sums_to_zero, self.sides)
        return now, moves

    def lose(self, slots: np.ndarray, *, goes_on: bool = False) -> tuple[Boards, int]:
        """Returns the boards without the matches of slots [B], and the number of these matches.

        goes_on: whether their games continue.
        """
        begun, live, void = self.begun.copy(), self.live.copy(), self.void.copy()
        is_lost = np.any(live[slots], axis=1)
        num_void = int(np.count_nonzero(is_lost & ~void[slots]))
        if goes_on and self.has_seats:
            void[slots] |= is_lost
        else:
            begun[slots] = live[slots] = False
        return dataclasses.replace(self, begun=begun, live=live, void=void), num_void


def _once(game: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Returns a mask [B] of the first chosen row of each game."""
    found = np.zeros_like(chosen)
    places = np.flatnonzero(chosen)
    found[places[np.unique(game[places], return_index=True)[1]]] = True
    return found
