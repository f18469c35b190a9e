"""Environments of the end-to-end tests, as a user's own module: `--env=gym:e2e_envs:NAME-v0`."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

import gymnasium
import numpy as np

_TAG_LIMIT = 2**20
EPISODE_LENGTH = 7
_PACE_SECONDS = 0.005
"""Of a step where a test looks at a learner beside which other programs start: it leaves them the processor."""


class Tagged(gymnasium.Env[np.ndarray, np.int64]):
    """Shows which run and episode it is, and how far it has come.

    The observation is [process id, number of this object's environment in the process, resets with a seed, episode,
    step]: the first four name an episode, the last one counts from 0. The reward of step n is n. A run's first
    episodes are of different lengths, so that environments never end theirs all at once: some step is always pending.
    """

    observation_space = gymnasium.spaces.Box(0, _TAG_LIMIT * 8, (5,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    _num_made = 0

    def __init__(self) -> None:
        self._number = Tagged._num_made
        Tagged._num_made += 1
        self._runs, self._episode, self._step = 0, 0, 0
        self._length = EPISODE_LENGTH

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._runs += seed is not None
        self._episode += 1
        self._step = 0
        self._length = EPISODE_LENGTH if seed is None else 1 + self._number % EPISODE_LENGTH
        return self._show(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        ended = self._step == self._length
        return self._show(), float(self._step), ended and self._episode % 2 == 0, ended and self._episode % 2 == 1, {}

    def _show(self) -> np.ndarray:
        tag = [os.getpid(), self._number, self._runs, self._episode, self._step]
        return np.array(tag, np.float32)


class Raising(Tagged):
    """Raises at its third step."""

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._step == 2:
            raise ValueError("the paddle fell off")
        return super().step(action)


class Unsupported(Tagged):
    """Has a space that nobody can learn from."""

    action_space = gymnasium.spaces.MultiDiscrete([64, 64])


class Paced(Tagged):
    """Takes its time."""

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(_PACE_SECONDS)
        return super().step(action)


class Switched(Paced):
    """Raises while the file named by E2E_RAISE exists."""

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if pathlib.Path(os.environ["E2E_RAISE"]).exists():
            raise ValueError("switched to raising")
        return super().step(action)


for _kind in (Tagged, Raising, Unsupported, Paced, Switched):
    gymnasium.register(f"{_kind.__name__}-v0", entry_point=_kind, order_enforce=False, disable_env_checker=True)
