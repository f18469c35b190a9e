"""Small tasks that only agents with a memory solve: a T-maze, repeated symbols, CartPole without velocities."""

from __future__ import annotations

import re

import gymnasium
import numpy as np

from seedzero.core import errors, types
from seedzero.envs import env_base, gym_env

FORWARD, UP, DOWN = 0, 1, 2
"""Actions in the T-maze."""
STANDING_COST = 0.1
NUM_SYMBOLS = 4
NUM_SCORED = 32
"""Number of steps in an episode of `Repeat` that repeat a symbol, which is the largest return."""

_LARGEST = 1000
_FORM = re.compile(r"(tmaze|repeat)-([1-9][0-9]{0,3})")
_PIXELS_PER_CELL = 16
_COLOURS = np.array([[230, 60, 60], [60, 200, 60], [70, 70, 240], [230, 200, 40]], np.uint8)
_DARK, _GREY = 0, 90


def make(name: str, num_envs: int, *, render: bool = False) -> env_base.VectorEnv:
    """Makes tmaze-LENGTH, repeat-LAG or cartpole. Raises EnvironmentFailure for other tasks."""
    check_id(name)
    if name == "cartpole":
        return gym_env.GymVectorEnv.from_factory(lambda: _cartpole(render), num_envs)
    kind, _, number = name.partition("-")
    return TMaze(int(number), num_envs) if kind == "tmaze" else Repeat(int(number), num_envs)


def check_id(name: str) -> None:
    """Raises EnvironmentFailure unless the name is that of a task."""
    found = _FORM.fullmatch(name)
    if name != "cartpole" and not (found and int(found[2]) <= _LARGEST):
        raise errors.EnvironmentFailure(
            f"there is no memory task {name!r}; expected tmaze-LENGTH, repeat-LAG (numbers from 1 to {_LARGEST}) or "
            "cartpole"
        )


def _cartpole(render: bool) -> gymnasium.Env[np.ndarray, np.int64]:
    """Returns CartPole-v1 that shows the cart's position and the pole's angle, but not their velocities."""
    env = gymnasium.make("CartPole-v1", disable_env_checker=True, render_mode="rgb_array" if render else None)
    low, high = env.observation_space.low[[0, 2]], env.observation_space.high[[0, 2]]  # type: ignore[attr-defined]
    shown = gymnasium.spaces.Box(low, high, dtype=np.float32)
    return gymnasium.wrappers.TransformObservation(env, lambda observation: observation[[0, 2]], shown)


class TMaze(env_base.ArrayEnv):
    """A corridor whose start shows which way to turn at its end (Bakker 2002, "RL with Long Short-Term Memory").

    Observations are one-hot [4]: cue up, cue down, corridor, junction. The start shows the cue, the next `length` - 1
    cells are corridor, then comes the junction. FORWARD does nothing at the junction; elsewhere UP and DOWN do
    nothing, at a cost of STANDING_COST. A turn terminates the episode with a reward of 1 if the cue showed it, else
    -1. An episode of 10 (length + 1) steps is truncated.
    """

    def __init__(self, length: int, num_envs: int) -> None:
        super().__init__(num_envs)
        self._length = length
        self.spec = types.EnvSpec((4,), "float32", 3, observation_low=0, observation_high=1)
        self._cue, self._place, self._time = np.zeros((3, num_envs), np.int64)
        self._is_over = np.zeros(num_envs, bool)

    def step(self, actions: np.ndarray) -> types.EnvStep:
        env_base.check_actions(actions, self.num_envs, self.spec)
        first, at_junction = self._is_over, self._place == self._length
        turns = at_junction & (actions != FORWARD) & ~first
        moves = ~at_junction & (actions == FORWARD)
        reward = np.where(turns, np.where(actions == self._cue, 1.0, -1.0), np.where(moves, 0.0, -STANDING_COST))
        self._place, self._time = self._place + moves, self._time + 1
        truncated = ~first & ~turns & (self._time == 10 * (self._length + 1))
        self._is_over = turns | truncated
        self._begin_episodes(first)
        return types.EnvStep(self._show(), np.where(first, 0.0, reward).astype(np.float32), turns, truncated)

    def render(self) -> np.ndarray:
        picture = np.full((3, self._length + 1, 3), _DARK, np.uint8)
        picture[1], picture[:, -1] = _GREY, _GREY
        picture[1, self._place[0]] = _COLOURS[self._cue[0] - UP] if self._place[0] == 0 else 255
        return env_base.enlarged(picture, _PIXELS_PER_CELL)

    def _begin_episodes(self, where: np.ndarray) -> None:
        self._place[where], self._time[where], self._is_over[where] = 0, 0, False
        for index in np.flatnonzero(where):
            self._cue[index] = self._generators[index].integers(UP, DOWN + 1)

    def _show(self) -> np.ndarray:
        seen = np.where(self._place == 0, self._cue - UP, np.where(self._place == self._length, 3, 2))
        return np.eye(4, dtype=np.float32)[seen]


class Repeat(env_base.ArrayEnv):
    """Shows one of NUM_SYMBOLS at every step.

    The right action is the symbol `lag` steps ago (POPGym's RepeatPrevious).

    Observations are one-hot. From step `lag` on, NUM_SCORED actions are rewarded, by 1 if they are right and 0
    otherwise; then the episode is truncated.
    """

    def __init__(self, lag: int, num_envs: int) -> None:
        super().__init__(num_envs)
        self._lag = lag
        self.spec = types.EnvSpec((NUM_SYMBOLS,), "float32", NUM_SYMBOLS, observation_low=0, observation_high=1)
        self._symbols = np.zeros((num_envs, lag + NUM_SCORED + 1), np.int64)
        self._time = np.zeros(num_envs, np.int64)

    def step(self, actions: np.ndarray) -> types.EnvStep:
        env_base.check_actions(actions, self.num_envs, self.spec)
        last = self._lag + NUM_SCORED
        first, earlier = self._time == last, np.maximum(self._time - self._lag, 0)
        is_right = ~first & (self._time >= self._lag) & (actions == self._symbols[np.arange(self.num_envs), earlier])
        self._time = self._time + 1
        self._begin_episodes(first)
        return types.EnvStep(self._show(), is_right.astype(np.float32), np.zeros_like(first), self._time == last)

    def render(self) -> np.ndarray:
        return env_base.enlarged(_COLOURS[self._symbols[:1, self._time[0]]][None], _PIXELS_PER_CELL)

    def _begin_episodes(self, where: np.ndarray) -> None:
        self._time[where] = 0
        for index in np.flatnonzero(where):
            self._symbols[index] = self._generators[index].integers(NUM_SYMBOLS, size=self._symbols.shape[1])

    def _show(self) -> np.ndarray:
        return np.eye(NUM_SYMBOLS, dtype=np.float32)[self._symbols[np.arange(self.num_envs), self._time]]
