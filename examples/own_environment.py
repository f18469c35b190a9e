"""Trains on your own environment, without registering it: cd examples && python own_environment.py [RUN_DIR]"""

import os
import sys

import gymnasium
import numpy as np

import seedzero


class Corridor(gymnasium.Env[int, int]):  # ten cells; the right end pays 1
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012
    observation_space, action_space = gymnasium.spaces.Discrete(10), gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[int, dict[str, object]]:
        self.cell = 0
        return self.cell, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, object]]:
        self.cell = min(max(self.cell + 2 * int(action) - 1, 0), 9)
        return self.cell, float(self.cell == 9), self.cell == 9, False, {}

    def render(self) -> np.ndarray:
        return np.kron((np.arange(10) == self.cell)[None, :, None], np.ones((32, 32, 3), bool)).astype(np.uint8) * 255


if __name__ == "__main__":
    settings = {"env.max_episode_steps": 30, "evaluation.every_updates": 200, "agent": "vtrace"}
    settings["max_updates"] = int(os.environ.get("MAX_UPDATES", "2000"))
    run_dir = sys.argv[1] if len(sys.argv) > 1 else "runs/corridor"
    ended = seedzero.train("python:own_environment:Corridor", run_dir=run_dir, stop_at_return=0.99, **settings)
    policy = seedzero.load(ended.run_dir)
    print(f"{ended.reason}; actions from left to right: {policy(np.arange(10))}")
