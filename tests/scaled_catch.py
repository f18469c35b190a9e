"""Catch with two tasks: the rewards of one are a hundred times those of the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from seedzero.core import types
from seedzero.envs import catch

TASKS = ("small", "large")
SCALES = np.array([1.0, 100.0], np.float32)


class ScaledCatch(catch.Catch):
    """Environment i plays task i modulo 2."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.spec = dataclasses.replace(self.spec, tasks=TASKS)
        self._task = np.arange(num_envs, dtype=np.int32) % len(TASKS)

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        return self._scaled(super().reset(seeds))

    def step(self, actions: np.ndarray) -> types.EnvStep:
        return self._scaled(super().step(actions))

    def _scaled(self, step: types.EnvStep) -> types.EnvStep:
        return step._replace(reward=step.reward * SCALES[self._task], task=self._task)
