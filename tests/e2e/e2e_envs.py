"""Environments of the end-to-end tests, as a user's own module: `--env=gym:e2e_envs:NAME-v0`."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import signal
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


class Paced(Tagged):
    """Takes its time."""

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(_PACE_SECONDS)
        return super().step(action)


class Switched(Paced):
    """Raises while the file named by E2E_RAISE exists; does as it says where it has a word."""

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        try:
            word = pathlib.Path(os.environ["E2E_RAISE"]).read_text()
        except FileNotFoundError:
            return super().step(action)
        if word == "crash":  # as an engine in C++ may; once, however soon the worker is started again
            os.unlink(os.environ["E2E_RAISE"])
            os.kill(os.getpid(), signal.SIGSEGV)
        if word != "fork":
            raise ValueError("switched to raising")
        if (child := os.fork()) == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        context = multiprocessing.get_context("fork")
        process = context.Process(target=os.getpid)
        process.start()
        process.join()
        assert process.exitcode == 0
        return super().step(action)


class Masked(gymnasium.Env[Any, np.int64]):
    """Raises for illegal actions; shows legal ones, new ones each step, in `info`, by a `method` or as a `part`.

    Nothing is legal in a terminal state. Episodes end after a few steps, by turns in a terminal state or cut off.
    """

    action_space = gymnasium.spaces.Discrete(5, start=3)

    def __init__(self, place: str = "info") -> None:
        self._place, self._step, self._episode = place, 0, 0
        self._mask = np.ones(5, np.int8)
        self.observation_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Box(0, 9, (2,), np.float32)
        if place == "part":
            parts = {"observation": self.observation_space, "action_mask": gymnasium.spaces.MultiBinary(5)}
            self.observation_space = gymnasium.spaces.Dict(parts)
        if place == "method":
            self.action_masks = lambda: self._mask.astype(bool)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step, self._episode = 0, self._episode + 1
        return self._show(is_over=False)

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._mask[action - 3]:
            raise ValueError(f"action {action} is illegal: {self._mask}")
        self._step += 1
        is_last, is_even = self._step == EPISODE_LENGTH, self._episode % 2 == 0
        observation, info = self._show(is_over=is_last and is_even)
        return observation, float(action), is_last and is_even, is_last and not is_even, info

    def _show(self, *, is_over: bool) -> tuple[Any, dict[str, Any]]:
        self._mask = (self.np_random.random(5) < 0.3).astype(np.int8)
        self._mask[self.np_random.integers(5)] = 1
        self._mask *= not is_over
        observation = np.array([self._step, self._episode % 10], np.float32)
        if self._place == "part":
            return {"observation": observation, "action_mask": self._mask.copy()}, {}
        return observation, {"action_mask": self._mask.copy()} if self._place == "info" else {}


for _kind in (Tagged, Raising, Paced, Switched, Masked):
    gymnasium.register(f"{_kind.__name__}-v0", entry_point=_kind, order_enforce=False, disable_env_checker=True)
