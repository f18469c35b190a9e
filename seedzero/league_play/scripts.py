"""Makes the moves of a league's scripted members: uniformly random ones, and those of bots that workers play."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seedzero.core import opponents
from seedzero.device import batches
from seedzero.league import matchmaking
from seedzero.loop import seatings

_MOVES = 8
"""Second number of the random keys for moves."""


class Scripts:
    """Returns the hands of scripted members. Random moves depend on the seed, the slot, and its earlier such moves."""

    def __init__(self, bots: Sequence[str], seed: int, num_slots: int, num_actions: int) -> None:
        """bots: names of the members that workers play, in the order of `types.Assignment.bots`."""
        self._numbers = {name: number for number, name in enumerate(bots, 1)}
        self._seed, self._num_actions = seed, num_actions
        self._num_moves = np.zeros(num_slots, np.int64)
        self._epoch = 0

    def reset(self, epoch: int) -> None:
        """Begins again, because all environments do. epoch: a different number each time."""
        self._num_moves[:], self._epoch = 0, epoch

    def hand(self, name: str, joined: batches.Batch, mine: np.ndarray) -> seatings.Hand:
        """Returns a member's hand for rows of a home's messages. mine: [N] bool."""
        if name != opponents.RANDOM:
            return seatings.Hand(mine, bot=self._numbers[name])
        slots, masks = joined.slot[mine], joined.action_mask
        legal = np.ones((len(slots), self._num_actions), bool) if masks is None else masks[mine]
        keys = ((self._seed, _MOVES, slot, self._epoch, int(self._num_moves[slot])) for slot in slots.tolist())
        drawn = [matchmaking.uniform(*key)[0] for key in keys]
        self._num_moves[slots] += 1
        return seatings.Hand(mine, given=uniform(legal, np.array(drawn)))


def uniform(legal: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Returns uniformly random legal actions [B] int32.

    legal: [B, A] bool, with at least one true value in each row. drawn: [B], random numbers in [0, 1).
    """
    ranks = (drawn * legal.sum(axis=1)).astype(np.int64)
    found: np.ndarray = np.argmax(np.cumsum(legal, axis=1) > ranks[:, np.newaxis], axis=1)
    return found.astype(np.int32)
