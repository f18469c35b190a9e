"""Actors, which choose actions for rows of environments and remember for them.

Other actors are saved agents (`saved_actors`) and policy servers (`remote_players`). Shape letters: E rows.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from seedzero.core import types
from seedzero.envs import bots, turn_games


class Actor(Protocol):
    """Acts for E rows of environments, and remembers for them."""

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        """Returns the actions, [E] int32 or [E, D] float32. Rows that the step does not show keep their memory.

        first: [E] bool, true at an episode's first observation.
        """


def shown(step: types.EnvStep) -> np.ndarray:
    """Returns [E] bool, true where a row has a new observation."""
    return np.ones(len(step.reward), bool) if step.shown is None else step.shown


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


class BotActor:
    """Lets a bot act, which looks at the positions of rows instead of their observations."""

    def __init__(self, bot: bots.Bot, positions: turn_games.Positions) -> None:
        """positions: of the rows that it acts for."""
        self._bot, self._positions = bot, positions

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        """Returns the actions, [E] int32, like `Actor.act`."""
        actions = np.zeros(len(first), np.int32)
        for row in np.flatnonzero(shown(step)).tolist():
            actions[row] = self._bot(self._positions.states[row])
        return actions


class Forgetful:
    """Shows another actor every position as the first of an episode, and at most `size` in one call."""

    def __init__(self, actor: Actor, size: int) -> None:
        """actor: for `size` rows."""
        self._actor, self._size = actor, size

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        """Returns the actions, [E] int32, like `Actor.act`; E is any number."""
        actions, size, rows = np.zeros(len(first), np.int32), self._size, np.flatnonzero(shown(step))
        for part in (rows[n : n + size] for n in range(0, len(rows), size)):
            seen = step.those(np.append(part, np.repeat(part[:1], size - len(part))))
            fresh = types.EnvStep.first(seen.observation)._replace(action_mask=seen.action_mask)
            acted = self._actor.act(fresh._replace(shown=np.arange(size) < len(part)), np.ones(size, bool))
            actions[part] = acted[: len(part)]
        return actions
