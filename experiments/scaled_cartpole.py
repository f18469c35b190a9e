"""CartPole-v1 in other units: rewards times 1,000, observations times 10,000; gym:scaled_cartpole:ScaledCartPole-v0.

An agent that adapts to the scale of its environment learns it like CartPole-v1. The best return is 500,000.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

REWARD_SCALE = 1_000.0
OBSERVATION_SCALE = 10_000.0


class ScaledCartPole(gymnasium.ObservationWrapper[Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """CartPole with scaled observations and rewards; bounds are scaled, too."""

    def __init__(self, render_mode: str | None = None) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, render_mode=render_mode)
        super().__init__(gymnasium.make("CartPole-v1", render_mode=render_mode).unwrapped)
        box = self.env.observation_space
        assert isinstance(box, gymnasium.spaces.Box)
        # The bounds of the velocities are infinite and stay so.
        low, high = (np.asarray(bound, np.float64) * OBSERVATION_SCALE for bound in (box.low, box.high))
        self.observation_space = gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32))

    def observation(self, observation: Any) -> Any:
        return observation * np.float32(OBSERVATION_SCALE)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, float(reward) * REWARD_SCALE, terminated, truncated, info


gymnasium.register("ScaledCartPole-v0", entry_point=f"{__name__}:ScaledCartPole", max_episode_steps=500)
