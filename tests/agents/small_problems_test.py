"""Small problems that agents learn: MuZero and V-trace by their functions alone, V-trace and PPO by the device's.

The device's acting and updating are paced by a queue, as in a run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import agent_table, base, muzero
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.device import acting, batches, meshes, setups, states, steps
from seedzero.learner.loop import queue_rate
from seedzero.replay import sources, windowing

NUM_ENVS = 32
ROWS, COLUMNS = 6, 5


class _Catch:
    """A ball falls through ROWS rows; +1 where the paddle ends below it, else -1. Shows row, ball and paddle."""

    spec = types.EnvSpec((3,), "float32", 3)
    length = ROWS

    def __init__(self, ball: np.ndarray) -> None:
        self.ball, self.row, self.paddle = ball, 0, np.full(len(ball), COLUMNS // 2)

    def show(self) -> np.ndarray:
        middle = COLUMNS // 2
        row = np.full(len(self.ball), self.row / 2 - 1)
        return np.stack([row, (self.ball - middle) / 2, (self.paddle - middle) / 2], axis=1).astype(np.float32)

    def step(self, action: np.ndarray) -> np.ndarray:
        """Returns rewards [E]."""
        self.row += 1
        self.paddle = np.clip(self.paddle + action - 1, 0, COLUMNS - 1)
        caught = np.where(self.paddle == self.ball, 1.0, -1.0)
        return caught * (self.row == ROWS - 1)


class _Recall:
    """Shows a random bit at each step; +1 for the action that repeats the bit of `DELAY` steps ago."""

    DELAY = 2
    spec = types.EnvSpec((2,), "float32", 2)
    length = 12
    best = length - 1 - DELAY
    """The largest return; half of it is chance."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._bits = [random.integers(0, 2, NUM_ENVS)]

    def show(self) -> np.ndarray:
        return np.eye(2, dtype=np.float32)[self._bits[-1]]

    def step(self, action: np.ndarray) -> np.ndarray:
        num_shown = len(self._bits)
        wanted = self._bits[num_shown - 1 - self.DELAY] if num_shown > self.DELAY else np.full(NUM_ENVS, -1)
        self._bits.append(self._random.integers(0, 2, NUM_ENVS))
        return np.where(action == wanted, 1.0, 0.0)


# By an agent's functions alone --------------------------------------------------------------------------------------

NUM_EPISODES, NUM_WINDOWS = 32, 64


def _muzero_config(policy: str) -> configs.Config:
    return configs.override(
        configs.Config(),
        {
            "search.policy": policy,
            "search.num_simulations": 8,
            "network.width": 32,
            "network.head_width": 32,
            "network.num_bins": 21,
            "network.support_limit": 2.0,
            "muzero.unroll_steps": 3,
            "muzero.n_step": ROWS,
            "optimizer.learning_rate": 5e-3,
        },
    )


def _play(act: Any, params: Any, key: jax.Array, ball: np.ndarray, explore: bool) -> dict[str, np.ndarray]:
    """Returns one episode for each ball, position by position: arrays [episodes, ROWS, ...]."""
    env = _Catch(ball)
    reward, rows = np.zeros(len(ball)), []
    for _ in range(ROWS):
        key, act_key = jax.random.split(key)
        inputs = agent_cases.inputs(
            env.show(),
            reward=jnp.asarray(reward, jnp.float32),
            first=jnp.full(len(ball), env.row == 0),
            action_mode=jnp.full(len(ball), explore),
        )
        _, outputs = act(params, (), inputs, act_key)
        rows.append({"observation": env.show(), "reward": reward, **outputs.stored})
        reward = env.step(np.asarray(outputs.action))
    return {name: np.stack([np.asarray(row[name]) for row in rows], axis=1) for name in rows[0]}


def _sample(random: np.random.Generator, episodes: dict[str, np.ndarray], length: int) -> windowing.Windows:
    """Returns windows that begin anywhere but at the end of an episode."""
    slot = random.integers(0, len(episodes["reward"]), NUM_WINDOWS)
    time = random.integers(0, ROWS - 1, NUM_WINDOWS)
    positions = time[:, None] + np.arange(length)
    at = (slot[:, None], np.minimum(positions, ROWS - 1))
    return agent_cases.windows(
        episodes["observation"][slot, time][:, None],
        reward=episodes["reward"][at],
        terminated=positions == ROWS - 1,
        first=positions == 0,
        stored={name: episodes[name][at] for name in ("action", "policy", "value")},
        valid=positions < ROWS,
    )


@pytest.mark.learning
@pytest.mark.parametrize("policy", ["gumbel", pytest.param("puct", marks=pytest.mark.slow)])
def test_acting_and_updating_learn_to_catch_every_ball(policy: str) -> None:
    agent = muzero.make(_muzero_config(policy), _Catch.spec, "cpu")
    act = jax.jit(agent.act)
    update = jax.jit(lambda state, windows, key: agent.update(state, windows, key, None), donate_argnums=0)
    random, key = np.random.default_rng(0), jax.random.key(0)
    state = jax.jit(agent.init)(key)
    played: list[dict[str, np.ndarray]] = []
    every_ball = np.arange(NUM_EPISODES) % COLUMNS
    mean_return = -1.0
    for _ in range(60):
        key, play_key = jax.random.split(key)
        played.append(_play(act, state.params, play_key, random.integers(0, COLUMNS, NUM_EPISODES), explore=True))
        episodes = {name: np.concatenate([part[name] for part in played[-10:]]) for name in played[0]}
        for _ in range(30):
            key, update_key = jax.random.split(key)
            state, _, metrics = update(state, _sample(random, episodes, agent.data.length), update_key)
        assert metrics["num_rejected"] == 0
        evaluation = _play(act, state.params, key, every_ball, explore=False)
        mean_return = evaluation["reward"].sum(axis=1).mean()
        if mean_return == 1.0:
            break
    assert mean_return == 1.0


# An image beside a vector: each says half of the right action -------------------------------------------------------

HALVES = types.EnvSpec.of_arrays(
    [types.ArraySpec("camera", (4, 4, 1), "uint8", 0, 255), types.ArraySpec("goal", (2,), "float32")], num_actions=4
)
MAX_ROUNDS = 300
_HALVES_SETTINGS: dict[str, options.Value] = {
    "run.agent": "vtrace",
    "network.width": 32,
    "vtrace.unroll_length": 1,
    "vtrace.batch_size": NUM_WINDOWS,
    "optimizer.learning_rate": 5e-3,
    "optimizer.kind": "adam",
    "optimizer.clip_norm": 1.0,
    "vtrace.entropy_weight": 0.01,
}


def _halves(lit: np.ndarray, goal: np.ndarray) -> dict[str, np.ndarray]:
    """Returns a camera that shows one half lit, left or right, and a goal of either sign, both [B] of 0 or 1."""
    camera = np.zeros((len(lit), 4, 4, 1), np.uint8)
    camera[lit == 0, :, :2] = camera[lit == 1, :, 2:] = 255
    return {"camera": camera, "goal": np.stack([20.0 * goal - 10.0, np.ones(len(goal))], axis=1).astype(np.float32)}


def _windows_of_one_step(
    agent: base.Agent, seen: dict[str, np.ndarray], reward: np.ndarray, stored: Any
) -> windowing.Windows:
    """Returns episodes of one step as windows."""
    num_positions, num_observed = sources.num_positions(agent.data), len(sources.observed_positions(agent.data))
    positions = np.broadcast_to(np.arange(num_positions), (len(reward), num_positions))

    def repeat(x: Any, times: int) -> np.ndarray:
        return np.repeat(np.asarray(x)[:, None], times, axis=1)

    windows = agent_cases.windows(
        np.zeros((len(reward), num_observed)),
        reward=np.where(positions == 1, reward[:, None], 0.0),
        terminated=positions == 1,
        first=positions == 0,
        stored={name: repeat(x, num_positions) for name, x in stored.items()},
        valid=positions <= 1,
    )
    return windows._replace(observation={name: jnp.asarray(repeat(x, num_observed)) for name, x in seen.items()})


@pytest.mark.learning
def test_what_is_right_follows_from_image_and_vector_together() -> None:
    config = configs.override(configs.Config(), _HALVES_SETTINGS)
    agent = agent_table.make(config, HALVES, "cpu")
    act, init = jax.jit(agent.act), jax.jit(agent.init)
    update = jax.jit(functools.partial(agent.update, axis_name=None))
    state, random = init(jax.random.key(0)), np.random.default_rng(0)
    for number in range(MAX_ROUNDS):
        lit, goal = random.integers(0, 2, (2, NUM_WINDOWS))
        keys = jax.random.split(jax.random.key(number))
        explore = jnp.arange(NUM_WINDOWS) >= NUM_WINDOWS // 4  # the others show what it has learned
        inputs = agent_cases.inputs(_halves(lit, goal), 4, first=jnp.ones(NUM_WINDOWS, bool), action_mode=explore)
        _, outputs = act(agent.acting(state), agent.initial_memory(NUM_WINDOWS), inputs, keys[0])
        is_right = np.asarray(outputs.action) == 2 * lit + goal
        if number >= 20 and np.all(is_right[: NUM_WINDOWS // 4]):
            return
        reward = np.where(np.asarray(outputs.stored["action"]) == 2 * lit + goal, 1.0, -1.0).astype(np.float32)
        state, _, _ = update(
            state, _windows_of_one_step(agent, _halves(lit, goal), reward, outputs.stored), key=keys[1]
        )
    pytest.fail(f"it took {np.mean(is_right[: NUM_WINDOWS // 4]):.2f} right actions after {MAX_ROUNDS} updates")


# By the device's functions ------------------------------------------------------------------------------------------

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
        "network.width": 32,
        "optimizer.kind": "adam",
        "optimizer.clip_norm": 1.0,
        **agent_cases.named("vtrace", changes),
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

    def __init__(self, config: configs.Config, kind: type[_Catch] | type[_Recall]) -> None:
        self._setup, init, self._act, self._update = _programs(config, kind.spec)
        self._kind, self._random = kind, np.random.default_rng(0)
        self._train = jax.device_put(init(jax.random.key(0)), meshes.replicated(self._setup.mesh))
        self._actor = states.init_actor(self._setup)
        data, layout = self._setup.agent.data, self._setup.layout
        self._pacer = queue_rate.QueueRateLimiter(data, layout, self._setup.slot_length, lock_step=True)
        self._num_acts = self._num_stored = 0
        self.num_updates = 0

    def play(self) -> float:
        """Plays one episode in each environment while it learns; returns their mean return."""
        random, total, reward = self._random, np.zeros(NUM_ENVS), np.zeros(NUM_ENVS, np.float32)
        envs = _Recall(random) if self._kind is _Recall else _Catch(random.integers(0, COLUMNS, NUM_ENVS))
        for t in range(envs.length):
            action = self._answer(envs.show(), reward, first=t == 0, final=t == envs.length - 1)
            if t < envs.length - 1:
                reward = envs.step(action)
                total += reward
        return float(total.mean())

    def _answer(self, observation: np.ndarray, reward: np.ndarray, *, first: bool, final: bool) -> np.ndarray:
        slots = np.arange(NUM_ENVS, dtype=np.int32)
        batch = batches.padding(self._kind.spec, self._setup.layout, NUM_ENVS)
        every = np.ones(NUM_ENVS, bool)
        batch = batch._replace(
            slot=slots,
            ring=slots,
            observation=observation,
            reward=np.where(first, 0, reward).astype(np.float32),
            terminated=every & final,
            first=every & first,
            action_mode=np.full(NUM_ENVS, types.EXPLORE),
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


def _learn(config: configs.Config, kind: type[_Catch] | type[_Recall], *, goal: float, max_updates: int) -> float:
    """Returns the mean return of the newest 20 rounds, once it is at least `goal` or no update is left."""
    learner, returns = _Learner(config, kind), [-np.inf] * 20
    while learner.num_updates < max_updates and np.mean(returns[-20:]) < goal:
        returns.append(learner.play())
    return float(np.mean(returns[-20:]))


@pytest.mark.learning
def test_it_learns_to_catch() -> None:
    assert _learn(_config(learning_rate=5e-3), _Catch, goal=0.9, max_updates=600) >= 0.9


@pytest.mark.learning
def test_an_lstm_learns_to_recall_an_earlier_observation() -> None:
    config = _config(lstm_width=32, learning_rate=5e-3, discount=0.0)
    assert _learn(config, _Recall, goal=0.9 * _Recall.best, max_updates=1000) >= 0.9 * _Recall.best
