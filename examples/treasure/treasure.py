"""A family of environments outside the package: levels of one game, registered with Gymnasium by this module.

    cd examples/treasure
    seedzero train --preset=treasure.preset --env=gym:treasure:Maze-v0

docs/tutorials/own_environment.md explains the parts.
"""

from typing import Any

import gymnasium
import numpy as np

SIZE = 7
LEVELS = {  # id: best mean return, up to two hundredths, and the rows of the map; # is a wall
    "Corridor-v0": (0.96, ("       ",)),
    "Room-v0": (0.94, ("       ",) * SIZE),
    "Maze-v0": (0.91, ("   #   ", " # # # ", " # # # ", " #   # ", " ##### ", "       ", " ## ## ")),
}
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])


class Treasure(gymnasium.Env[Any, Any]):
    """A map with a treasure somewhere, worth 1; each step costs 0.01. A move slips with probability `slip`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, level: tuple[str, ...], slip: float = 0.0, render_mode: str | None = None) -> None:
        self.render_mode, self._slip = render_mode, slip
        self.observation_space = gymnasium.spaces.Box(0, 1, (SIZE, SIZE, 3), np.uint8)  # wall, treasure, player
        self.action_space = gymnasium.spaces.Discrete(len(MOVES))
        self._free = np.zeros((SIZE, SIZE), bool)
        self._free[: len(level)] = [[cell == " " for cell in row] for row in level]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        cells = np.argwhere(self._free)
        self._player, self._treasure = cells[self.np_random.choice(len(cells), 2, replace=False)]
        return self._show(), {"action_mask": self._legal()}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.np_random.random() < self._slip:
            action = self.np_random.choice(np.flatnonzero(self._legal()))
        self._player = self._player + MOVES[action]
        found = bool((self._player == self._treasure).all())
        return self._show(), float(found) - 0.01, found, False, {"action_mask": self._legal()}

    def _legal(self) -> np.ndarray:
        """Returns the moves to free cells, bool [4]."""
        return np.pad(self._free, 1)[tuple((self._player + MOVES + 1).T)]

    def _show(self) -> np.ndarray:
        shown = np.zeros((SIZE, SIZE, 3), np.uint8)
        shown[~self._free, 0] = shown[(*self._treasure, 1)] = shown[(*self._player, 2)] = 1
        return shown

    def render(self) -> np.ndarray:
        return np.kron(self._show(), np.full((32, 32, 1), 255, np.uint8))


for name, (solved, rows) in LEVELS.items():
    gymnasium.register(
        name, entry_point=Treasure, kwargs={"level": rows}, max_episode_steps=60, reward_threshold=solved
    )
