"""V-trace with an LSTM: unrolls on stored states repeat the acting; episodes begin anew."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import vtrace_cases as cases

from seedzero.agents import base, learning, vtrace
from seedzero.config import shared
from seedzero.networks import actor_critic
from seedzero.replay import windows as windowing

CONFIG = cases.make_config(lstm_width=6)


class _Recurrent(NamedTuple):
    """The agent, its functions jitted, and a state of clear preferences."""

    agent: base.Agent
    act: Any
    update: Any
    state: learning.TrainState


@functools.cache
def _recurrent() -> _Recurrent:
    agent = vtrace.make(CONFIG, cases.SPEC, "cpu")
    state = jax.jit(agent.init)(jax.random.key(0))

    def wave(x: jax.Array) -> jax.Array:
        return x + 0.3 * np.sin(1 + np.arange(x.size, dtype=np.float32)).reshape(x.shape)

    update = jax.jit(lambda state, windows: agent.update(state, windows, jax.random.key(0), None))
    return _Recurrent(agent, jax.jit(agent.act), update, state._replace(params=jax.tree.map(wave, state.params)))


@functools.cache
def _played(num_rows: int = 12) -> windowing.Windows:
    """Returns all rows of three environments as one window each; two of them begin another episode within."""
    agent, act, _, state = _recurrent()
    random = np.random.default_rng(3)
    shape = (cases.BATCH, num_rows)
    terminated, truncated, first = (np.zeros(shape, bool) for _ in range(3))
    first[:, 0], terminated[1, 6], first[1, 7], truncated[2, 5], first[2, 6] = True, True, True, True, True
    observation = random.normal(size=(*shape, 2)).astype(np.float32)
    reward = np.where(first, 0, random.normal(size=shape)).astype(np.float32)
    memory, rows = agent.initial_memory(cases.BATCH), []
    # The first state is not 0: that an episode begins must be seen.
    memory = memory._replace(state=jnp.ones_like(memory.state))
    for t in range(num_rows):
        inputs = agent_cases.inputs(
            observation[:, t], reward=jnp.asarray(reward[:, t]), first=jnp.asarray(first[:, t])
        )
        memory, outputs = act(state.params, memory, inputs, jax.random.key(t))
        rows.append(outputs.stored)
    windows = cases.make_windows()._replace(
        reward=jnp.asarray(reward),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated),
        first=jnp.asarray(first),
        stored=jax.tree.map(lambda *row: jnp.stack(row, axis=1), *rows),
    )
    return agent_cases.show(windows, observation)


def _from(windows: windowing.Windows, start: int) -> windowing.Windows:
    """Returns the part of the windows of L + 1 positions from `start` on."""
    return jax.tree.map(lambda x: x[:, start : start + cases.LENGTH + 1] if x.ndim > 1 else x, windows)


@pytest.mark.parametrize("start", [0, 3, 5, 6, 7])
def test_unrolling_from_the_stored_state_is_what_acting_did(start: int) -> None:
    """On the acting parameters, all importance weights are 1: the policies agree, over ends of episodes too."""
    _, _, update, state = _recurrent()
    windows = _from(_played(), start)
    network = actor_critic.actor_critic(shared.Layers("vtrace", width=8, lstm_width=6), cases.SPEC, "cpu")
    parts = cases.linear_parts(CONFIG)._replace(network=network)
    logits, _ = jax.jit(functools.partial(vtrace._unroll, parts))(state.params, windows)
    np.testing.assert_allclose(logits, windows.stored["logits"], atol=1e-5)
    assert np.ptp(logits, axis=(0, 1)).min() > 0.05
    _, _, metrics = update(state, windows)
    np.testing.assert_allclose(metrics["importance_mean"], 1.0, rtol=1e-5)


def _importance(windows: windowing.Windows) -> float:
    _, _, update, state = _recurrent()
    return float(update(state, windows)[2]["importance_mean"])


def test_an_unroll_begins_from_the_state_of_its_first_row_alone() -> None:
    windows = _from(_played(), 2)
    stored = windows.stored["state"]
    later = agent_cases.store(windows, state=stored.at[:, 1:].set(9.0))
    assert _importance(later) == _importance(windows)
    assert abs(_importance(agent_cases.store(windows, state=stored.at[:, 0].set(-stored[:, 0]))) - 1) > 1e-4


def test_the_state_before_an_episode_does_not_count() -> None:
    windows = _from(_played(), 0)
    changed = agent_cases.store(windows, state=windows.stored["state"] + 5.0)
    np.testing.assert_allclose(_importance(changed), 1.0, rtol=1e-5)


def test_the_last_action_and_the_last_reward_enter() -> None:
    windows = _from(_played(), 2)
    action = agent_cases.store(windows, last_action=(windows.stored["last_action"] + 1) % 3)
    assert abs(_importance(action) - 1) > 1e-4
    reward = windows._replace(reward=windows.reward.at[:, 0].set(-windows.reward[:, 0]))
    assert abs(_importance(reward) - 1) > 1e-4


def test_rows_store_the_action_before_and_the_state_before() -> None:
    windows = _played()
    np.testing.assert_array_equal(windows.stored["last_action"][:, 1:], windows.stored["action"][:, :-1])
    _, act, _, state = _recurrent()
    memory = vtrace.VtraceMemory(windows.stored["state"][:, 4], windows.stored["last_action"][:, 4])
    inputs = agent_cases.inputs(
        agent_cases.shown(windows)[:, 4], reward=windows.reward[:, 4], explore=jnp.zeros(cases.BATCH, bool)
    )
    after, _ = act(state.params, memory, inputs, jax.random.key(0))
    np.testing.assert_allclose(after.state, windows.stored["state"][:, 5], atol=1e-6)
