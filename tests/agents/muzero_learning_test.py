"""The whole of MuZero's arithmetic: acting and updating alone, without a runtime, learn a small game to perfection."""

from __future__ import annotations

from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import muzero
from seedzero.config import config as configs
from seedzero.core import types
from seedzero.replay import windows as windowing

ROWS, COLUMNS = 6, 5
SPEC = types.EnvSpec((3,), "float32", 3)
NUM_EPISODES, BATCH = 32, 64


class _Catch:
    """A ball falls through ROWS rows; +1 where the paddle ends below it, else -1. Shows row, ball and paddle."""

    def __init__(self, ball: np.ndarray) -> None:
        self.ball, self.row, self.paddle = ball, 0, np.full(len(ball), COLUMNS // 2)

    def show(self) -> np.ndarray:
        middle = COLUMNS // 2
        row = np.full(len(self.ball), self.row / 2 - 1)
        return np.stack([row, (self.ball - middle) / 2, (self.paddle - middle) / 2], axis=1).astype(np.float32)

    def step(self, action: np.ndarray) -> np.ndarray:
        self.row += 1
        self.paddle = np.clip(self.paddle + action - 1, 0, COLUMNS - 1)
        caught = np.where(self.paddle == self.ball, 1.0, -1.0)
        return caught * (self.row == ROWS - 1)


def _config(policy: str) -> configs.Config:
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
            explore=jnp.full(len(ball), explore),
        )
        _, outputs = act(params, (), inputs, act_key)
        rows.append({"observation": env.show(), "reward": reward, **outputs.stored})
        reward = env.step(np.asarray(outputs.action))
    return {name: np.stack([np.asarray(row[name]) for row in rows], axis=1) for name in rows[0]}


def _sample(random: np.random.Generator, episodes: dict[str, np.ndarray], length: int) -> windowing.Windows:
    """Returns windows that begin anywhere but at the end of an episode."""
    slot = random.integers(0, len(episodes["reward"]), BATCH)
    time = random.integers(0, ROWS - 1, BATCH)
    positions = time[:, None] + np.arange(length)
    at = (slot[:, None], np.minimum(positions, ROWS - 1))
    return windowing.Windows(
        observation={types.OBSERVATION: jnp.asarray(episodes["observation"][slot, time])[:, None]},
        places=jnp.zeros((BATCH, 1, 1), jnp.int32),
        reward=jnp.asarray(episodes["reward"][at], jnp.float32),
        terminated=jnp.asarray(positions == ROWS - 1),
        truncated=jnp.zeros(positions.shape, bool),
        first=jnp.asarray(positions == 0),
        stored={name: jnp.asarray(episodes[name][at]) for name in ("action", "policy", "value")},
        valid=jnp.asarray(positions < ROWS),
        weight=jnp.ones(BATCH),
        slot=jnp.asarray(slot, jnp.int32),
        time=jnp.asarray(time, jnp.int32),
    )


@pytest.mark.learning
@pytest.mark.parametrize("policy", ["gumbel", pytest.param("puct", marks=pytest.mark.slow)])
def test_acting_and_updating_learn_to_catch_every_ball(policy: str) -> None:
    agent = muzero.make(_config(policy), SPEC, "cpu")
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
