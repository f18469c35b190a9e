"""Catch: a ball falls from a random column, and the paddle in the last row must catch it.

Osband et al. 2020, "Behaviour Suite for Reinforcement Learning", section 3 and its `catch` experiment.
"""

from __future__ import annotations

import numpy as np

from seedzero.core import types
from seedzero.envs import env_base

ROWS, COLUMNS = 10, 5
LEFT, STAY, RIGHT = 0, 1, 2
NAMES = ("left", "stay", "right")
LIT = 255
"""A cell with the ball or the paddle; dark cells are 0."""

_PIXELS_PER_CELL = 32


class Catch(env_base.ArrayEnv):
    """E boards of ROWS x COLUMNS. An episode has ROWS - 1 steps; its last reward is 1 or -1, and all others are 0."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.spec = types.EnvSpec((ROWS, COLUMNS, 1), "uint8", len(NAMES), 0, LIT, action_names=NAMES)
        self._ball_row, self._ball_column, self._paddle = np.zeros((3, num_envs), np.int64)

    def step(self, actions: np.ndarray) -> types.EnvStep:
        env_base.check_actions(actions, self.num_envs, self.spec)
        first = self._ball_row == ROWS - 1
        self._ball_row = self._ball_row + 1
        self._paddle = np.clip(self._paddle + actions - STAY, 0, COLUMNS - 1)
        self._begin_episodes(first)
        landed = ~first & (self._ball_row == ROWS - 1)
        reward = np.where(landed, np.where(self._paddle == self._ball_column, 1, -1), 0)
        return types.EnvStep(self._show(), reward.astype(np.float32), landed, np.zeros(self.num_envs, bool))

    def render(self) -> np.ndarray:
        return np.repeat(env_base.enlarged(self._show()[0], _PIXELS_PER_CELL), 3, axis=2)

    def _begin_episodes(self, where: np.ndarray) -> None:
        self._ball_row[where] = 0
        self._paddle[where] = COLUMNS // 2
        for index in np.flatnonzero(where):
            self._ball_column[index] = self._generators[index].integers(COLUMNS)

    def _show(self) -> np.ndarray:
        boards = np.zeros((self.num_envs, ROWS, COLUMNS, 1), np.uint8)
        index = np.arange(self.num_envs)
        boards[index, self._ball_row, self._ball_column] = LIT
        boards[index, ROWS - 1, self._paddle] = LIT
        return boards
