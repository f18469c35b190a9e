"""Both agents learn from an image beside a vector, where each says half of the right action."""

from __future__ import annotations

import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.agents import table as agents
from seedzero.config import config as configs
from seedzero.config import options
from seedzero.core import types
from seedzero.replay import data as sources
from seedzero.replay import windows as windowing

SPEC = types.EnvSpec.of_arrays(
    [types.ArraySpec("camera", (4, 4, 1), "uint8", 0, 255), types.ArraySpec("goal", (2,), "float32")], num_actions=4
)
BATCH, MAX_ROUNDS = 64, 300
AGENTS: dict[str, dict[str, options.Value]] = {
    "muzero": {
        "network.width": 32,
        "network.head_width": 32,
        "network.num_bins": 21,
        "network.support_limit": 2.0,
        "search.num_simulations": 4,
        "muzero.unroll_steps": 1,
        "muzero.n_step": 1,
        "optimizer.learning_rate": 5e-3,
    },
    "vtrace": {
        "vtrace.width": 32,
        "vtrace.unroll_length": 1,
        "vtrace.batch_size": BATCH,
        "vtrace.learning_rate": 5e-3,
        "vtrace.optimizer": "adam",
        "vtrace.clip_norm": 1.0,
        "vtrace.entropy_weight": 0.01,
    },
}


def _show(lit: np.ndarray, goal: np.ndarray) -> dict[str, np.ndarray]:
    """Returns a camera that shows one half lit, left or right, and a goal of either sign, both [B] of 0 or 1."""
    camera = np.zeros((len(lit), 4, 4, 1), np.uint8)
    camera[lit == 0, :, :2] = camera[lit == 1, :, 2:] = 255
    return {"camera": camera, "goal": np.stack([20.0 * goal - 10.0, np.ones(len(goal))], axis=1).astype(np.float32)}


def _windows(agent: base.Agent, seen: dict[str, np.ndarray], reward: np.ndarray, stored: Any) -> windowing.Windows:
    """Returns episodes of one step as windows."""
    num_positions, num_observed = sources.num_positions(agent.data), len(sources.observed_positions(agent.data))
    positions = np.broadcast_to(np.arange(num_positions), (len(reward), num_positions))

    def repeat(x: Any, times: int) -> jax.Array:
        return jnp.repeat(jnp.asarray(x)[:, None], times, axis=1)

    return windowing.Windows(
        observation={name: repeat(x, num_observed) for name, x in seen.items()},
        places=jnp.zeros((len(reward), num_observed, 1), jnp.int32),
        reward=jnp.where(positions == 1, reward[:, None], 0.0),
        terminated=jnp.asarray(positions == 1),
        truncated=jnp.zeros(positions.shape, bool),
        first=jnp.asarray(positions == 0),
        stored={name: repeat(x, num_positions) for name, x in stored.items()},
        valid=jnp.asarray(positions <= 1),
        weight=jnp.ones(len(reward)),
        slot=jnp.zeros(len(reward), jnp.int32),
        time=jnp.zeros(len(reward), jnp.int32),
    )


@pytest.mark.learning
@pytest.mark.parametrize("name", ["vtrace", pytest.param("muzero", marks=pytest.mark.slow)])
def test_what_is_right_follows_from_image_and_vector_together(name: str) -> None:
    config = configs.override(configs.Config(), {"run.agent": name, **AGENTS[name]})
    agent = agents.make(config, SPEC, "cpu")
    act, init = jax.jit(agent.act), jax.jit(agent.init)
    update = jax.jit(functools.partial(agent.update, axis_name=None))
    state, random = init(jax.random.key(0)), np.random.default_rng(0)
    for number in range(MAX_ROUNDS):
        lit, goal = random.integers(0, 2, (2, BATCH))
        keys = jax.random.split(jax.random.key(number))
        explore = jnp.arange(BATCH) >= BATCH // 4  # the others show what it has learned
        inputs = agent_cases.inputs(_show(lit, goal), 4, first=jnp.ones(BATCH, bool), explore=explore)
        _, outputs = act(agent.acting(state), agent.initial_memory(BATCH), inputs, keys[0])
        is_right = np.asarray(outputs.action) == 2 * lit + goal
        if number >= 20 and np.all(is_right[: BATCH // 4]):
            return
        stored = dict(outputs.stored)
        if name == "muzero":  # it learns from any action, V-trace from its own
            stored["action"] = random.integers(0, 4, BATCH).astype(np.int32)
        reward = np.where(np.asarray(stored["action"]) == 2 * lit + goal, 1.0, -1.0).astype(np.float32)
        state, _, _ = update(state, _windows(agent, _show(lit, goal), reward, stored), key=keys[1])
    pytest.fail(f"{name} took {np.mean(is_right[: BATCH // 4]):.2f} right actions after {MAX_ROUNDS} updates")
