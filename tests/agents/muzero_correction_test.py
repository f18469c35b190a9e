"""Returns that V-trace corrects: with the bootstrapping network's policy, and the stored one's probability."""

from __future__ import annotations

import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import pytest

from seedzero.agents import exploration, muzero, muzero_loss, muzero_model
from seedzero.config import configs
from seedzero.core import types
from seedzero.replay import windowing

ON = dict(muzero__off_policy_correction=True, muzero__target_network_updates=3)
PROBABILITY = muzero_loss.PROBABILITY


def _params(config: configs.Config) -> Any:
    """Returns parameters that prefer some actions."""
    params = cases.init(config).params
    random = np.random.default_rng(0)
    return jax.tree.map(lambda x: np.asarray(x) + (0.3 * np.abs(random.normal(size=x.shape))).astype(x.dtype), params)


def _opinions(config: configs.Config, windows: windowing.Windows) -> tuple[Any, jax.Array, jax.Array]:
    """Returns parameters, and the network's values [B, J] and policies [B, J, A] of a window's observations."""
    params = _params(config)
    observation = agent_cases.shown(windows)
    value, policy = _predict(config)(params, {types.OBSERVATION: observation.reshape(-1, 4)})
    return params, value.reshape(observation.shape[:2]), policy.reshape(*observation.shape[:2], -1)


@functools.cache
def _predict(config: configs.Config) -> Any:
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")

    def predict(params: Any, observation: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        policy, value = parts.network.predict(params, parts.network.represent(params, observation))
        return muzero_model.unit(params) * muzero_model.decode(parts, value), jax.nn.softmax(policy)

    return jax.jit(predict)


@functools.cache
def _make_targets(config: configs.Config) -> Any:
    return jax.jit(functools.partial(muzero_loss.make_targets, muzero_model.make_parts(config, cases.SPEC, "cpu")))


@pytest.mark.thorough
def test_rewards_count_as_far_as_the_network_would_act_alike() -> None:
    config = cases.make_config(**ON)
    windows = cases.make_windows(config, 5)
    params, value, policy = _opinions(config, windows)
    taken = np.take_along_axis(np.asarray(policy), np.asarray(windows.stored["action"])[..., None], axis=-1)[..., 0]
    # The network takes the action of position 1 half as often as acting did, that of position 2 three times as often.
    probability = taken * np.array([1.0, 2.0, 1 / 3, 1.0, 1.0])
    windows = agent_cases.store(windows, **{PROBABILITY: jnp.asarray(probability, jnp.float32)})
    found = _make_targets(config)(params, windows)
    v, r = np.asarray(value), np.asarray(windows.reward)
    whole = r[:, 3] + 0.5 * (r[:, 4] + 0.5 * v[:, 4])  # from position 2 on
    cut = v[:, 1] + 0.5 * (r[:, 2] + 0.5 * whole - v[:, 1])
    expected = np.stack([r[:, 1] + 0.5 * cut, cut, whole], axis=1)
    np.testing.assert_allclose(found.value, expected, rtol=1e-4, atol=1e-5)
    assert np.asarray(found.value_mask).all() and np.asarray(found.policy_mask).all()


def test_ratios_are_of_legal_actions() -> None:
    config = cases.make_config(**ON)
    windows = cases.make_windows(config, 5)
    params, _, policy = _opinions(config, windows)
    action = np.asarray(windows.stored["action"])[..., None]
    taken = np.take_along_axis(np.asarray(policy), action, axis=-1)[..., 0]
    alike = agent_cases.store(windows, **{PROBABILITY: jnp.asarray(taken)})
    # Where nothing else is legal, both policies take the action for certain.
    legal, certain = jnp.asarray(action == np.arange(3)), jnp.ones(taken.shape)
    forced = agent_cases.store(windows, **{PROBABILITY: certain, "legal": legal})
    expected, found = _make_targets(config)(params, alike), _make_targets(config)(params, forced)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-4, atol=1e-5)


def test_ends_mean_what_they_mean_without_the_correction() -> None:
    """All ratios 1: only the number of rewards differs, and where the episode ends within n steps not even that."""
    plain, corrected = cases.make_config(muzero__target_network_updates=3), cases.make_config(**ON)
    for name, last in (("terminated", 2), ("truncated", 2), ("terminated", 1), ("", 2)):
        windows = cases.make_windows(corrected, 5)
        positions = np.broadcast_to(np.arange(5), windows.valid.shape)
        windows = windows._replace(valid=jnp.asarray(positions <= last))
        # Behind the last position, frames repeat it.
        windows = agent_cases.show(windows, np.asarray(agent_cases.shown(windows))[:, np.minimum(np.arange(5), last)])
        if name:
            windows = windows._replace(**{name: jnp.asarray(positions == last)})
        params, _, policy = _opinions(corrected, windows)
        action = np.asarray(windows.stored["action"])[..., None]
        taken = np.take_along_axis(np.asarray(policy), action, axis=-1)[..., 0]
        windows = agent_cases.store(windows, **{PROBABILITY: jnp.asarray(taken)})
        found = _make_targets(corrected)(params, windows)
        shorter = agent_cases.show(windows, np.asarray(agent_cases.shown(windows))[:, [0, 2, 3, 4]])
        expected = _make_targets(plain)(params, shorter)
        for mask in ("value_mask", "reward_mask", "policy_mask"):
            np.testing.assert_array_equal(getattr(found, mask), getattr(expected, mask), err_msg=f"{name} {last}")
        learned = np.asarray(expected.value_mask)
        np.testing.assert_allclose(
            np.asarray(found.value)[learned], np.asarray(expected.value)[learned], rtol=1e-4, atol=1e-5
        )


@pytest.mark.thorough
@pytest.mark.parametrize("on", [ON, dict(muzero__policy_gradient_weight=0.5)])
def test_acting_stores_the_probability_of_its_choice(on: dict[str, Any]) -> None:
    agent, params = muzero.make(cases.make_config(**on), cases.SPEC, "cpu"), _params(cases.make_config(**on))
    assert agent.stored[PROBABILITY].shape == ()
    observation = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    _, found = jax.jit(agent.act)(params, (), agent_cases.inputs(observation), jax.random.key(1))
    chance = np.take_along_axis(np.asarray(found.stored["policy"]), np.asarray(found.action)[:, None], axis=1)[:, 0]
    np.testing.assert_array_equal(found.stored[PROBABILITY], chance)
    assert chance.max() > 2 * chance.min()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changes", "exponent"),
    [
        (dict(search__gumbel_scale=4.0), 0.25),
        (dict(search__policy="puct", search__temperature=2.0), 0.5),
    ],
)
def test_acting_stores_the_probability_of_its_draw(changes: dict[str, Any], exponent: float) -> None:
    config = cases.make_config(**ON, **changes)
    agent, params = muzero.make(config, cases.SPEC, "cpu"), _params(config)
    explore = np.arange(64) % 3
    observation = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    inputs = agent_cases.inputs(observation, action_mode=explore.astype(np.int8))
    _, found = jax.jit(agent.act)(params, (), inputs, jax.random.key(1))
    policy = np.asarray(found.stored["policy"], np.float64)
    drawn = policy**exponent / np.sum(policy**exponent, axis=1, keepdims=True)

    def chance(weights: np.ndarray) -> np.ndarray:
        return np.take_along_axis(weights, np.asarray(found.action)[:, None], axis=1)[:, 0]

    expected = np.select([explore == types.EXPLORE, explore == types.SAMPLE], [chance(drawn), chance(policy)], 1.0)
    np.testing.assert_allclose(found.stored[PROBABILITY], expected, rtol=1e-4)


@pytest.mark.thorough
def test_a_repeated_action_has_the_probability_of_its_first_step_and_then_1() -> None:
    config = cases.make_config(**ON, explore__epsilon=0.3)
    agent, params = muzero.make(config, cases.SPEC, "cpu"), _params(config)
    inputs = agent_cases.inputs(np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32))
    act = jax.jit(agent.act)
    memory = exploration.Repetition(*(np.full(64, x, np.int32) for x in (2, 5, 0)))
    _, found = act(params, memory, inputs, jax.random.key(1))
    np.testing.assert_array_equal(found.action, 2)
    np.testing.assert_array_equal(found.stored[PROBABILITY], 1.0)
    _, found = act(params, agent.initial_memory(64), inputs, jax.random.key(1))
    chance = np.take_along_axis(np.asarray(found.stored["policy"]), np.asarray(found.action)[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(found.stored[PROBABILITY], 0.7 * chance + 0.3 / 3, rtol=1e-5)


def test_windows_show_all_positions_that_are_compared() -> None:
    assert cases.agent(cases.make_config(**ON))[0].data.observe == (0, 1, 2, 3, 4)
