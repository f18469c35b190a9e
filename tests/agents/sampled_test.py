"""Continuous actions: the search over samples, and the agent that acts and learns with it."""

from __future__ import annotations

import functools
import math
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero import search as mcts
from seedzero.agents import base, muzero, muzero_loss, muzero_model, sampled
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.ops import action_distributions
from seedzero.replay import windowing

SPEC = types.EnvSpec((3,), "float32", 0, action_low=(-2.0, 0.0), action_high=(2.0, 0.3))
SMALL: dict[str, options.Value] = {
    "search.num_simulations": 8,
    "search.num_sampled": 6,
    "search.num_considered": 4,
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "network.support_limit": 5.0,
    "muzero.unroll_steps": 2,
    "muzero.n_step": 2,
    "optimizer.learning_rate": 0.01,
}
BATCH = 4


def _config(**changes: options.Value) -> configs.Config:
    return configs.override(configs.Config(), {**SMALL, **{k.replace("__", "."): v for k, v in changes.items()}})


# The search --------------------------------------------------------------------------------------------------------


GOAL = jnp.float32(0.6)
WANTED = np.arange(BATCH)
"""The sample that leads from each root to the goal at once."""
STATES = GOAL - (2 * action_distributions.fixed_hypercube(6, 1)[WANTED, 0] - 1)


def _model(params: jax.Array, action: jax.Array, hidden: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
    """The state is a sum of actions; reward is had for being near `params`. The policy is uniform over the bins."""
    hidden = hidden + action[:, 0]
    value = -jnp.abs(hidden - params)
    return mcts.Prediction(value, jnp.full_like(value, 0.9), jnp.zeros((*value.shape, 15)), value), hidden


@functools.cache
def _search(config: configs.Config) -> Any:
    def found(key: jax.Array, explore: jax.Array) -> tuple[mcts.Result, jax.Array]:
        root = mcts.Root(jnp.zeros((BATCH, 15)), jnp.zeros(BATCH), STATES)
        result, root = sampled.search(GOAL, key, root, _model, config=config, num_dimensions=1, explore=explore)
        return result, root.embedding[1]

    return jax.jit(found)


@pytest.mark.thorough
def test_a_search_over_fixed_samples_is_the_discrete_search_over_them() -> None:
    config = _config()
    found, actions = _search(config)(jax.random.key(0), jnp.zeros(BATCH, bool))
    # A uniform policy: every node has the same samples.
    table = 2 * action_distributions.fixed_hypercube(6, 1) - 1
    np.testing.assert_allclose(actions, np.broadcast_to(table, (BATCH, 6, 1)), atol=1e-6)

    def discrete(params: jax.Array, action: jax.Array, hidden: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
        prediction, hidden = _model(params, jnp.asarray(table)[action], hidden)
        return prediction._replace(prior_logits=jnp.zeros((*action.shape, 6))), hidden

    root = mcts.Root(jnp.zeros((BATCH, 6)), jnp.zeros(BATCH), STATES)
    explore = jnp.zeros(BATCH, bool)
    run = jax.jit(functools.partial(mcts.search, recurrent_fn=discrete, config=config.search))
    expected = run(GOAL, jax.random.key(5), root, explore=explore)
    np.testing.assert_array_equal(found.action, expected.action)
    np.testing.assert_array_equal(found.visit_counts, expected.visit_counts)
    np.testing.assert_allclose(found.action_weights, expected.action_weights, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found.root_value, expected.root_value, rtol=1e-4)
    assert found.max_depth.max() >= 2
    # What leads to the goal at once is best, if it was among the four considered.
    chosen = sampled.pick(actions, found.action)[:, 0]
    goes_there = np.isclose(STATES + chosen, GOAL, atol=1e-5)
    np.testing.assert_array_equal(goes_there, found.visit_counts[np.arange(BATCH), WANTED] > 0)
    assert np.sum(goes_there) >= 2


def test_greedy_rows_do_not_see_the_key_and_exploring_ones_sample_anew() -> None:
    explore = jnp.array([True, True, False, False])
    once, again = (_search(_config())(jax.random.key(seed), explore) for seed in (0, 1))
    np.testing.assert_array_equal(once[0].action_weights[2:], again[0].action_weights[2:])
    np.testing.assert_array_equal(once[1][2:], again[1][2:])
    assert not np.any(np.all(once[1][:2] == again[1][:2], axis=(1, 2)))
    assert not np.array_equal(once[1][0], once[1][1])


@pytest.mark.thorough
def test_a_wider_proposal_makes_likely_actions_of_the_policy_likely_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "_UNIFORM_SHARE", 0.5)
    config = _config()
    fifths = jnp.array([0.6, 0.1, 0.1, 0.1, 0.1])
    logits = jnp.tile(jnp.log(jnp.repeat(fifths / 3, 3)), (BATCH, 1))

    def flat(params: Any, action: jax.Array, hidden: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
        zero = jnp.zeros(len(action))
        return mcts.Prediction(zero, zero, jnp.zeros((len(action), 15)), zero), hidden

    root = mcts.Root(logits, jnp.zeros(BATCH), jnp.zeros(BATCH))
    found, searched = jax.jit(
        lambda: sampled.search(
            (), jax.random.key(0), root, flat, config=config, num_dimensions=1, explore=jnp.zeros(BATCH, bool)
        )
    )()
    # Nothing to choose by: the policy to learn is the old one. The proposal is (0.4, 0.15, 0.15, 0.15, 0.15).
    _, actions = searched.embedding
    ratio = np.where(actions[0, :, 0] < -0.6, 0.6 / 0.4, 0.1 / 0.15)
    np.testing.assert_allclose(found.action_weights[0], ratio / ratio.sum(), rtol=1e-5)


def test_actions_reach_the_environments_bounds_and_not_beyond() -> None:
    action = jnp.array([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5], [2.0, -2.0]])
    expected = np.array([[-2, 0], [2, 0.3], [0, 0.225], [2, 0]], np.float32)
    scaled = sampled.to_environment(action, SPEC)
    np.testing.assert_allclose(scaled, expected, rtol=1e-6)
    low, high = SPEC.action_bounds
    assert np.all((np.asarray(scaled) >= low) & (np.asarray(scaled) <= high))
    np.testing.assert_allclose(sampled.from_environment(np.asarray(scaled[:3]), SPEC), action[:3], atol=1e-6)
    numbers = np.array([2, 0])
    assert sampled.from_environment(numbers, types.EnvSpec((4,), "float32", 3)) is numbers


# The agent ---------------------------------------------------------------------------------------------------------


FAST = _config(search__num_simulations=2, search__num_considered=2)


@functools.cache
def _agent(config: configs.Config) -> tuple[base.Agent, Any, Any, Any]:
    agent = muzero.make(config, SPEC, "cpu")
    update = jax.jit(lambda state, windows, key: agent.update(state, windows, key, None))
    return agent, jax.jit(agent.act), update, jax.jit(agent.init)(jax.random.key(0))


def _windows(config: configs.Config, peak: float) -> windowing.Windows:
    """Whole windows in which one of two samples had all the weight: the one near `peak`."""
    random = np.random.default_rng(0)
    shape = (BATCH, config.muzero.unroll_steps + config.muzero.n_step + 1)
    weights = np.zeros((*shape, config.search.num_sampled))
    weights[..., 0] = 1
    actions = random.uniform(-1, 1, (*weights.shape, 2))
    actions[..., 0, :] = peak
    stored = {"action": actions[..., 1, :], "sampled": actions, "policy": weights, "value": np.zeros(shape)}
    return agent_cases.windows(random.normal(size=(BATCH, 1, 3)), stored=stored)


@pytest.mark.thorough
def test_the_agent_acts_in_the_environments_units_and_stores_its_own() -> None:
    agent, act, _, state = _agent(FAST)
    inputs = agent_cases.inputs(
        jnp.ones((BATCH, 3)), 0, first=jnp.ones(BATCH, bool), action_mode=jnp.array([True, True, False, False])
    )
    _, outputs = act(state.params, (), inputs, jax.random.key(0))
    assert outputs.action.dtype == jnp.float32
    for name, kept in agent.stored.items():
        assert outputs.stored[name].shape == (BATCH, *kept.shape) and outputs.stored[name].dtype == kept.dtype
    assert outputs.stored.keys() == agent.stored.keys()
    stored = np.asarray(outputs.stored["action"])
    np.testing.assert_allclose(outputs.action, stored * [2, 0.15] + [0, 0.15], atol=1e-6)
    for row in range(BATCH):
        assert any(np.array_equal(stored[row], action) for action in outputs.stored["sampled"][row])
    np.testing.assert_allclose(outputs.stored["policy"].sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(outputs.action[2], outputs.action[3])


def test_reanalysing_renews_the_samples_with_their_weights() -> None:
    config = _config(reanalyse__per_insert=1.0)
    agent = muzero.make(config, SPEC, "cpu")
    assert agent.reanalyse is not None
    state = jax.eval_shape(agent.init, jax.random.key(0))
    found, changes = jax.eval_shape(agent.reanalyse.compute, state.params, _windows(config, 0.0), jax.random.key(0))
    expected = {name: (BATCH, *kept.shape) for name, kept in agent.stored.items() if name != "action"}
    assert {name: leaf.shape for name, leaf in found.items()} == expected
    # A change of the policy would compare the weights of other vectors.
    assert {name: leaf.shape for name, leaf in changes.items()} == {"reanalyse_value_change": (BATCH,)}


@pytest.mark.thorough
def test_reanalysing_draws_new_samples_each_time_by_puct_too() -> None:
    config = _config(reanalyse__per_insert=1.0, search__policy="puct")
    agent = muzero.make(config, SPEC, "cpu")
    assert agent.reanalyse is not None
    params, compute = jax.jit(agent.init)(jax.random.key(0)).params, jax.jit(agent.reanalyse.compute)
    one, other = (compute(params, _windows(config, 0.0), jax.random.key(i))[0]["sampled"] for i in range(2))
    assert not np.isin(np.asarray(one), np.asarray(other)).any()


@pytest.mark.thorough
def test_the_first_policy_loss_is_that_of_uniform_bins_and_falls() -> None:
    _, act, update, state = _agent(FAST)
    windows = _windows(FAST, 0.7)
    state, _, first = update(state, windows, jax.random.key(1))
    # Heads begin at 0: log 15 for each of two dimensions, once for the root and once for the mean of what follows.
    assert first["loss_policy"] == pytest.approx(4 * math.log(15), rel=1e-5)
    assert first["policy_entropy"] == pytest.approx(2 * math.log(15), rel=1e-5)
    for _ in range(60):
        state, _, metrics = update(state, windows, jax.random.key(1))
    assert metrics["loss_policy"] < 0.2 * first["loss_policy"]
    assert metrics["policy_entropy"] < 0.5
    flags = jnp.ones(BATCH, bool)
    inputs = agent_cases.inputs(agent_cases.shown(windows)[:, 0], 0, first=flags, action_mode=~flags)
    _, outputs = act(state.params, (), inputs, jax.random.key(0))
    # Most samples lie in the bin of 0.7, from 0.6 to 0.73; a tenth of the proposal is uniform.
    share = np.mean((outputs.stored["sampled"] > 0.6) & (outputs.stored["sampled"] < 0.74))
    assert share > 0.7


@pytest.mark.thorough
def test_actions_behind_the_end_of_an_episode_are_vectors_of_the_policy() -> None:
    parts = muzero_model.Parts(FAST, SPEC, None, None, None)  # type: ignore[arg-type]
    num_dimensions, num_bins = len(SPEC.action_low), FAST.network.action_bins
    certain = jnp.where(jnp.arange(num_bins) == num_bins - 1, 50.0, 0.0)
    (noise,) = muzero_loss._noise(parts, jax.random.key(0), jnp.zeros((64, 1, num_dimensions)))
    actions = muzero_loss._absorbed(parts, jnp.tile(certain, (64, num_dimensions)), noise)
    assert actions.shape == (64, num_dimensions)
    assert np.all((actions > 1 - 2 / num_bins) & (actions <= 1))
    assert len(np.unique(actions)) > 32
