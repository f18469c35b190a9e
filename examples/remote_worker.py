"""A worker with an environment of its own, for a learner started with `--env=remote`.

    seedzero train --preset=cartpole --env=remote --workers=0 --listen=127.0.0.1:50051
    python examples/remote_worker.py --server=127.0.0.1:50051
    seedzero evaluate --run_dir=DIR --listen=127.0.0.1:50051     # later: scores it in a worker

It takes the flags of `seedzero worker`, such as `--token_file=FILE` and `--tls.ca_file=FILE`.
Any implementation of seedzero.envs.env_base.VectorEnv works; a single Gymnasium environment needs only the function
that makes one.
"""

import sys

import gymnasium
import numpy as np

from seedzero.envs import env_base, gym_env
from seedzero.worker import worker


class Corridor(gymnasium.Env[np.ndarray, np.int64]):
    """A corridor of ten cells with a reward at its right end; at most 30 steps."""

    observation_space = gymnasium.spaces.Box(0, 1, (10,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict[str, object]]:
        super().reset(seed=seed)
        self._cell, self._num_steps = int(self.np_random.integers(9)), 0
        return self._show(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        self._cell = int(np.clip(self._cell + (1 if action == 1 else -1), 0, 9))
        self._num_steps += 1
        arrived = self._cell == 9
        return self._show(), float(arrived), arrived, not arrived and self._num_steps >= 30, {}

    def _show(self) -> np.ndarray:
        observation = np.zeros(10, np.float32)
        observation[self._cell] = 1
        return observation


def make_group(num_envs: int) -> env_base.VectorEnv:
    return gym_env.GymVectorEnv.from_factory(Corridor, num_envs)


if __name__ == "__main__":
    sys.exit(worker.main(env_factory=make_group))
