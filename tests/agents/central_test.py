"""PPO with a central value: training's value sees the joint observation, acting and its parameters never do."""

from __future__ import annotations

import functools
from typing import Any

import actor_critic_cases as cases  # beside this file: see conftest.py
import jax
import numpy as np
import pytest

from seedzero.agents import agent_table, base, ppo
from seedzero.core import packing, types
from seedzero.networks import actor_critic
from seedzero.replay import windowing

SPEC = packing.add_training_only(cases.SPEC, types.ArraySpec("joint", (3,), "float32", training_only=True))
CONFIG = cases.make_config("ppo", network__normalize_observations=True)


def _windows(joint: float = 0.0) -> windowing.Windows:
    found = cases.make_windows("ppo")
    seen = np.full((cases.BATCH, cases.LENGTH + 1, 3), joint, np.float32)
    stored = {name: array for name, array in found.stored.items() if name != "value"}
    return found._replace(observation={**found.observation, "joint": seen}, stored=stored)


@functools.cache
def _agent() -> tuple[base.Agent, Any]:
    agent = agent_table.make(CONFIG, SPEC, "cpu")
    return agent, jax.jit(lambda state, windows: agent.update(state, windows, jax.random.key(1), None))


def _changed(before: Any, after: Any) -> bool:
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return any(not np.array_equal(one, other) for one, other in pairs)


@pytest.mark.thorough
def test_the_central_value_learns_and_the_value_beside_the_policy_does_not() -> None:
    agent, update = _agent()
    state = jax.jit(agent.init)(jax.random.key(0))
    after, _, metrics = update(state, _windows())
    assert all(np.isfinite(value) for value in metrics.values())
    assert {name for name in state.params if _changed(state.params[name], after.params[name])} == {
        "policy",
        "policy_0",
        "policy_1",
        actor_critic.PARAMS,
    }
    assert after.central.keys() == {types.OBSERVATION, "joint"} and float(after.central["joint"].weight) > 0


def test_what_all_agents_see_changes_the_update_through_the_value_alone() -> None:
    agent, update = _agent()
    state = jax.jit(agent.init)(jax.random.key(0))
    one, _, first = update(state, _windows(0.0))
    other, _, second = update(state, _windows(1.0))
    assert _changed(one.params[actor_critic.PARAMS], other.params[actor_critic.PARAMS])
    assert first["value_mean"] != second["value_mean"] and first["policy_entropy"] == second["policy_entropy"]


def test_acting_stores_no_value_and_has_neither_the_array_nor_its_parameters() -> None:
    agent, _ = _agent()
    acting = jax.eval_shape(lambda: agent.acting(agent.init(jax.random.key(0))))
    plain = agent_table.make(CONFIG, cases.SPEC, "cpu")
    expected = jax.eval_shape(lambda: plain.acting(plain.init(jax.random.key(0))))
    assert jax.tree.structure(acting) == jax.tree.structure(expected)
    assert agent.stored.keys() == plain.stored.keys() - {"value"}


def test_advantages_are_those_of_the_given_values() -> None:
    windows, parts = cases.make_windows("ppo"), cases.linear_parts(CONFIG)
    expected = jax.jit(lambda windows: ppo._steps(parts, (), windows))(windows)
    value = windows.stored["value"]
    without = windows._replace(stored={name: array for name, array in windows.stored.items() if name != "value"})
    found = jax.jit(lambda windows, value: ppo._steps(parts, (), windows, None, value))(without, value)
    np.testing.assert_array_equal(found.advantage, expected.advantage)
    np.testing.assert_array_equal(found.target, expected.target)
    moved = jax.jit(lambda windows, value: ppo._steps(parts, (), windows, None, value))(without, value + 1.0)
    assert not np.array_equal(moved.advantage, expected.advantage)
