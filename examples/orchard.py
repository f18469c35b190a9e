"""An environment with an image and numbers, two numbers as an action, a mask and metrics of its own.

docs/tutorials/own_environment.md trains on it.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

TREES, FRUITS = 7, 3


class Orchard(gymnasium.Env[dict[str, np.ndarray], np.ndarray]):
    """A picker walks along trees, and picks fruits. Each fruit pays 1; the last one ends the episode."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012
    observation_space = spaces.Dict(
        {"view": spaces.Box(0, 255, (2, TREES, 1), np.uint8), "basket": spaces.Box(0, 1, (1,), np.float32)}
    )
    action_space = spaces.MultiDiscrete([3, 2])  # left, stay or right; pick or not

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.fruits = TREES // 2, np.zeros(TREES, bool)
        self.fruits[self.np_random.choice(TREES, FRUITS, replace=False)] = True
        return self._seen(), self._info()

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        move, picks = action
        reward = float(picks and self.fruits[self.place])
        self.fruits[self.place] &= not picks
        self.place = min(max(self.place + int(move) - 1, 0), TREES - 1)
        return self._seen(), reward, not self.fruits.any(), False, self._info()

    def render(self) -> np.ndarray:
        return np.kron(self._seen()["view"], np.ones((32, 32, 3), np.uint8))

    def _seen(self) -> dict[str, np.ndarray]:
        rows = self.fruits, np.arange(TREES) == self.place
        basket = np.array([1 - self.fruits.sum() / FRUITS], np.float32)
        return {"view": 255 * np.stack(rows).astype(np.uint8)[..., None], "basket": basket}

    def _info(self) -> dict[str, Any]:
        mask = [self.place > 0, True, self.place < TREES - 1, True, self.fruits[self.place]]
        return {"action_mask": np.array(mask), "metrics": {"picked": FRUITS - int(self.fruits.sum())}}
