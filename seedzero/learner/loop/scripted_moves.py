"""Makes moves that no network chooses: random moves, and moves of bots that workers play.

A league's scripted members move like this. A bot's worker reports its action with the next observation; then the row
before it, which the ring holds with the network's action, gets the action that was played.

Shape letters: S training slots, N rows of a home's messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seedzero.device import batches
from seedzero.learner.loop import seatings, ticks

_CHOSEN, _ASKED = -1, -2
"""Instead of an action: a network chose it; a bot of the worker was asked for it."""


class ScriptedMoves:
    """The actions of slots' newest rows that no network chose. For the loop's thread."""

    def __init__(self, num_slots: int) -> None:
        self._given = np.full(num_slots, _CHOSEN, np.int32)

    def settle(self, joined: batches.Batch, hands: Sequence[seatings.Hand]) -> batches.Batch:
        """Returns rows with the actions that led to them, if no network chose these, and notes the hands' actions."""
        given = np.where(joined.first, _CHOSEN, self._given[joined.slot])
        told = _CHOSEN if joined.played is None else joined.played
        self._given[joined.slot] = _CHOSEN
        for hand in hands:
            if hand.is_scripted:
                slots = joined.slot if hand.mine is None else joined.slot[hand.mine]
                self._given[slots] = _ASKED if hand.given is None else hand.given
        return joined._replace(played=np.where(given == _ASKED, told, given).astype(np.int32))


def bots(hands: Sequence[seatings.Hand], final: np.ndarray) -> np.ndarray | None:
    """Returns the number of the bot that moves each row, [N] uint8, 0 for none, as in a last row.

    None if there are no bots.

    final: [N] bool, true: the last observation of an episode.
    """
    found = np.zeros(len(final), np.uint8)
    for hand in hands:
        if hand.bot:
            found[slice(None) if hand.mine is None else hand.mine] = hand.bot
    found[final] = 0
    return found if found.any() else None


def acted(hand: seatings.Hand, num_rows: int) -> ticks.ActingCall:
    """Returns the actions of a scripted hand, whose rows nobody stores, without a call; 0 for a worker's bot.

    num_rows: of its home's messages.
    """
    size = num_rows if hand.mine is None else np.count_nonzero(hand.mine)
    given = np.zeros(size, np.int32) if hand.given is None else hand.given
    return ticks.ActingCall(given, np.arange(size), hand.mine)
