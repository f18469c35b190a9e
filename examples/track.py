"""A red cart and a green lamp on a track of eight places, shown as an image: --env=gym:track:Track-v0."""

from typing import Any

import gymnasium
import numpy as np


class Track(gymnasium.Env[np.ndarray, int]):
    """Reaching the lamp pays 1 and moves it; leaving the track to the left costs 1 and ends the episode."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, num_places: int = 8, render_mode: str | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)  # height, width, channels
        self.action_space = gymnasium.spaces.Discrete(3)  # left, stay, right
        self.render_mode = render_mode
        self._num_places = num_places

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._cart, self._lamp = 3, self._elsewhere(3)
        return self._image(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._cart = min(self._cart + int(action) - 1, self._num_places - 1)
        fell = self._cart < 0
        reached = self._cart == self._lamp
        if reached:
            self._lamp = self._elsewhere(self._cart)
        return self._image(), float(reached) - float(fell), fell, False, {}

    def render(self) -> np.ndarray:
        return self._image()

    def _elsewhere(self, place: int) -> int:
        return int((place + self.np_random.integers(1, self._num_places)) % self._num_places)

    def _image(self) -> np.ndarray:
        image = np.zeros((64, 64, 3), np.uint8)
        width = 64 // self._num_places
        image[16:24, self._lamp * width : (self._lamp + 1) * width] = (0, 255, 0)
        if self._cart >= 0:
            image[40:48, self._cart * width : (self._cart + 1) * width] = (255, 0, 0)
        return image


gymnasium.register("Track-v0", entry_point=Track, max_episode_steps=32)
