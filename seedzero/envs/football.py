"""Google Research Football: one player by EnvPool, or agents on both sides through the package gfootball.

With both sides, observations are gfootball's simple115v2, 115 numbers. It mirrors pitch and actions of the right
side, so each agent sees itself on the left. The engine starts at the first reset, so that a learner, which needs only
the spaces, does without it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import env_base, envpool_env, pettingzoo_env

# Google Research Football (Kurach et al. 2020) through EnvPool: one player of the left team, 19 actions.
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


PACKAGE = "gfootball"
SIDES = ("left", "right")
_MOST = 11
_NUM_FEATURES, _NUM_ACTIONS = 115, 19
_EXAMPLE = '{"left": 4, "right": 4}'

Values = dict[str, Any]
"""A value for each agent."""


class FootballSides(pettingzoo_env.PettingZoo):
    """E rows, which are the players in copies of a match."""

    def try_out(self) -> None:
        """Steps the first copy if gfootball is installed."""
        if importlib.util.find_spec(PACKAGE) is not None:
            super().try_out()


class FootballMatch:
    """A match with the interface of PettingZoo's parallel environments."""

    metadata: Mapping[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, scenario: str, num_players: Mapping[str, int], *, checkpoints: bool, limit: int) -> None:
        """num_players: number of agents on each side; gfootball's own AI moves the other players.

        limit: steps after which a match is cut short; 0: none.
        """
        self.possible_agents = [f"{side}_{number}" for side in SIDES for number in range(num_players[side])]
        self.agents: list[str] = []
        self._arguments = {
            "env_name": scenario,
            "representation": "simple115v2",
            "rewards": "scoring,checkpoints" if checkpoints else "scoring",
            **{f"number_of_{side}_players_agent_controls": num_players[side] for side in SIDES},
        }
        self._engine: Any = None
        self._limit, self._num_steps = limit, 0

    @property
    def unwrapped(self) -> FootballMatch:
        return self

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(-np.inf, np.inf, (_NUM_FEATURES,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete[Any]:
        return spaces.Discrete(_NUM_ACTIONS)

    def reset(self, seed: int) -> tuple[Values, Values]:
        if self._engine is None:
            self._engine = _gfootball().create_environment(**self._arguments)
        # The only way to give gfootball a seed: a match reads it here when it begins.
        seeds = {"game_engine_random_seed": seed, "reverse_team_processing": bool(seed % 2)}
        self._engine.unwrapped._config.update(seeds)
        self.agents, self._num_steps = list(self.possible_agents), 0
        return self._by_agent(self._engine.reset()), {}

    def step(self, actions: Mapping[str, Any]) -> tuple[Values, Values, Values, Values, Values]:
        observation, reward, is_over, _ = self._engine.step([int(actions[agent]) for agent in self.possible_agents])
        self._num_steps += 1
        is_cut = not is_over and self._num_steps == self._limit
        agents = self.possible_agents
        self.agents = [] if is_over or is_cut else list(agents)
        cuts, ends = dict.fromkeys(agents, is_cut), dict.fromkeys(agents, bool(is_over))
        return self._by_agent(observation), self._by_agent(reward), ends, cuts, {}

    def render(self) -> np.ndarray:
        """Draws the pitch as the first player sees it."""
        maps = importlib.import_module(f"{PACKAGE}.env.observation_preprocessing")
        return draw(maps.generate_smm(self._engine.unwrapped.observation()[:1])[0])

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def _by_agent(self, values: np.ndarray) -> Values:
        """Turns gfootball's values [players, ...] into values by agent."""
        return dict(zip(self.possible_agents, values, strict=True))


def has_sides(settings: sections.EnvConfig) -> bool:
    """Returns whether --env.kwargs contains numbers of players, so that gfootball plays."""
    return bool(set(SIDES) & env_base.arguments(settings.kwargs, "arguments", _EXAMPLE).keys())


def make(scenario: str, num_envs: int, settings: sections.EnvConfig, *, threads: int = 0) -> env_base.VectorEnv:
    """Returns E rows of a scenario: players of both sides by gfootball, or one of the left side by EnvPool.

    Raises EnvironmentFailure as Football, and if --env.kwargs contains something other than numbers of players.
    """
    if not has_sides(settings):
        return Football(scenario, num_envs, settings, threads=threads)
    check_id(scenario)
    given = {"left": 0, "right": 0, **env_base.arguments(settings.kwargs, "numbers of players", _EXAMPLE)}
    are_numbers = all(type(number) is int and 0 <= number <= _MOST for number in given.values())
    if given.keys() != set(SIDES) or not are_numbers or sum(given.values()) < 2:
        raise errors.EnvironmentFailure(
            f"--env.kwargs={settings.kwargs}: expected numbers of players of the sides left and right, up to {_MOST} "
            f"each and two or more together, such as '{_EXAMPLE}'; without them EnvPool plays one player of the left"
        )

    if settings.wrappers:
        raise errors.EnvironmentFailure(
            f"--env.wrappers={settings.wrappers}: rows of football from both sides are players, which have no "
            "wrappers; leave it out"
        )

    def match() -> FootballMatch:
        rewards, limit = settings.checkpoint_rewards, settings.max_episode_steps
        return FootballMatch(scenario, given, checkpoints=rewards, limit=limit)

    return FootballSides(f"football:{scenario}", match, num_envs, masks=False, moves=_moves)


def _moves(name: str, env: Any) -> pettingzoo_env.ParallelMoves:
    return pettingzoo_env.ParallelMoves(env)


def _gfootball() -> Any:
    """Returns the package. Raises EnvironmentFailure if it is not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise errors.EnvironmentFailure(
            f"football from both sides needs {PACKAGE}, which is missing; build docker/worker-football.Dockerfile "
            "(docs/families.md), or leave left and right out of --env.kwargs: EnvPool then plays one player"
        )
    return importlib.import_module(f"{PACKAGE}.env")
