"""Returns and lengths of concurrent episodes in many environments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Episode(NamedTuple):
    """A finished episode.

    Attributes:
      slot: of its environment.
      total: undiscounted sum of rewards; in games of two players, the sum of the first mover (the first one after a
        random opening, if there is one).
      length: steps.
    """

    slot: int
    total: float
    length: int


class Episodes:
    """Sums rewards; environments are rows 0 .. num_slots - 1.

    With two players each reward is the mover's, and the other player loses as much.
    """

    def __init__(self, num_slots: int, num_players: int = 1) -> None:
        self._next_sign = 1 if num_players == 1 else -1
        self._sign = np.ones(num_slots)
        self._total = np.zeros(num_slots)
        self._length = np.zeros(num_slots, np.int64)

    def record(self, slots: np.ndarray, reward: np.ndarray, first: np.ndarray, final: np.ndarray) -> list[Episode]:
        """Adds one observation of each given environment and returns the finished episodes.

        Args:
          slots: [B] int, distinct environments.
          reward: [B] of the step to the observation.
          first: [B] bool, true: first observation of an episode or session.
          final: [B] bool, true: last observation of an episode.
        """
        self._total[slots] = np.where(first, 0.0, self._total[slots] + self._sign[slots] * reward)
        self._sign[slots] = np.where(first, 1, self._next_sign * self._sign[slots])
        self._length[slots] = np.where(first, 0, self._length[slots] + 1)
        return [Episode(int(slot), float(self._total[slot]), int(self._length[slot])) for slot in slots[final]]
