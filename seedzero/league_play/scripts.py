"""The moves of a league's scripted members: uniform moves, and the numbers of bots that workers play."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seedzero.core import opponents
from seedzero.device import batches
from seedzero.loop import seatings

_MOVES = 8
"""Second number of the random keys of moves."""


class Scripts:
    """The hands of scripted members. Uniform moves follow from seed, slot, and number of the slot's such moves."""

    def __init__(self, bots: Sequence[str], seed: int, num_slots: int, num_actions: int) -> None:
        """bots: names of the members that workers move, in the order of `types.Assignment.bots`."""
        self._numbers = {name: number for number, name in enumerate(bots, 1)}
        self._seed, self._num_actions = seed, num_actions
        self._num_moves = np.zeros(num_slots, np.int64)
        self._epoch = 0

    def reset(self, epoch: int) -> None:
        """All environments begin again. epoch: another number each time."""
        self._num_moves[:], self._epoch = 0, epoch

    def hand(self, name: str, joined: batches.Batch, mine: np.ndarray) -> seatings.Hand:
        """Returns a member's hand of rows of a home's messages; mine: [N] bool."""
        if name != opponents.RANDOM:
            return seatings.Hand(mine, bot=self._numbers[name])
        slots, masks = joined.slot[mine], joined.action_mask
        legal = np.ones((len(slots), self._num_actions), bool) if masks is None else masks[mine]
        drawn = [self._drawn(slot, self._num_moves[slot]) for slot in slots.tolist()]
        self._num_moves[slots] += 1
        return seatings.Hand(mine, given=uniform(legal, np.array(drawn)))

    def _drawn(self, slot: int, number: int) -> float:
        """Returns a number from 0 to below 1."""
        key = (self._seed, _MOVES, slot, self._epoch, number)
        return float(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(11)) * 2**-53


def uniform(legal: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Returns legal actions [B] int32, each with the same probability.

    legal: [B, A] bool, at least one in each row. drawn: [B], from 0 to below 1.
    """
    ranks = (drawn * legal.sum(axis=1)).astype(np.int64)
    found: np.ndarray = np.argmax(np.cumsum(legal, axis=1) > ranks[:, np.newaxis], axis=1)
    return found.astype(np.int32)
