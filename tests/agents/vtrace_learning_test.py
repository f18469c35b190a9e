"""The whole of V-trace's arithmetic: the device's acting and updating, paced by a queue, learn two small problems.

PPO with its LSTM learns the one that needs a memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
import pytest

from seedzero.config import config as configs
from seedzero.config import options
from seedzero.core import types
from seedzero.device import acting, steps
from seedzero.device import batch as batches
from seedzero.device import mesh as meshes
from seedzero.device import setup as setups
from seedzero.device import state as states
from seedzero.loop import queue_pacing

NUM_ENVS = 32


class _Envs(Protocol):
    """Environments that step together; all their episodes have one length."""

    spec: types.EnvSpec
    length: int

    def reset(self) -> np.ndarray:
        """Returns first observations [E, ...] of new episodes."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns observations [E, ...] and rewards [E]."""


class _Catch:
    """A ball falls through six rows of five; +1 for the paddle below it, else -1. Shows row, ball and paddle."""

    spec = types.EnvSpec((3,), "float32", 3)
    length = 6

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def reset(self) -> np.ndarray:
        self._row, self._ball = 0, self._random.integers(0, 5, NUM_ENVS)
        self._paddle = np.full(NUM_ENVS, 2)
        return self._show()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self._row += 1
        self._paddle = np.clip(self._paddle + action - 1, 0, 4)
        caught = np.where(self._paddle == self._ball, 1.0, -1.0)
        return self._show(), caught * (self._row == self.length - 1)

    def _show(self) -> np.ndarray:
        row = np.full(NUM_ENVS, self._row / 2 - 1)
        return np.stack([row, (self._ball - 2) / 2, (self._paddle - 2) / 2], axis=1).astype(np.float32)


class _Recall:
    """Shows a random bit at each step; +1 for the action that repeats the bit of `DELAY` steps ago."""

    DELAY = 2
    spec = types.EnvSpec((2,), "float32", 2)
    length = 12

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def reset(self) -> np.ndarray:
        self._bits: list[np.ndarray] = []
        return self._show()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        num_shown = len(self._bits)
        wanted = self._bits[num_shown - 1 - self.DELAY] if num_shown > self.DELAY else np.full(NUM_ENVS, -1)
        return self._show(), np.where(action == wanted, 1.0, 0.0)

    def _show(self) -> np.ndarray:
        self._bits.append(self._random.integers(0, 2, NUM_ENVS))
        return np.eye(2, dtype=np.float32)[self._bits[-1]]

    @property
    def best(self) -> int:
        """The largest return; half of it is chance."""
        return self.length - 1 - self.DELAY


_SEED = np.int32(0)
"""Of the calls; that of a run is in the first parameters, and in the number of the first call."""


def _config(**changes: options.Value) -> configs.Config:
    values: dict[str, options.Value] = {
        "run.agent": "vtrace",
        "worker.envs_per_group": NUM_ENVS,
        "batcher.max_batch": NUM_ENVS,
        "replay.num_slots": NUM_ENVS,
        "evaluation.every_updates": 0,
        "vtrace.unroll_length": 10,
        "vtrace.batch_size": NUM_ENVS,
        "vtrace.max_lag": 1,
        "vtrace.width": 32,
        "vtrace.optimizer": "adam",
        "vtrace.clip_norm": 1.0,
        **{f"vtrace.{name}": value for name, value in changes.items()},
    }
    return configs.override(configs.Config(), values)


class _Programs(NamedTuple):
    """A setup and its device functions."""

    setup: setups.Setup
    init: Callable[..., Any]
    act: Callable[..., Any]
    update: Callable[..., Any]


@functools.cache
def _programs(config: configs.Config, spec: types.EnvSpec) -> _Programs:
    setup = setups.make(config, spec, meshes.make(1))
    return _Programs(setup, jax.jit(setup.agent.init), acting.make_act(setup), steps.make_update(setup))


class _Learner:
    """The device's functions in one thread: every environment acts, then every full batch is learned from."""

    def __init__(self, config: configs.Config, envs: _Envs, seed: int) -> None:
        self._setup, init, self._act, self._update = _programs(config, envs.spec)
        self._envs = envs
        self._train = jax.device_put(init(jax.random.key(seed)), meshes.replicated(self._setup.mesh))
        self._actor = states.init_actor(self._setup)
        data, layout = self._setup.agent.data, self._setup.layout
        self._pacer = queue_pacing.QueuePacer(data, layout, self._setup.slot_length, lock_step=True)
        self._num_acts, self._num_stored = seed * 1_000_000, 0
        self.num_updates = 0

    def play(self) -> float:
        """Plays one episode in each environment while it learns; returns their mean return."""
        observation, total = self._envs.reset(), np.zeros(NUM_ENVS)
        reward = np.zeros(NUM_ENVS, np.float32)
        for t in range(self._envs.length):
            action = self._answer(observation, reward, first=t == 0, final=t == self._envs.length - 1)
            if t < self._envs.length - 1:
                observation, reward = self._envs.step(action)
                total += reward
        return float(total.mean())

    def _answer(self, observation: np.ndarray, reward: np.ndarray, *, first: bool, final: bool) -> np.ndarray:
        slots = np.arange(NUM_ENVS, dtype=np.int32)
        batch = batches.padding(self._envs.spec, self._setup.layout, NUM_ENVS)
        every = np.ones(NUM_ENVS, bool)
        batch = batch._replace(
            slot=slots,
            ring=slots,
            observation=observation,
            reward=np.where(first, 0, reward).astype(np.float32),
            terminated=every & final,
            first=every & first,
            explore=np.full(NUM_ENVS, types.EXPLORE),
        )
        counters = steps.counters(self._num_stored, self.num_updates, self._num_acts)
        params = self._setup.agent.acting(self._train)
        self._actor, acted = self._act(_SEED, params, self._actor, batch, counters)
        self._num_acts += 1
        self._num_stored += 0 if first else NUM_ENVS
        self._pacer.record(slots, np.zeros_like(slots), batch.first, 0.0)
        while self._pacer.holds(slots):
            self._learn()
        return np.asarray(acted)

    def _learn(self) -> None:
        feed = self._pacer.feed(self._num_stored, 0.0)
        self._train, rings, metrics = self._update(_SEED, self._train, self._actor.rings, feed)
        self._actor = self._actor._replace(rings=rings)
        self.num_updates += 1
        assert metrics["num_rejected"] == 0 and metrics["policy_lag_max"] <= 1
        waiting = self._pacer.num_waiting
        assert self._pacer.num_samples(self.num_updates, self._num_stored) == self._num_stored - waiting


def _learn(config: configs.Config, envs: _Envs, seed: int, *, goal: float, max_updates: int) -> float:
    """Returns the mean return of the newest 20 rounds, once it is at least `goal` or no update is left."""
    learner, returns = _Learner(config, envs, seed), [-np.inf] * 20
    while learner.num_updates < max_updates and np.mean(returns[-20:]) < goal:
        returns.append(learner.play())
    return float(np.mean(returns[-20:]))


@pytest.mark.learning
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("lstm_width", [0, pytest.param(32, marks=pytest.mark.slow)])
def test_it_learns_to_catch(lstm_width: int, seed: int) -> None:
    config = _config(lstm_width=lstm_width, learning_rate=5e-3)
    assert _learn(config, _Catch(seed), seed, goal=0.9, max_updates=600) >= 0.9


@pytest.mark.learning
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_lstm_learns_to_recall_an_earlier_observation(seed: int) -> None:
    envs = _Recall(seed)
    config = _config(lstm_width=32, learning_rate=5e-3, discount=0.0)
    assert _learn(config, envs, seed, goal=0.9 * envs.best, max_updates=1000) >= 0.9 * envs.best


@pytest.mark.slow  # ppo_lstm_test.py unrolls the LSTM as it acted
@pytest.mark.learning
def test_ppo_with_an_lstm_learns_to_recall_an_earlier_observation() -> None:
    envs = _Recall(0)
    values: dict[str, options.Value] = {
        "run.agent": "ppo",
        "ppo.unroll_length": 24,  # two episodes
        "ppo.batch_size": NUM_ENVS,
        "ppo.width": 32,
        "ppo.lstm_width": 32,
        "ppo.learning_rate": 5e-3,
        "ppo.discount": 0.0,
        "ppo.entropy_weight": 0.0,
    }
    config = configs.override(_config(), values)
    assert _learn(config, envs, 0, goal=0.9 * envs.best, max_updates=100) >= 0.9 * envs.best


@pytest.mark.slow
@pytest.mark.learning
def test_without_an_lstm_nothing_earlier_is_recalled() -> None:
    envs = _Recall(0)
    config = _config(learning_rate=5e-3, discount=0.0)
    assert _learn(config, envs, 0, goal=0.6 * envs.best, max_updates=300) < 0.6 * envs.best
