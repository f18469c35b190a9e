"""V-trace and PPO with an LSTM: unrolls on stored states repeat the acting; episodes begin anew."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import actor_critic_cases as cases  # beside this file: see conftest.py
import agent_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import agent_table, base, learning, ppo, vtrace
from seedzero.config import shared
from seedzero.core import types
from seedzero.networks import actor_critic
from seedzero.replay import windowing

UNITS, ROWS = 6, 12
NUMBERS = [("vtrace", cases.SPEC), ("ppo", cases.SPEC)]
ALL = [*NUMBERS, ("ppo", cases.VECTORS)]
every_agent = pytest.mark.parametrize(("name", "spec"), NUMBERS, ids=["vtrace", "ppo"])
every_action = pytest.mark.parametrize(("name", "spec"), ALL, ids=["vtrace", "ppo", "ppo, vectors"])


class _Recurrent(NamedTuple):
    """The agent, its functions jitted, and a state of clear preferences."""

    agent: base.Agent
    act: Any
    update: Any
    state: Any


@functools.cache
def _recurrent(name: str, spec: types.EnvSpec) -> _Recurrent:
    agent = agent_table.make(cases.make_config(name, lstm_width=UNITS), spec, "cpu")
    state = jax.jit(agent.init)(jax.random.key(0))

    def wave(x: jax.Array) -> jax.Array:
        return x + 0.3 * np.sin(1 + np.arange(x.size, dtype=np.float32)).reshape(x.shape)

    update = jax.jit(lambda state, windows: agent.update(state, windows, jax.random.key(0), None))
    return _Recurrent(agent, jax.jit(agent.act), update, state._replace(params=jax.tree.map(wave, state.params)))


@functools.cache
def _played(name: str, spec: types.EnvSpec) -> windowing.Windows:
    """Returns all rows of three environments as one window each; two of them begin another episode within."""
    agent, act, _, state = _recurrent(name, spec)
    random, shape = np.random.default_rng(3), (cases.BATCH, ROWS)
    terminated, truncated, first = (np.zeros(shape, bool) for _ in range(3))
    first[:, 0], terminated[1, 6], first[1, 7], truncated[2, 5], first[2, 6] = True, True, True, True, True
    observation = random.normal(size=(*shape, 2)).astype(np.float32)
    reward = np.where(first, 0, random.normal(size=shape)).astype(np.float32)
    # The first state is not 0: that an episode begins must be seen.
    memory, rows = jax.tree.map(jnp.ones_like, agent.initial_memory(cases.BATCH)), []
    for t in range(ROWS):
        inputs = agent_cases.inputs(observation[:, t], spec.num_actions, reward=reward[:, t], first=first[:, t])
        memory, outputs = act(agent.acting(state), memory, inputs, jax.random.key(t))
        rows.append(outputs.stored)
    stored = jax.tree.map(lambda *row: jnp.stack(row, axis=1), *rows)
    flags = {"terminated": terminated, "truncated": truncated, "first": first}
    return agent_cases.windows(observation, reward=reward, stored=stored, **flags)


def _unroll(name: str, spec: types.EnvSpec, start: int) -> windowing.Windows:
    """Returns the played rows from `start` on: unrolls of L + 1 positions."""
    return agent_cases.part(_played(name, spec), slice(None), slice(start, start + cases.LENGTH + 1))


def _agrees(name: str, spec: types.EnvSpec, windows: windowing.Windows) -> bool:
    """Returns whether the unrolled policy is the one that acted, on whose parameters all ratios are 1."""
    _, _, update, state = _recurrent(name, spec)
    metrics = update(state, windows)[2]
    distance = abs(metrics["importance_mean"] - 1) if name == "vtrace" else abs(metrics["policy_kl"])
    agrees, differs = (1e-5, 1e-4) if name == "vtrace" else (1e-6, 1e-5)
    assert distance < agrees or distance > differs
    return bool(distance < agrees)


@pytest.mark.thorough
@pytest.mark.parametrize("start", [0, 3, 5, 6, 7])
@every_action
def test_unrolling_from_the_stored_state_is_what_acting_did(name: str, spec: types.EnvSpec, start: int) -> None:
    """Over ends of episodes too."""
    windows = _unroll(name, spec, start)
    assert _agrees(name, spec, windows)
    if name == "ppo":
        assert np.ptp(windows.stored["value"]) > 0.05
        return
    network = actor_critic.actor_critic(shared.NetworkConfig(width=8, lstm_width=UNITS), spec, "cpu")
    parts = cases.linear_parts(cases.make_config(name, lstm_width=UNITS))._replace(network=network)
    logits, _ = jax.jit(functools.partial(vtrace._unroll, parts))(_recurrent(name, spec).state.params, windows)
    np.testing.assert_allclose(logits, windows.stored["logits"], atol=1e-5)
    assert np.ptp(logits, axis=(0, 1)).min() > 0.05


@every_agent
def test_an_unroll_begins_from_the_state_of_its_first_row_alone(name: str, spec: types.EnvSpec) -> None:
    windows = _unroll(name, spec, 2)
    stored = windows.stored["state"]
    assert _agrees(name, spec, agent_cases.store(windows, state=stored.at[:, 1:].set(9.0)))
    assert not _agrees(name, spec, agent_cases.store(windows, state=stored.at[:, 0].set(-stored[:, 0])))


@every_agent
def test_the_state_before_an_episode_does_not_count(name: str, spec: types.EnvSpec) -> None:
    windows = _unroll(name, spec, 0)
    assert _agrees(name, spec, agent_cases.store(windows, state=windows.stored["state"] + 5.0))


@every_action
def test_the_last_action_and_the_last_reward_enter(name: str, spec: types.EnvSpec) -> None:
    windows = _unroll(name, spec, 2)
    action = windows.stored["last_action"]
    other = agent_cases.store(windows, last_action=-action if spec.is_continuous else (action + 1) % 3)
    assert not _agrees(name, spec, other)
    assert not _agrees(name, spec, windows._replace(reward=windows.reward.at[:, 0].set(-windows.reward[:, 0])))


@every_action
def test_rows_store_the_state_before_and_the_action_before_as_the_environment_had_it(
    name: str, spec: types.EnvSpec
) -> None:
    stored, windows = _played(name, spec).stored, _played(name, spec)
    taken = jnp.clip(stored["action"], -1, 1) if spec.is_continuous else stored["action"]
    np.testing.assert_array_equal(stored["last_action"][:, 1:], taken[:, :-1])
    assert stored["state"].shape == (cases.BATCH, ROWS, 2 * UNITS)
    agent, act, _, state = _recurrent(name, spec)
    past = (stored["state"][:, 4], stored["last_action"][:, 4])
    memory = actor_critic.Past(*past) if name == "vtrace" else ppo.PpoMemory(actor_critic.Past(*past))
    seen = agent_cases.shown(windows)[:, 4]
    inputs = agent_cases.inputs(seen, spec.num_actions, reward=windows.reward[:, 4])
    after, _ = act(agent.acting(state), memory, inputs, jax.random.key(0))
    np.testing.assert_allclose(jax.tree.leaves(after)[0], stored["state"][:, 5], atol=1e-6)


@pytest.mark.thorough
def test_a_minibatch_is_of_whole_unrolls() -> None:
    config = cases.make_config("ppo", lstm_width=UNITS, num_minibatches=3, num_epochs=2, reward__normalize=True)
    agent = ppo.make(config, cases.SPEC, "cpu")
    assert agent.reads_reward and not ppo.make(cases.make_config("ppo"), cases.SPEC, "cpu").reads_reward
    windows = agent_cases.store(_unroll("ppo", cases.SPEC, 4), **{"return": jnp.ones((cases.BATCH, 5))})
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
