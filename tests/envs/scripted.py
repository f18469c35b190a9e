"""A Gymnasium environment that is told in advance, for the tests of spaces and groups."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces


class Scripted(gymnasium.Env[Any, Any]):
    """Shows always the same observation, keeps the actions it got, and ends after three steps."""

    def __init__(
        self, shown: spaces.Space[Any], taken: spaces.Space[Any] | None = None, observation: Any = None
    ) -> None:
        self.observation_space, self.action_space = shown, taken or spaces.Discrete(2)
        self._observation = shown.sample() if observation is None else observation
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        return self._observation, float(len(self.actions)), len(self.actions) % 3 == 0, False, {}
