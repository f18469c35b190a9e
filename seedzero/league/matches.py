"""The course of matches: whole games of two players in turn, one in each slot, and games of two seats, a slot each.

In a whole game's rows since `first`, the row of an even number is the first mover's; rewards belong to the mover of
the row before. Where rows are seats, the home has a game's first row, and the slot of that names the game; a seat's
rewards are its own. Shape letters: S slots, B rows of messages.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from seedzero.core import errors

_ROUNDING = 1e-3
"""Of sums of rewards, which are float32 on their way, as a share of their size."""


class Moves(NamedTuple):
    """The meaning of observed rows [B] for their slots' matches.

    `outcome` and `total` are the home player's, and count where `ended` is true.
    """

    home: np.ndarray  # bool, true: the home player moves, or the row is a whole game's last
    begins: np.ndarray  # bool, true: the row begins a match; one row of a match
    ended: np.ndarray  # bool, true: the row ends a match; one row of a match
    void: np.ndarray  # bool, true: the row begins a match before the last one has ended
    side: np.ndarray  # int8, 0: the home made the match's first move
    outcome: np.ndarray  # int8: payoff.WIN, DRAW or LOSS; a truncated match is a draw
    total: np.ndarray  # float64, sum of rewards so far


@dataclasses.dataclass(frozen=True)
class Boards:
    """Matches under way, by the game's slot [S] and the row in it: the home's, the other one's; a whole game has one.

    A match begins with a row's first observation while no row of its game is live, and ends when none is any more. So
    does a void one of a game of seats that goes on; it does not count.
    """

    begun: np.ndarray  # [S, 2] bool, the row was shown in the match
    live: np.ndarray  # [S, 2] bool, and has not ended
    total: np.ndarray  # [S, 2] float64, the rewards so far of the row's seat, or of a whole game's home
    truncated: np.ndarray  # [S] bool, a row was truncated
    void: np.ndarray  # [S] bool, the match does not count
    rows: np.ndarray  # [S] int64, of the newest observation of a whole game since `first`
    number: np.ndarray  # [S] int64, matches that the slot has begun
    has_seats: bool

    @classmethod
    def empty(cls, num_slots: int, *, has_seats: bool) -> Boards:
        pairs, none, zero = np.zeros((num_slots, 2), bool), np.zeros(num_slots, bool), np.zeros(num_slots, np.int64)
        return cls(pairs, pairs, np.zeros((num_slots, 2)), none, none, zero, zero, has_seats)

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

        A match in which the home never moved has the negative of the other's rewards. Raises EnvironmentFailure for
        rewards of both that do not sum to zero: a win of one side counts as a loss of the other.

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
        begun, live, total, cut, lost, rows, number, _ = arrays = dataclasses.astuple(self)  # copies
        for array in arrays[:-2]:
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
        outcome = np.where(cut[game], 0, np.sign(found)).astype(np.int8)
        counted = game[ended & ~lost[game] & ~cut[game] & np.all(begun[game], axis=1)]
        _check_sums(total[counted])
        begun[game[ended]] = False
        ended &= ~lost[game]
        return Boards(*arrays), Moves(home, begins, ended, void, side.astype(np.int8), outcome, found)

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


def _check_sums(total: np.ndarray) -> None:
    """Raises EnvironmentFailure for rewards of matches [N, 2] that do not sum to zero, but for rounding."""
    wrong = np.abs(total.sum(axis=1)) > _ROUNDING * (1.0 + np.abs(total).max(axis=1, initial=0.0))
    if np.any(wrong):
        one, other = total[np.argmax(wrong)].tolist()
        raise errors.EnvironmentFailure(
            f"a match ended with the rewards {one:g} and {other:g} of its seats; expected a sum of 0, since a league "
            "counts a win of one side as a loss of the other; train such a game without a league "
            "(--league.freeze_every=0 --league.builder=past), in a new run directory"
        )


def _once(game: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Returns the first chosen row [B] of each game alone."""
    found = np.zeros_like(chosen)
    places = np.flatnonzero(chosen)
    found[places[np.unique(game[places], return_index=True)[1]]] = True
    return found
