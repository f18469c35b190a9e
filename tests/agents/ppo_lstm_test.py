"""PPO with an LSTM: unrolls on stored states repeat the acting; episodes begin anew; minibatches are whole unrolls."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import ppo_cases as cases
import pytest

from seedzero.agents import base, learning, ppo
from seedzero.core import types
from seedzero.replay import windows as windowing

UNITS, ROWS = 6, 12
CONFIG = cases.make_config(lstm_width=UNITS, width=8)


class _Recurrent(NamedTuple):
    """The agent, its functions jitted, and a state of clear preferences."""

    agent: base.Agent
    act: Any
    update: Any
    state: ppo.PpoTrainState


@functools.cache
def _recurrent(spec: types.EnvSpec) -> _Recurrent:
    agent = ppo.make(CONFIG, spec, "cpu")
    state = jax.jit(agent.init)(jax.random.key(0))

    def wave(x: jax.Array) -> jax.Array:
        return x + 0.3 * np.sin(1 + np.arange(x.size, dtype=np.float32)).reshape(x.shape)

    update = jax.jit(lambda state, windows: agent.update(state, windows, jax.random.key(0), None))
    return _Recurrent(agent, jax.jit(agent.act), update, state._replace(params=jax.tree.map(wave, state.params)))


@functools.cache
def _played(spec: types.EnvSpec) -> windowing.Windows:
    """Returns all rows of three environments as one window each; two of them begin another episode within."""
    agent, act, _, state = _recurrent(spec)
    random = np.random.default_rng(3)
    shape = (cases.BATCH, ROWS)
    terminated, truncated, first = (np.zeros(shape, bool) for _ in range(3))
    first[:, 0], terminated[1, 6], first[1, 7], truncated[2, 5], first[2, 6] = True, True, True, True, True
    observation = random.normal(size=(*shape, 2)).astype(np.float32)
    reward = np.where(first, 0, random.normal(size=shape)).astype(np.float32)
    memory, rows = agent.initial_memory(cases.BATCH), []
    # The first state is not 0: that an episode begins must be seen.
    memory = memory._replace(past=jax.tree.map(jnp.ones_like, memory.past))
    for t in range(ROWS):
        inputs = agent_cases.inputs(
            observation[:, t], spec.num_actions, reward=jnp.asarray(reward[:, t]), first=jnp.asarray(first[:, t])
        )
        memory, outputs = act(agent.acting(state), memory, inputs, jax.random.key(t))
        rows.append(outputs.stored)
    windows = cases.make_windows(spec)._replace(
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


def _divergence(windows: windowing.Windows, spec: types.EnvSpec = cases.SPEC) -> float:
    """Returns the estimate of the divergence of the unrolled policy from the one that acted, before the first step."""
    _, _, update, state = _recurrent(spec)
    return float(update(state, windows)[2]["policy_kl"])


@pytest.mark.parametrize("start", [0, 3, 5, 6, 7])
@pytest.mark.parametrize("spec", [cases.SPEC, cases.VECTORS], ids=["numbers", "vectors"])
def test_unrolling_from_the_stored_state_is_what_acting_did(spec: types.EnvSpec, start: int) -> None:
    """On the acting parameters all ratios are 1, over ends of episodes too."""
    windows = _from(_played(spec), start)
    assert abs(_divergence(windows, spec)) < 1e-6
    assert np.ptp(windows.stored["value"]) > 0.05


def test_an_unroll_begins_from_the_state_of_its_first_row_alone() -> None:
    windows = _from(_played(cases.SPEC), 2)
    stored = windows.stored["state"]
    later = agent_cases.store(windows, state=stored.at[:, 1:].set(9.0))
    assert abs(_divergence(later)) < 1e-6
    assert _divergence(agent_cases.store(windows, state=stored.at[:, 0].set(-stored[:, 0]))) > 1e-5


def test_the_state_before_an_episode_does_not_count() -> None:
    windows = _from(_played(cases.SPEC), 0)
    changed = agent_cases.store(windows, state=windows.stored["state"] + 5.0)
    assert abs(_divergence(changed)) < 1e-6


@pytest.mark.parametrize("spec", [cases.SPEC, cases.VECTORS], ids=["numbers", "vectors"])
def test_the_last_action_and_the_last_reward_enter(spec: types.EnvSpec) -> None:
    windows = _from(_played(spec), 2)
    last_action = windows.stored["last_action"]
    other = -last_action if spec.is_continuous else (last_action + 1) % 3
    assert _divergence(agent_cases.store(windows, last_action=other), spec) > 1e-5
    reward = windows._replace(reward=windows.reward.at[:, 0].set(-windows.reward[:, 0]))
    assert _divergence(reward, spec) > 1e-5


def test_rows_store_the_action_before_as_the_environment_had_it_and_the_state_before() -> None:
    numbers, vectors = (_played(spec).stored for spec in (cases.SPEC, cases.VECTORS))
    np.testing.assert_array_equal(numbers["last_action"][:, 1:], numbers["action"][:, :-1])
    np.testing.assert_array_equal(vectors["last_action"][:, 1:], np.clip(vectors["action"][:, :-1], -1, 1))
    assert numbers["state"].shape == (cases.BATCH, ROWS, 2 * UNITS)
    assert np.any(numbers["state"][:, 5] != numbers["state"][:, 4])


def test_a_minibatch_is_of_whole_unrolls() -> None:
    config = cases.make_config(lstm_width=UNITS, width=8, num_minibatches=3, num_epochs=2, normalize_rewards=True)
    agent = ppo.make(config, cases.SPEC, "cpu")
    assert agent.reads_reward and not ppo.make(cases.make_config(width=8), cases.SPEC, "cpu").reads_reward
    windows = agent_cases.store(_from(_played(cases.SPEC), 4), **{"return": jnp.ones((cases.BATCH, 5))})
    parts = cases.linear_parts(config)
    returns = jax.jit(agent.init)(jax.random.key(0)).returns
    steps = jax.jit(lambda windows: ppo._steps(parts, returns, windows))(windows)
    for name in ("action", "log_prob", "value"):
        np.testing.assert_array_equal(getattr(steps, name), windows.stored[name][:, :-1])
    np.testing.assert_array_equal(steps.state, windows.stored["state"][:, 0])
    np.testing.assert_array_equal(steps.seen.first, windows.first[:, :-1])
    rows = np.asarray(
        learning.minibatches(jax.random.key(0), len(steps.counted), config.ppo.num_minibatches, config.ppo.num_epochs)
    )
    assert rows.shape == (6, 1) and sorted(rows[:3, 0]) == sorted(rows[3:, 0]) == [0, 1, 2]
