"""The environment that all systems step: frames of bytes, a time for each step and reset, and a count of the steps.

Every environment counts its own steps in a file that all processes share, so steps are counted in the same way for all
systems. This file needs nothing but Gymnasium and numpy, because every system's Python imports it.
"""

from __future__ import annotations

import fcntl
import functools
import mmap
import pathlib
import threading
import time
from typing import Any, NamedTuple

import gymnasium
import numpy as np

HEIGHT, WIDTH, NUM_ACTIONS = 84, 84, 6
STACK = 4
EPISODE_STEPS = 100
MOST_ENVS = 4096
SLOW_EVERY, SLOW_FACTOR = 8, 10.0
"""Where environments are unequal, one in this many takes this many times longer for a step."""
_NUM_FRAMES = 61  # a prime, so that an episode does not end where it began
_CLAIMED, _STEP, _RESET, _UNEQUAL, _HEAD = range(5)  # words of a file of counts
_lock = threading.Lock()


class Case(NamedTuple):
    """How long steps and resets take, and whether one environment in eight takes ten times as long for a step."""

    step_seconds: float = 0.0
    reset_seconds: float = 0.0
    unequal: bool = False


class Counts:
    """A file that all processes share: the case, the number of environments that step, and the steps of each."""

    def __init__(self, path: str | pathlib.Path) -> None:
        """Opens a file of `make`."""
        self._path = path
        with open(path, "r+b") as file:
            self.words = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")

    @classmethod
    def make(cls, path: str | pathlib.Path) -> Counts:
        """Writes a file without steps."""
        pathlib.Path(path).write_bytes(bytes(8 * (_HEAD + MOST_ENVS)))
        return cls(path)

    def set(self, case: Case) -> None:
        """Sets the times of all environments from their next steps and resets on."""
        self.words[_STEP], self.words[_RESET] = round(1e9 * case.step_seconds), round(1e9 * case.reset_seconds)
        self.words[_UNEQUAL] = int(case.unequal)

    def steps(self) -> np.ndarray:
        """Returns the steps of each environment that has stepped, int64."""
        return np.array(self.words[_HEAD : _HEAD + self.words[_CLAIMED]], np.int64)

    def claim(self) -> int:
        """Returns the number of an environment that begins to step: 0, 1, ... in the order of first steps."""
        with _lock, open(self._path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            index = self.words[_CLAIMED]
            if index == MOST_ENVS:
                raise RuntimeError(f"more than {MOST_ENVS} environments have stepped; {self._path} is full")
            self.words[_CLAIMED] = index + 1
        return index


_opened = functools.cache(Counts)


@functools.cache
def _observations(stack: int, channels_last: bool) -> np.ndarray:
    """Returns what every environment shows in turn, [61, *shape] uint8; newest frames do not depend on the stack."""
    frames = np.random.default_rng(0).integers(256, size=(_NUM_FRAMES, HEIGHT, WIDTH), dtype=np.uint8)
    if stack == 1:
        return frames
    stacked = np.stack([np.roll(frames, shift, axis=0) for shift in range(stack - 1, -1, -1)], axis=1)
    return np.ascontiguousarray(np.moveaxis(stacked, 1, -1)) if channels_last else stacked


class MockEnv(gymnasium.Env[np.ndarray, Any]):
    """Episodes of 100 steps; an environment's first one is shorter, so that episodes do not end all at once.

    Args:
      counts: file of `Counts.make`, which also says how long steps and resets take.
      stack: frames in an observation, [stack, 84, 84] uint8; 1 shows the newest alone, [84, 84].
      channels_last: shows [84, 84, stack].
    """

    action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)

    def __init__(self, counts: str, stack: int = 1, channels_last: bool = False) -> None:
        self._shown = _observations(stack, channels_last)
        self.observation_space = gymnasium.spaces.Box(0, 255, self._shown.shape[1:], np.uint8)
        self._counts = _opened(counts)
        self._words = self._counts.words
        self._index = -1  # claimed by the first step, so that environments that others only look at don't count
        self._left, self._place, self._was_reset = EPISODE_STEPS, 0, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Takes no time the first time, which belongs to the start."""
        super().reset(seed=seed)
        if self._was_reset and (nanoseconds := self._words[_RESET]):
            time.sleep(1e-9 * nanoseconds)
        self._was_reset, self._left = True, EPISODE_STEPS
        return self._show(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._index < 0:
            self._index = self._counts.claim()
            self._place, self._left = 7 * self._index, 1 + 37 * self._index % EPISODE_STEPS
        if nanoseconds := self._words[_STEP]:
            is_slow = self._words[_UNEQUAL] and self._index % SLOW_EVERY == 0
            time.sleep(1e-9 * nanoseconds * (SLOW_FACTOR if is_slow else 1.0))
        self._words[_HEAD + self._index] += 1
        self._left -= 1
        self._place += 1
        reward = float(int(action) == self._place % NUM_ACTIONS)
        return self._show(), reward, self._left <= 0, False, {}

    def _show(self) -> np.ndarray:
        shown: np.ndarray = self._shown[self._place % _NUM_FRAMES].copy()
        return shown


make = MockEnv
"""For --env=python:mock_env:make."""
