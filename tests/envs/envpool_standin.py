"""A stand-in for the package envpool: the calls, names, dtypes and habits that seedzero uses, in Python.

Its habits, as EnvPool's: next-step auto-reset, seeds at making alone, bounds of the smallest and largest float, images
channels first, rewards of first observations, text as bytes, actions of one dtype, and a new array at each step.
"""

from __future__ import annotations

import collections
import copy
import types
from typing import Any

import numpy as np
from gymnasium import spaces

GRID = "Grid-Empty-8x8-v0"
BUTTONS = "Buttons-v1"
LIMBS = "Limbs-v4"
PAIR = "Pair-v1"
BROKEN = "Broken-v0"
FOOTBALL = "gfootball/academy_empty_goal-v1"

_FLOAT = np.finfo(np.float64)
_UNBOUNDED = dict(low=_FLOAT.tiny, high=_FLOAT.max, dtype=np.float64)
_COMMON = dict(num_envs=1, batch_size=1, num_threads=0, max_num_players=1, seed=42, env_seed=[], max_episode_steps=20)


def _grid(config: dict[str, Any]) -> tuple[Any, Any]:
    image, mission = spaces.Box(0, 255, (7, 7, 3), np.uint8), spaces.Box(0, 255, (96,), np.uint8)
    return spaces.Dict(direction=spaces.Discrete(4), image=image, mission=mission), spaces.Discrete(7)


def _buttons(config: dict[str, Any]) -> tuple[Any, Any]:
    image = spaces.Box(0, 255, (3 * config["stack_num"], 48, 40), np.uint8)
    return image, spaces.Discrete(6) if config["use_combined_action"] else spaces.Box(shape=(3,), **_UNBOUNDED)


def _limbs(config: dict[str, Any]) -> tuple[Any, Any]:
    parts = dict(position=spaces.Box(shape=(3,), **_UNBOUNDED), velocity=spaces.Box(shape=(2,), **_UNBOUNDED))
    return spaces.Dict(parts), spaces.Box(-1.0, 1.0, (2,), np.float64)


def _pair(config: dict[str, Any]) -> tuple[Any, Any]:
    return spaces.MultiBinary(9), spaces.Discrete(9)


def _broken(config: dict[str, Any]) -> tuple[Any, Any]:
    raise ImportError("it requires the system's library Xyz; install libxyz")


def _football(config: dict[str, Any]) -> tuple[Any, Any]:
    return spaces.Box(0, 255, (72, 96, 4), np.uint8), spaces.Discrete(19)


_GAMES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    GRID: ("envpool.minigrid", _grid, {"size": 8}),
    BUTTONS: ("envpool.vizdoom", _buttons, dict(stack_num=4, frame_skip=4, use_combined_action=False)),
    LIMBS: ("envpool.mujoco.dmc", _limbs, {}),
    PAIR: ("envpool.pgx", _pair, {"max_num_players": 2}),
    BROKEN: ("envpool.elsewhere", _broken, {}),
    FOOTBALL: ("envpool.gfootball", _football, {}),
}

registration = types.SimpleNamespace(
    registry=types.SimpleNamespace(specs={name: (path, "", {}) for name, (path, _, _) in _GAMES.items()})
)


def list_all_envs() -> list[str]:
    return list(_GAMES)


def make_spec(name: str, **arguments: Any) -> Any:
    _, spaces_of, own = _GAMES[name]
    defaults = {**_COMMON, **own}
    config = collections.namedtuple("Config", defaults)(**{**defaults, **arguments})
    observation, action = spaces_of(config._asdict())
    return types.SimpleNamespace(config=config, observation_space=observation, action_space=action)


def make_gymnasium(name: str, *, render_mode: str | None = None, **arguments: Any) -> Any:
    made = make_spec(name, **{key: value for key, value in arguments.items() if key != "seed"})
    kind = _Football if name == FOOTBALL else _Pool
    return kind(made, arguments["seed"], render_mode)


class _Pool:
    """Samples of the observation space; an episode ends at any step by chance, or at its limit."""

    def __init__(self, made: Any, seeds: list[int], render_mode: str | None) -> None:
        assert len(seeds) == made.config.num_envs and made.config.num_threads >= 1
        self._limit, self._action, self._render_mode = made.config.max_episode_steps, made.action_space, render_mode
        self._spaces = [self._seeded(made.observation_space, seed) for seed in seeds]
        self._chance = [np.random.default_rng(seed) for seed in seeds]
        self._time = np.zeros(len(seeds), np.int32)
        self._over = np.zeros(len(seeds), bool)

    @staticmethod
    def _seeded(space: Any, seed: int) -> Any:
        own = copy.deepcopy(space)
        own.seed(seed)
        return own

    def reset(self) -> tuple[Any, dict[str, Any]]:
        return self._observe(), self._info()

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        first = self._over
        for action in actions:
            assert self._action.contains(action if action.ndim else int(action)), action
        self._time = np.where(first, 0, self._time + 1).astype(np.int32)
        ends = np.array([chance.random() < 0.1 for chance in self._chance]) & ~first
        truncated = (self._time >= self._limit) & ~first
        self._over = ends | truncated
        reward = 1 + actions.reshape(len(actions), -1).sum(axis=1).astype(np.float32)
        return self._observe(), reward, ends & ~truncated, truncated, self._info()

    def render(self) -> np.ndarray:
        assert self._render_mode == "rgb_array"
        return np.full((1, 8, 8, 3), self._time[0], np.uint8)

    def _info(self) -> dict[str, Any]:
        return {"env_id": np.arange(len(self._time), dtype=np.int32), "elapsed_step": self._time.copy()}

    def _observe(self) -> Any:
        samples = [_sample(space) for space in self._spaces]
        if isinstance(samples[0], dict):
            return {key: np.stack([sample[key] for sample in samples]) for key in samples[0]}
        return np.stack(samples)


def _sample(space: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _sample(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Box) and space.dtype == np.float64:  # the whole range has no finite samples
        return space.np_random.normal(size=space.shape)
    if isinstance(space, spaces.Box) and space.shape == (7, 7, 3):
        return space.np_random.integers(11, size=space.shape).astype(np.uint8)
    return space.sample()


RIGHT, LOSE = 5, 0
"""Actions of the stand-in's football: towards the opponents' goal, and the ball is lost."""


class _Football(_Pool):
    """One player with the ball, who runs right by one column a step from the middle and scores behind the last one."""

    def __init__(self, made: Any, seeds: list[int], render_mode: str | None) -> None:
        super().__init__(made, seeds, render_mode)
        self._rows = np.array([int(chance.integers(20, 50)) for chance in self._chance])
        self._start()

    def _start(self, where: Any = slice(None)) -> None:
        if not hasattr(self, "_column"):
            self._column, self._owner = np.zeros(len(self._time), int), np.zeros(len(self._time), np.int32)
        self._column[where], self._owner[where] = 48, -1

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        first = self._over
        self._start(first)
        self._time = np.where(first, 0, self._time + 1).astype(np.int32)
        self._column = self._column + ((actions == RIGHT) & ~first)
        self._owner = np.where(first, -1, np.where(actions == LOSE, 1, 0)).astype(np.int32)
        scored = (self._column == 96) & ~first
        self._column = np.where(scored, 48, self._column)
        truncated = (self._time >= self._limit) & ~first & ~scored
        self._over = scored | truncated
        return self._observe(), scored.astype(np.float32), scored, truncated, self._info()

    def _info(self) -> dict[str, Any]:
        return {**super()._info(), "ball_owned_team": self._owner.copy()}

    def _observe(self) -> np.ndarray:
        planes = np.zeros((len(self._time), 72, 96, 4), np.uint8)
        everyone = np.arange(len(self._time))
        for plane, behind in ((0, 1), (2, 0), (3, 1)):
            planes[everyone, self._rows, self._column - behind, plane] = 255
        planes[:, 36, 95, 1] = 255
        return planes
