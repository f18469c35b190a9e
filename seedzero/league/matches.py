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


class _Rows(NamedTuple):
    """Whose the shown rows [B] are, which each kind of game says in its own way."""

    home: np.ndarray  # bool, as in `Moves`
    reward: np.ndarray  # what the row adds to `Boards.total`
    side: np.ndarray  # int, as in `Moves`
    own: np.ndarray  # [B, R] bool, true for the home's rows of the game


class _Results(NamedTuple):
    """What matches [B] have come to; `outcome`, `total` and `other` are as in `Moves`."""

    counts: np.ndarray  # bool, true if the match ends and has a result
    unknown: np.ndarray  # bool, true if the match ends without a known result
    outcome: np.ndarray
    total: np.ndarray
    other: np.ndarray
    sums_to_zero: bool  # as in `Boards`


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
        now = self._begin(game[begins])
        running = first | now.live[game, row]
        if self.sides:
            seen = now._of_sides(game, row, reward)
        elif self.has_seats:
            seen = now._of_seats(row, chair, reward)
        else:
            now.rows[slots] += ~first
            seen = now._of_whole_games(slots, reward, always=final | ~running)
        now.begun[game, row] |= running
        now.live[game, row] = running & ~final
        now.total[game, row] = np.where(first, 0.0, now.total[game, row] + seen.reward)
        if not self.sides:
            now.truncated[game[running & truncated & ~terminated]] = True
        ended = _once(game, np.any(now.begun[game], axis=1) & ~np.any(now.live[game], axis=1))
        results = now._results(game, seen.own, ended & ~now.void[game])
        now.begun[game[ended]] = False
        moves = Moves(
            seen.home,
            begins,
            results.counts,
            void | results.unknown,
            seen.side.astype(np.int8),
            results.outcome,
            results.total,
            results.other,
        )
        return dataclasses.replace(now, sums_to_zero=results.sums_to_zero), moves

    def _begin(self, games: np.ndarray) -> Boards:
        """Returns a copy in which new matches begin in the slots of some games."""
        now = Boards(*dataclasses.astuple(self))  # which copies each array
        for array in (now.begun, now.live, now.total, now.truncated, now.void, now.rows):
            array[games] = 0
        now.number[games] += 1
        return now

    def _of_whole_games(self, slots: np.ndarray, reward: np.ndarray, *, always: np.ndarray) -> _Rows:
        """Sides alternate in time, and differ between neighbours. always: [B] bool, true where the home moves."""
        side = (slots + self.number[slots] - 1) % 2
        mine = (self.rows[slots] + side) % 2 == 0
        # The opponent made the move before a row of mine.
        return _Rows(mine | always, np.where(mine, -reward, reward), side, _of_first_row(slots))

    def _of_seats(self, row: np.ndarray, chair: np.ndarray, reward: np.ndarray) -> _Rows:
        """The home has the first row, and the workers deal the chairs."""
        return _Rows(row == 0, reward, np.where(row == 0, chair, 1 - chair), _of_first_row(row))

    def _of_sides(self, game: np.ndarray, row: np.ndarray, reward: np.ndarray) -> _Rows:
        """The home's side alternates as in whole games."""
        side = (game // len(self.sides) + self.number[game] - 1) % 2
        own = np.array(self.sides) == side[:, np.newaxis]
        return _Rows(own[np.arange(len(game)), row], reward, side, own)

    def _results(self, game: np.ndarray, own: np.ndarray, ends: np.ndarray) -> _Results:
        """Returns what the matches of games [B] have come to. ends: [B] bool, true in one row of each that ends."""
        mine, theirs = (self.total[game].mean(axis=1, where=chosen) for chosen in (own, ~own))
        knows_mine, knows_theirs = (np.all(self.begun[game] | ~chosen, axis=1) for chosen in (own, ~own))
        knows_both, is_cut = knows_mine & knows_theirs, self.truncated[game]
        total = np.where(knows_mine, mine, -theirs)
        largest = np.maximum(np.abs(mine), np.abs(theirs))
        is_uneven = knows_both & (np.abs(mine + theirs) > _ROUNDING * (1.0 + largest))
        sums_to_zero = self.sums_to_zero and not np.any(is_uneven & ends & ~is_cut)
        if sums_to_zero:
            other, is_known = -total, knows_mine | knows_theirs
        else:
            other, is_known = np.where(is_uneven, theirs, -total), knows_both
        unknown = ends & self.has_seats & ~is_known
        difference = np.where(other == -total, total, total - other)
        outcome = np.where(is_cut, 0, np.sign(difference)).astype(np.int8)
        return _Results(ends & ~unknown, unknown, outcome, total, other, sums_to_zero)

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


def _of_first_row(rows: np.ndarray) -> np.ndarray:
    """Returns a mask [B, 2] of the first of two rows in each game."""
    return np.tile([True, False], (len(rows), 1))


def _once(game: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Returns a mask [B] of the first chosen row of each game."""
    found = np.zeros_like(chosen)
    places = np.flatnonzero(chosen)
    found[places[np.unique(game[places], return_index=True)[1]]] = True
    return found
