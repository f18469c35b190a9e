"""Returns that V-trace corrects: with the bootstrapping network's policy, and the stored one's probability."""

from __future__ import annotations

from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import pytest

from seedzero.agents import exploration, muzero, muzero_loss, muzero_model
from seedzero.config import config as config_lib
from seedzero.core import errors, types
from seedzero.replay import windows as windows_lib

ON = dict(muzero__off_policy_correction=True, muzero__target_network_updates=3)
PROBABILITY = muzero_loss.PROBABILITY


def _params(config: config_lib.Config) -> Any:
    """Returns parameters that prefer some actions."""
    params = muzero_model.init(muzero_model.make_parts(config, cases.SPEC, "cpu"), jax.random.key(0))
    random = np.random.default_rng(0)
    return jax.tree.map(lambda x: x + jnp.asarray(0.3 * np.abs(random.normal(size=x.shape)), x.dtype), params)


def _opinions(config: config_lib.Config, windows: windows_lib.Windows) -> tuple[Any, jax.Array, jax.Array]:
    """Returns parameters, and the network's values [B, J] and policies [B, J, A] of a window's observations."""
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")
    params = _params(config)
    observation = agent_cases.shown(windows)
    hidden = parts.network.represent(params, observation.reshape(-1, 4))
    policy, value = parts.network.predict(params, hidden)
    value = muzero_model.unit(params) * muzero_model.decode(parts, value)
    return params, value.reshape(observation.shape[:2]), jax.nn.softmax(policy).reshape(*observation.shape[:2], -1)


def test_rewards_count_as_far_as_the_network_would_act_alike() -> None:
    config = cases.make_config(**ON)
    windows = cases.make_windows(config, 5)
    params, value, policy = _opinions(config, windows)
    taken = np.take_along_axis(np.asarray(policy), np.asarray(windows.stored["action"])[..., None], axis=-1)[..., 0]
    # The network takes the action of position 1 half as often as acting did, that of position 2 three times as often.
    probability = taken * np.array([1.0, 2.0, 1 / 3, 1.0, 1.0])
    windows = agent_cases.store(windows, **{PROBABILITY: jnp.asarray(probability, jnp.float32)})
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")
    found = muzero_loss.make_targets(parts, params, windows)
    v, r = np.asarray(value), np.asarray(windows.reward)
    whole = r[:, 3] + 0.5 * (r[:, 4] + 0.5 * v[:, 4])  # from position 2 on
    cut = v[:, 1] + 0.5 * (r[:, 2] + 0.5 * whole - v[:, 1])
    expected = np.stack([r[:, 1] + 0.5 * cut, cut, whole], axis=1)
    np.testing.assert_allclose(found.value, expected, rtol=1e-4, atol=1e-5)
    assert found.value_mask.all() and found.policy_mask.all()


def test_ends_mean_what_they_mean_without_the_correction() -> None:
    """All ratios 1: only the number of rewards differs, and where the episode ends within n steps not even that."""
    plain, corrected = cases.make_config(muzero__target_network_updates=3), cases.make_config(**ON)
    for name, last in (("terminated", 2), ("truncated", 2), ("terminated", 1), ("", 2)):
        windows = cases.make_windows(corrected, 5)
        positions = jnp.broadcast_to(jnp.arange(5), windows.valid.shape)
        windows = windows._replace(valid=positions <= last)
        # Behind the last position, frames repeat it.
        windows = agent_cases.show(windows, agent_cases.shown(windows)[:, jnp.minimum(jnp.arange(5), last)])
        if name:
            windows = windows._replace(**{name: positions == last})
        params, _, policy = _opinions(corrected, windows)
        taken = jnp.take_along_axis(policy, windows.stored["action"][..., None], axis=-1)[..., 0]
        windows = agent_cases.store(windows, **{PROBABILITY: taken})
        found = muzero_loss.make_targets(muzero_model.make_parts(corrected, cases.SPEC, "cpu"), params, windows)
        shorter = agent_cases.show(windows, agent_cases.shown(windows)[:, jnp.array([0, 2, 3, 4])])
        expected = muzero_loss.make_targets(muzero_model.make_parts(plain, cases.SPEC, "cpu"), params, shorter)
        for mask in ("value_mask", "reward_mask", "policy_mask"):
            np.testing.assert_array_equal(getattr(found, mask), getattr(expected, mask), err_msg=f"{name} {last}")
        learned = np.asarray(expected.value_mask)
        np.testing.assert_allclose(
            np.asarray(found.value)[learned], np.asarray(expected.value)[learned], rtol=1e-4, atol=1e-5
        )


def test_acting_stores_the_probability_of_its_choice() -> None:
    agent, params = muzero.make(cases.make_config(**ON), cases.SPEC, "cpu"), _params(cases.make_config(**ON))
    assert agent.stored[PROBABILITY].shape == ()
    observation = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    _, found = jax.jit(agent.act)(params, (), agent_cases.inputs(observation), jax.random.key(1))
    chance = np.take_along_axis(np.asarray(found.stored["policy"]), np.asarray(found.action)[:, None], axis=1)[:, 0]
    np.testing.assert_array_equal(found.stored[PROBABILITY], chance)
    assert chance.max() > 2 * chance.min()


def test_a_repeated_action_is_not_taken_for_the_policy_s() -> None:
    config = cases.make_config(**ON, explore__epsilon=1e-9)
    agent, params = muzero.make(config, cases.SPEC, "cpu"), _params(config)
    observation = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    memory = exploration.Repetition(jnp.full(64, 2, jnp.int32), jnp.full(64, 5, jnp.int32))
    inputs = agent_cases.inputs(observation)
    _, free = jax.jit(agent.act)(params, agent.initial_memory(64), inputs, jax.random.key(1))
    _, found = jax.jit(agent.act)(params, memory, inputs, jax.random.key(1))
    np.testing.assert_array_equal(found.action, 2)
    alike = np.asarray(free.action) == 2
    assert 0 < alike.sum() < 64
    np.testing.assert_array_equal(np.asarray(found.stored[PROBABILITY])[~alike], 1.0)
    np.testing.assert_array_equal(
        np.asarray(found.stored[PROBABILITY])[alike], np.asarray(free.stored[PROBABILITY])[alike]
    )


def test_windows_show_all_positions_that_are_compared() -> None:
    assert cases.agent(cases.make_config(**ON))[0].data.observe == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    "changes, spec, named",
    [
        ({"muzero__target_network_updates": 0}, cases.SPEC, "target_network_updates=100"),
        ({"muzero__n_step_decay_age": 5}, cases.SPEC, "n_step_decay_age"),
        ({}, types.EnvSpec((4,), "float32", 3, has_action_mask=True), "legal"),
        ({}, types.EnvSpec((4,), "float32", 0, action_low=(-1.0,), action_high=(1.0,)), "vectors"),
    ],
)
def test_what_cannot_be_corrected_is_refused(changes: dict[str, Any], spec: types.EnvSpec, named: str) -> None:
    with pytest.raises(errors.ConfigError, match=named):
        muzero.make(cases.make_config(**{**ON, **changes}), spec, "cpu")
