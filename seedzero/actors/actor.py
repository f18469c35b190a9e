"""Actors, which choose actions for rows of environments and remember for them.

Other actors are saved agents (`saved_actors`) and policy servers (`remote_players`). Shape letters: E rows.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from seedzero.core import types


class Actor(Protocol):
    """Acts for E rows of environments, and remembers for them."""

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        """Returns the actions, [E] int32 or [E, D] float32. Rows that the step does not show keep their memory.

        first: [E] bool, true at an episode's first observation.
        """


class RandomActor:
    """Draws legal actions, all equally likely."""

    def __init__(self, num_actions: int, seed: int) -> None:
        self._num_actions, self._generator = num_actions, np.random.default_rng(seed)

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        """Returns the actions, [E] int32, like `Actor.act`."""
        drawn = self._generator.random((len(first), self._num_actions))
        best = drawn if step.action_mask is None else np.where(step.action_mask, drawn, -1.0)
        found: np.ndarray = best.argmax(axis=1).astype(np.int32)
        return found
