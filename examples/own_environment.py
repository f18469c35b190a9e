"""Trains on an environment of one's own: a function that returns it, without registering anything.

    cd examples && python own_environment.py [RUN_DIR]

Workers are processes of their own. They import this file by the name in the setting, from the directory in which this
starts; so the training stands behind `if __name__ == "__main__"`. The variable MAX_UPDATES limits it.
"""

import os
import sys

import gymnasium
import numpy as np

import seedzero


class Corridor(gymnasium.Env[np.ndarray, np.int64]):
    """Ten cells, a reward at the right end; an episode has at most 30 steps."""

    observation_space = gymnasium.spaces.Box(0, 1, (10,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reward: float = 1.0) -> None:
        self._reward = reward

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict[str, object]]:
        super().reset(seed=seed)
        self._cell, self._num_steps = int(self.np_random.integers(9)), 0
        return self._show(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        self._cell = int(np.clip(self._cell + (1 if action == 1 else -1), 0, 9))
        self._num_steps += 1
        arrived = self._cell == 9
        return self._show(), self._reward * arrived, arrived, not arrived and self._num_steps >= 30, {}

    def _show(self) -> np.ndarray:
        observation = np.zeros(10, np.float32)
        observation[self._cell] = 1
        return observation


def make(**kwargs: float) -> Corridor:
    return Corridor(**kwargs)


if __name__ == "__main__":
    ended = seedzero.train(
        "python:own_environment:make",
        run_dir=sys.argv[1] if len(sys.argv) > 1 else "runs/corridor",
        agent="vtrace",
        max_updates=int(os.environ.get("MAX_UPDATES", "2000")),
        stop_at_return=1.99,
        **{"env.kwargs": '{"reward": 2.0}', "evaluation.every_updates": 100},
    )
    print(f"{ended.reason}: {ended.num_env_steps} steps, best return {ended.best_return}")
    policy = seedzero.load(ended.run_dir)
    print("actions from left to right:", policy(np.eye(10, dtype=np.float32)))
