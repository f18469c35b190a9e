"""Google Research Football with agents on both sides, through the package gfootball; each agent is a player.

Observations are gfootball's simple115v2, 115 numbers. It mirrors pitch and actions of the right side, so each agent
sees itself on the left. The engine starts at the first reset, so that a learner, which needs only the spaces, does
without it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from seedzero.config import sections
from seedzero.core import errors
from seedzero.envs import env_base, football, pettingzoo_env, pettingzoo_moves

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
        return football.draw(maps.generate_smm(self._engine.unwrapped.observation()[:1])[0])

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
        return football.Football(scenario, num_envs, settings, threads=threads)
    football.check_id(scenario)
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


def _moves(name: str, env: Any) -> pettingzoo_moves.ParallelMoves:
    return pettingzoo_moves.ParallelMoves(env)


def _gfootball() -> Any:
    """Returns the package. Raises EnvironmentFailure if it is not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise errors.EnvironmentFailure(
            f"football from both sides needs {PACKAGE}, which is missing; "
            "docker/worker-football.Dockerfile builds it, see docs/families.md; without left and right in "
            "--env.kwargs EnvPool plays one player of the left"
        )
    return importlib.import_module(f"{PACKAGE}.env")
