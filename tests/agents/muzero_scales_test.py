"""MuZero does not depend on the units of rewards and observations, nor on noise in values that are alike."""

from __future__ import annotations

import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import pytest

from seedzero import search as mcts
from seedzero.agents import base, muzero, muzero_loss, muzero_model
from seedzero.core import types
from seedzero.networks import observations
from seedzero.ops import statistics, value_transforms
from seedzero.replay import windowing

RATE = dict(optimizer__learning_rate=0.01)


def _with_rewards(windows: windowing.Windows, factor: float) -> windowing.Windows:
    scaled = agent_cases.store(windows, value=factor * windows.stored["value"])
    return scaled._replace(reward=factor * windows.reward)


def _trained(windows: windowing.Windows, num_updates: int = 5, **changes: Any) -> base.TrainState:
    config = cases.make_config(**RATE, **changes)
    state = cases.init(config)
    for _ in range(num_updates):
        state, _, _ = cases.update(config, state, windows)
    return state


def _acted(state: base.TrainState, observation: jax.Array, **changes: Any) -> base.Outputs:
    config = cases.make_config(**RATE, **changes)
    agent = cases.agent(config)[0]
    inputs = agent_cases.inputs(observation, action_mode=np.zeros(len(observation), bool))
    outputs: base.Outputs = cases.act(config)(agent.acting(state), (), inputs, jax.random.key(0))[1]
    return outputs


@pytest.mark.parametrize(
    ("factor", "target_updates"), [(2.0**14, 0), pytest.param(2.0**-10, 2, marks=pytest.mark.slow)]
)
def test_rewards_in_other_units_are_learned_alike(factor: float, target_updates: int) -> None:
    changes = dict(muzero__target_network_updates=target_updates)
    num_observations = 1 + (3 if target_updates else 0)
    windows = cases.make_windows(cases.make_config(**changes), num_observations)
    plain, scaled = _trained(windows, **changes), _trained(_with_rewards(windows, factor), **changes)
    for name in plain.params:
        if name != muzero_model.REWARD_SIZE:
            assert agent_cases.equal(plain.params[name], scaled.params[name]), name
    assert float(muzero_model.unit(scaled.params)) == factor * float(muzero_model.unit(plain.params))
    observation = agent_cases.shown(windows)[:, 0]
    here, there = _acted(plain, observation, **changes), _acted(scaled, observation, **changes)
    np.testing.assert_array_equal(here.action, there.action)
    np.testing.assert_array_equal(factor * here.stored["value"], there.stored["value"])


@pytest.mark.thorough
def test_values_of_any_size_are_learned_and_none_ends_at_the_support() -> None:
    config = cases.make_config(**RATE, network__num_bins=121, network__support_limit=30.0, reward__discount=0.99)
    windows = _with_rewards(cases.make_windows(config), 0.0)
    windows = windows._replace(reward=jnp.full_like(windows.reward, 5_000.0))
    value = jnp.full_like(windows.reward, 20_000.0)
    windows = agent_cases.store(windows, value=value)
    state = cases.init(config)
    for _ in range(100):
        state, _, metrics = cases.update(config, state, windows)
    np.testing.assert_allclose(metrics["value_mean"], metrics["value_target_mean"], rtol=0.05)
    assert float(metrics["value_target_mean"]) > 20_000


@pytest.mark.thorough
def test_targets_beyond_the_support_are_counted() -> None:
    config = cases.make_config(network__support_limit=5.0, reward__normalize=False, reward__discount=1.0)
    windows = _with_rewards(cases.make_windows(config), 0.0)
    largest = float(value_transforms.inverse_signed_hyperbolic(jnp.asarray(5.0)))
    # n = 2: the last positions' returns bootstrap from these, and one reward of the K is too large.
    value = jnp.zeros_like(windows.reward).at[0, 2].set(1.01 * largest).at[1, 2].set(0.99 * largest)
    windows = agent_cases.store(windows._replace(reward=windows.reward.at[2, 1].set(-2 * largest)), value=value)
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")
    targets = jax.jit(functools.partial(muzero_loss.make_targets, parts))(cases.init(config).params, windows)
    _, _, metrics = cases.update(config, cases.init(config), windows)
    num_targets = int(np.sum(targets.value_mask) + np.sum(targets.reward_mask))
    # The reward is in the return of its own position too.
    np.testing.assert_allclose(metrics[types.TARGETS_CLIPPED], 3 / num_targets, rtol=1e-6)


def test_without_the_scale_rewards_keep_their_units() -> None:
    params = cases.init(cases.make_config(reward__normalize=False)).params
    assert muzero_model.REWARD_SIZE not in params and muzero_model.unit(params) == 1.0


def test_clipped_rewards_are_what_is_learned() -> None:
    windows = cases.make_windows(cases.make_config())
    clipped = windows._replace(reward=jnp.clip(windows.reward, -0.5, 0.5))
    assert (clipped.reward != windows.reward).any()

    def seen(windows: windowing.Windows, **changes: float) -> Any:
        """Returns the targets, and the size of rewards."""
        parts = cases.hand_model(cases.make_config(**changes))
        size = {muzero_model.REWARD_SIZE: statistics.no_size()}
        counted = jax.jit(lambda windows: muzero_model.observe(parts, size, windows, None))
        return jax.jit(functools.partial(muzero_loss.make_targets, parts, size))(windows), counted(windows)

    assert agent_cases.equal(seen(windows, reward__clip=0.5), seen(clipped))


@pytest.mark.thorough
@pytest.mark.parametrize("factors", [[1e4] * 4, [1.0, 1e-3, 1.0, 1e3]], ids=["all", "each"])
def test_observations_in_other_units_are_seen_alike(factors: list[float]) -> None:
    windows = cases.make_windows(cases.make_config())
    observation = agent_cases.shown(windows)
    changed = jnp.asarray(factors) * (observation + 2.0)
    plain, scaled = _trained(windows), _trained(agent_cases.show(windows, changed))
    more = {"search__num_simulations": 4}
    here, there = _acted(plain, observation[:, 0], **more), _acted(scaled, changed[:, 0], **more)
    np.testing.assert_allclose(here.stored["policy"], there.stored["policy"], atol=1e-2)
    np.testing.assert_allclose(here.stored["value"], there.stored["value"], atol=1e-2)
    assert np.ptp(np.asarray(here.stored["policy"]), axis=0).max() > 0.3


@pytest.mark.thorough
def test_acting_and_targets_have_statistics_of_their_own_that_no_optimizer_touches() -> None:
    config = cases.make_config(optimizer__learning_rate=1.0, muzero__target_network_updates=2)
    windows, state = cases.make_windows(config, 4), cases.init(config)
    seen, weights = agent_cases.shown(windows)[:, 0], []
    expected = jax.jit(lambda: statistics.add_features(statistics.no_moments(4), seen, np.ones(len(seen), bool)))()
    for number in range(3):
        state, _, _ = cases.update(config, state, windows)
        weights.append(float(state.target_params[observations.MOMENTS].weight))
        if number == 0:
            for leaf, wanted in zip(state.params[observations.MOMENTS], expected, strict=True):
                np.testing.assert_allclose(leaf, wanted, rtol=1e-6)
    assert float(state.params[observations.MOMENTS].weight) > weights[2] == weights[1] > weights[0] == 0.0
    assert cases.agent(config)[0].acting(state) is state.params


# Values that are alike, and values that are biased -----------------------------------------------------------------


def _flat_model(noise: float) -> mcts.RecurrentFn:
    """Every action leads to the same; the values have errors by action."""

    def step(params: Any, action: jax.Array, state: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
        value = 5.0 + noise * jnp.sin(7.0 * action.astype(jnp.float32) + state[:, 0])
        reward, discount = jnp.full_like(value, 5.0 * (1 - 0.997)), jnp.full_like(value, 0.997)
        return mcts.Prediction(reward, discount, jnp.zeros((len(action), 6)), value), state + 1.0

    return step


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["gumbel", "puct"])
def test_rounding_errors_of_equal_values_make_no_policy(policy: str) -> None:
    """What the search prefers is learned, and searched again: a preference for errors would grow."""
    config = mcts.SearchConfig(policy=policy, num_simulations=32, dirichlet_fraction=0.0)

    @jax.jit
    def improved(key: jax.Array, logits: jax.Array) -> jax.Array:
        root = mcts.Root(logits, jnp.full(4, 5.0), jnp.arange(4.0)[:, None])
        explore = jnp.full(4, policy == "gumbel")
        return mcts.search((), key, root, _flat_model(1e-5), config=config, explore=explore).action_weights

    weights = jnp.full((4, 6), 1 / 6)
    for index in range(6):
        weights = improved(jax.random.key(index), jnp.log(weights))
    effective = jnp.exp(-jnp.sum(weights * jnp.log(weights), axis=-1))
    assert np.asarray(effective).min() > 5.5


@pytest.mark.thorough
def test_forced_visits_of_fatal_moves_do_not_lower_the_stored_value() -> None:
    """One of 6 actions is fatal, the policy knows it, and sequential halving visits it all the same."""
    config = cases.make_config(
        search__num_simulations=16, search__num_considered=8, network__num_bins=601, network__support_limit=30.0
    )
    fatal = jnp.array([-8.0, 0.0, 0.0, 0.0, 0.0, 0.0])

    def predict(params: Any, alive: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tile(fatal, (len(alive), 1)), cases.certain(10.0 * alive[:, 0], 601, 30.0)

    def dynamics(params: Any, alive: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        reward = jnp.where(action == 0, 0.0, 5.0 * alive[:, 0])
        return jnp.where((action == 0)[:, None], 0.0, alive), cases.certain(reward, 601, 30.0)

    parts = cases.model(config, types.EnvSpec((1,), "float32", 6), predict=predict, dynamics=dynamics)
    inputs = agent_cases.inputs(jnp.ones((64, 1)), 6)
    _, outputs = jax.jit(lambda inputs, key: muzero._act(parts, {}, (), inputs, key))(inputs, jax.random.key(0))
    # The value is 5 + 0.5 * 10 = 10 whatever good action is taken; the root's mean is below 9.5.
    assert float(jnp.mean(outputs.stored["value"])) == pytest.approx(10.0, rel=0.01)
