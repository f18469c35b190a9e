"""Returns and lengths of the episodes that run in many environments at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Episode(NamedTuple):
    """A finished episode.

    Attributes:
      slot: of its environment.
      total: undiscounted sum of rewards; of two players who move in turn, what the one received who moved first
        (after a random opening, if there is one).
      length: steps.
    """

    slot: int
    total: float
    length: int


class Episodes:
    """Adds up rewards; environments are rows 0 .. num_slots - 1.

    With two players each reward is that of the one who moved, and the other one loses as much.
    """

    def __init__(self, num_slots: int, num_players: int = 1) -> None:
        self._next_sign = 1 if num_players == 1 else -1
        self._sign = np.ones(num_slots)
        self._total = np.zeros(num_slots)
        self._length = np.zeros(num_slots, np.int64)

    def record(self, slots: np.ndarray, reward: np.ndarray, first: np.ndarray, final: np.ndarray) -> list[Episode]:
        """Adds one observation of each of some environments and returns the episodes that it ends.

        Args:
          slots: [B] int, distinct environments.
          reward: [B] received on the way to the observation.
          first: [B] bool, true: first observation of an episode or run.
          final: [B] bool, true: last observation of an episode.
        """
        self._total[slots] = np.where(first, 0.0, self._total[slots] + self._sign[slots] * reward)
        self._sign[slots] = np.where(first, 1, self._next_sign * self._sign[slots])
        self._length[slots] = np.where(first, 0, self._length[slots] + 1)
        return [Episode(int(slot), float(self._total[slot]), int(self._length[slot])) for slot in slots[final]]
