"""Google Research Football (Kurach et al. 2020) through EnvPool: one player of the left team, 19 actions.

`football_sides.py` has players of both sides, through another package.

Observations are the Super Mini Map, [72, 96, 4] of 0 or 255: the left team, the right team, the ball, and the acting
player. The left team attacks to the right. Rewards are 1 for a goal and -1 for a goal against. EnvPool has no rewards
for checkpoints (section 3 of the paper), so they are computed here from the ball's plane and `ball_owned_team`.

Shape letters: E environments of one group, H = 72 rows, W = 96 columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seedzero.config import sections
from seedzero.core import types
from seedzero.envs import env_base, envpool_env

SCENARIOS = (
    "academy_empty_goal_close",
    "academy_empty_goal",
    "academy_run_to_score",
    "academy_run_to_score_with_keeper",
    "academy_pass_and_shoot_with_keeper",
    "academy_run_pass_and_shoot_with_keeper",
    "academy_3_vs_1_with_keeper",
    "academy_corner",
    "academy_counterattack_easy",
    "academy_counterattack_hard",
    "academy_single_goal_versus_lazy",
    "1_vs_1_easy",
    "5_vs_5",
    "11_vs_11_easy_stochastic",
    "11_vs_11_stochastic",
    "11_vs_11_hard_stochastic",
    "11_vs_11_competition",
    "11_vs_11_kaggle",
)
LEFT, RIGHT, BALL, ACTIVE = range(4)
"""The planes of an observation."""
OWN_TEAM = 0

NUM_CHECKPOINTS = 10
CHECKPOINT_REWARD = 0.1
_FARTHEST, _NEAREST = 0.99, 0.19
"""Distances of the first and the last checkpoint from the middle of the opponents' goal."""

_HEIGHT = 1 / 2.25
"""Distance of the map's upper and lower edge from its middle, on a scale where the goals are at -1 and 1."""


class Football(envpool_env.EnvPool):
    """E matches of a scenario."""

    def __init__(self, scenario: str, num_envs: int, settings: sections.EnvConfig, *, threads: int = 0) -> None:
        """Makes the pool. Raises EnvironmentFailure if EnvPool is missing, or there is no such scenario."""
        check_id(scenario)
        super().__init__(f"gfootball/{scenario}-v1", num_envs, settings, threads=threads)
        self._has_checkpoints = settings.checkpoint_rewards
        self._collected = np.zeros(num_envs, np.int64)
        self._newest = np.zeros(self.spec.observation_shape, np.uint8)

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        step = super().reset(seeds)
        self._collected = np.zeros(self.num_envs, np.int64)
        self._newest = step.observation[0]
        return step

    def step(self, actions: np.ndarray) -> types.EnvStep:
        first = self._final
        step = super().step(actions)
        if self._has_checkpoints:
            # A first observation has no reward; what lies behind its ball is paid with the next step.
            collected, is_owned = (
                np.where(first, 0, self._collected),
                ~first & (self.info["ball_owned_team"] == OWN_TEAM),
            )
            bonus, self._collected = checkpoint_rewards(step.observation[..., BALL], is_owned, step.reward, collected)
            step = step._replace(reward=step.reward + bonus)
        self._newest = step.observation[0]
        return step

    def render(self) -> np.ndarray:
        return draw(self._newest)


def checkpoint_rewards(
    ball: np.ndarray, is_owned: np.ndarray, score: np.ndarray, collected: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns rewards [E] for bringing the ball towards the goal, and the checkpoints of the episode so far, [E] int.

    Each of ten distances pays 0.1 once per episode. A goal pays the rest, so that the episode's total is 1.

    Args:
      ball: [E, H, W] plane of the ball; empty if the ball is far away.
      is_owned: [E] bool, true: a player of the own team has the ball.
      score: [E] rewards of goals.
      collected: [E] int, checkpoints of the episode before this step.
    """
    spacing = (_FARTHEST - _NEAREST) / (NUM_CHECKPOINTS - 1)
    passed = np.floor((_FARTHEST - _distance(ball)) / spacing) + 1
    passed = np.clip(passed, 0, NUM_CHECKPOINTS).astype(np.int64)
    reached = np.where(score > 0, NUM_CHECKPOINTS, np.where(is_owned, passed, 0))
    total = np.maximum(collected, reached)
    return (CHECKPOINT_REWARD * (total - collected)).astype(np.float32), total


def _distance(ball: np.ndarray) -> np.ndarray:
    """Returns the distance [E] of the ball's cell on [E, H, W] from the middle of the right goal; 2 without a ball."""
    num_envs, num_rows, num_columns = ball.shape
    cells = ball.reshape(num_envs, -1)
    row, column = np.divmod(cells.argmax(axis=1), num_columns)
    x = 2 * (column + 0.5) / num_columns - 1
    y = (2 * (row + 0.5) / num_rows - 1) * _HEIGHT
    return np.where(cells.any(axis=1), np.hypot(x - 1, y), 2.0)


def check_id(scenario: str) -> None:
    """Raises EnvironmentFailure, with the nearest names, for an unknown scenario."""
    if scenario not in SCENARIOS:
        advice = f"choose one of {', '.join(SCENARIOS)}"
        raise env_base.no_such("Football has no scenario", scenario, SCENARIOS, advice, cutoff=0.4)


# Pictures -----------------------------------------------------------------------------------------------------------

_CELL = (5, 8)
"""Height and width of a cell in pixels, with the proportions of the pitch."""
_GRASS, _LINE = (46, 125, 50), (120, 190, 120)
_DOTS = ((LEFT, (255, 213, 79), 6), (RIGHT, (33, 33, 120), 6), (ACTIVE, (229, 57, 53), 6), (BALL, (255, 255, 255), 3))
"""Plane, colour and radius in pixels, drawn in this order."""
_SIDE_LINE, _GOAL_POST, _CIRCLE = 0.42, 0.044, 0.13
_THIN = 2.5e-3


def draw(planes: np.ndarray) -> np.ndarray:
    """Draws the pitch, [5 H, 8 W, 3] uint8, from the planes [H, W, 4] of one match."""
    num_rows, num_columns, _ = planes.shape
    picture = _pitch(num_rows * _CELL[0], num_columns * _CELL[1])
    for plane, colour, radius in _DOTS:
        down, right = np.mgrid[-radius : radius + 1, -radius : radius + 1]
        disc = np.argwhere(down**2 + right**2 <= radius**2) - radius
        for cell in np.argwhere(planes[..., plane]):
            pixels = disc + cell * _CELL + np.array(_CELL) // 2
            picture[tuple(np.clip(pixels, 0, (picture.shape[0] - 1, picture.shape[1] - 1)).T)] = colour
    return picture


def _pitch(height: int, width: int) -> np.ndarray:
    """Draws the empty pitch, [height, width, 3] uint8."""
    picture = np.full((height, width, 3), _GRASS, np.uint8)
    x, y = (2 * (np.arange(size) + 0.5) / size - 1 for size in (width, height))
    y = y * _HEIGHT
    picture[np.abs(np.abs(y) - _SIDE_LINE) < _THIN] = _LINE
    picture[:, np.abs(x) < _THIN] = _LINE
    picture[np.abs(np.hypot(x[None, :], y[:, None]) - _CIRCLE) < _THIN] = _LINE
    picture[np.ix_(np.abs(y) < _GOAL_POST, np.abs(x) > 1 - 4 * _THIN)] = _LINE
    return picture
