"""CartPole-v1 in other units, gym:scaled_cartpole:NAME. An agent that adapts to scales learns each as well.

ScaledCartPole-v0 rewards times 1,000 and observations times 10,000; the best return is 500,000 LargeRewards-v0 rewards
times 1,000 SmallRewards-v0 rewards times 0.001; the best return is 0.5 LargeFeatures-v0 observations times 10,000
SmallFeature-v0 the pole's angle times 0.001
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

REWARD_SCALE = 1_000.0
OBSERVATION_SCALE = 10_000.0


class ScaledCartPole(gymnasium.ObservationWrapper[Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """CartPole with scaled rewards, features (one factor for each of the four) and bounds."""

    def __init__(
        self,
        render_mode: str | None = None,
        reward: float = REWARD_SCALE,
        features: tuple[float, ...] = (OBSERVATION_SCALE,) * 4,
    ) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, render_mode=render_mode, reward=reward, features=features)
        super().__init__(gymnasium.make("CartPole-v1", render_mode=render_mode).unwrapped)
        self._reward, self._features = reward, np.asarray(features, np.float32)
        box = self.env.observation_space
        assert isinstance(box, gymnasium.spaces.Box)
        # Bounds of velocities are infinite and stay so.
        low, high = (np.asarray(bound, np.float64) * features for bound in (box.low, box.high))
        self.observation_space = gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32))

    def observation(self, observation: Any) -> Any:
        return observation * self._features

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, float(reward) * self._reward, terminated, truncated, info


_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "ScaledCartPole-v0": {},
    "LargeRewards-v0": dict(features=(1.0,) * 4),
    "SmallRewards-v0": dict(reward=0.001, features=(1.0,) * 4),
    "LargeFeatures-v0": dict(reward=1.0),
    "SmallFeature-v0": dict(reward=1.0, features=(1.0, 1.0, 0.001, 1.0)),
}
for _name, _settings in _VARIANTS.items():
    gymnasium.register(_name, f"{__name__}:ScaledCartPole", max_episode_steps=500, kwargs=dict(_settings))
