"""MuZero's acting, search and update, against numbers worked by hand on models small enough for that."""

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
from seedzero.agents import base, muzero, muzero_loss, muzero_model, muzero_search
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.networks import muzero_net
from seedzero.ops import value_transforms


@pytest.mark.thorough
def test_an_update_reports_its_metrics_and_learns_the_batch() -> None:
    config = cases.make_config(optimizer__learning_rate=0.01)
    windows = cases.make_windows(config)
    state = cases.init(config)
    losses = []
    for _ in range(60):
        state, _, metrics = cases.update(config, state, windows)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.8 * losses[0]
    assert int(state.num_updates) == 60
    of_loss = {"loss", "loss_policy", "loss_value", "loss_reward", "value_mean", "value_target_mean"}
    of_step = {"grad_norm", "learning_rate", "num_rejected"}
    assert set(metrics) == of_loss | of_step | {"policy_entropy", types.TARGETS_CLIPPED}


@pytest.mark.thorough
def test_a_windows_priority_is_how_far_the_network_is_from_its_target() -> None:
    config = cases.make_config(reward__discount=0.5, optimizer__learning_rate=0.02)
    windows = cases.make_windows(config)
    # n = 2 rewards of 1 and 0.5 * 2, and 0.25 times the value of position 2.
    reward = jnp.zeros_like(windows.reward).at[:, 1].set(1.0).at[:, 2].set(2.0)
    bootstrap = 4.0 * jnp.arange(1.0, 1.0 + cases.BATCH)
    value = jnp.full_like(windows.reward, 9.0).at[:, 2].set(bootstrap)
    windows = agent_cases.store(windows, value=value)._replace(reward=reward)
    state, priority, _ = cases.update(config, cases.init(config), windows)
    np.testing.assert_allclose(priority, 2.0 + bootstrap / 4, rtol=1e-5)  # an untrained network predicts 0
    for _ in range(80):
        state, priority, _ = cases.update(config, state, windows)
    assert np.asarray(priority).max() < 0.5


@pytest.mark.thorough
def test_rewards_of_the_search_sum_up_to_what_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muzero_model, "PREFIX_HORIZON", 2)
    config = cases.make_config(muzero__value_prefix=True, muzero__unroll_steps=3)
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")
    random = np.random.default_rng(0)
    observation = jnp.asarray(random.normal(size=(cases.BATCH, 4)), jnp.float32)
    actions = jnp.asarray(random.integers(0, 3, (cases.BATCH, 3)), jnp.int32)

    # As initialized, the heads would say 0.
    shapes = jax.eval_shape(parts.network.init, jax.random.key(0))
    params = jax.tree.map(lambda x: np.sin(1.0 + np.arange(x.size, dtype=np.float32)).reshape(x.shape) / 2, shapes)

    @jax.jit
    def both(seen: jax.Array, actions: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        observation = {types.OBSERVATION: seen}
        taken = jnp.ones(actions.shape, bool)
        first = parts.network.represent(params, observation)
        logits = muzero_loss.unroll(parts, params, first, actions, taken, jax.random.key(0))[2]
        embedding, rewards = muzero_search._model(parts).represent(params, observation), []
        first = embedding
        for k in range(3):
            prediction, embedding = muzero_search.recurrent_fn(parts)(params, actions[:, k], embedding)
            rewards.append(prediction.reward)
            if k == 1:
                # The third step begins anew: it is as if the search began here.
                anew = first._replace(hidden=embedding.hidden)
        again = muzero_search.recurrent_fn(parts)(params, actions[:, 2], anew)[0].reward
        return value_transforms.expectation(logits, 5.0), jnp.stack(rewards, axis=1), again

    prefixes, rewards, again = both(observation, actions)
    assert np.abs(rewards).min() > 1e-4
    expected = np.stack([rewards[:, 0], rewards[:, 0] + rewards[:, 1], rewards[:, 2]], axis=1)
    np.testing.assert_allclose(prefixes, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(again, rewards[:, 2], rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["gumbel", "puct"])
def test_a_search_over_sums_of_rewards_finds_the_action_that_is_rewarded(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(muzero_model, "PREFIX_HORIZON", 2)
    config = cases.make_config(search__policy=policy, search__num_simulations=24, reward__discount=1.0)
    config = configs.override(config, {"muzero.value_prefix": True})

    def step(params: Any, s: jax.Array, action: jax.Array, carry: Any) -> tuple[jax.Array, Any, jax.Array]:
        total = carry[0] + 0.5 * (action == 1)[:, None]
        return s, (total,), cases.certain(total[:, 0])

    parts = cases.model(
        config,
        types.EnvSpec((1,), "float32", 2),
        predict=lambda params, s: (jnp.zeros((len(s), 2)), cases.certain(jnp.zeros(len(s)))),
        prefix=muzero_net.Prefix(initial=lambda batch_size: (jnp.zeros((batch_size, 1)),), step=step),
    )
    inputs = agent_cases.inputs(np.zeros((2, 1), np.float32), 2, action_mode=jnp.zeros(2, bool))
    outputs = jax.jit(lambda key: muzero._act(parts, {}, (), inputs, key)[1])(jax.random.key(0))
    np.testing.assert_array_equal(outputs.action, [1, 1])
    assert (outputs.stored["policy"][:, 1] > 0.6).all()
    # Each step brings 1/2 at most; no path is longer than the simulations.
    assert ((outputs.stored["value"] > 0.4) & (outputs.stored["value"] < 12.0)).all()


@pytest.mark.parametrize("jit", [False, True])
def test_the_value_to_store_is_the_mean_of_the_search_or_that_of_the_policy(jit: bool) -> None:
    root = mcts.Root(jnp.log(jnp.array([[0.5, 0.25, 0.25]])), jnp.array([4.0]), ())
    found = mcts.Result(
        action=jnp.array([0]),
        action_weights=jnp.array([[0.7, 0.1, 0.2]]),
        draw_weights=jnp.array([[0.7, 0.1, 0.2]]),
        root_value=jnp.array([5.0]),
        visit_counts=jnp.array([[2, 1, 0]]),
        q_values=jnp.array([[10.0, 1.0, 0.0]]),
        max_depth=jnp.array([1]),
        mean_depth=jnp.array([1.0]),
    )

    def stored(which: str) -> float:
        parts = cases.hand_model(cases.make_config(muzero__stored_value=which))
        value = functools.partial(muzero_search.search_value, parts)
        return float((jax.jit(value) if jit else value)(root, found)[0])

    # Visited actions average (10 / 2 + 1 / 4) / (3 / 4) = 7 by the prior; the mixed value is (4 + 3 * 7) / (1 + 3).
    np.testing.assert_allclose(stored("policy"), 0.7 * 10 + 0.1 * 1 + 0.2 * 6.25, rtol=1e-6)
    assert stored("root") == 5.0


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["gumbel", "puct"])
def test_samples_are_of_the_policy_of_a_search_without_noise(policy: str) -> None:
    config = cases.make_config(search__policy=policy, explore__epsilon=1.0)
    agent, params = muzero.make(config, cases.SPEC, "cpu"), cases.init(config).params
    memory, observation, act = agent.initial_memory(2000), np.ones((2000, 4), np.float32), jax.jit(agent.act)

    def acted(mode: np.int8) -> base.Outputs:
        inputs = agent_cases.inputs(observation, action_mode=np.full(2000, mode))
        outputs: base.Outputs = act(params, memory, inputs, jax.random.key(0))[1]
        return outputs

    sampled, greedy = acted(types.SAMPLE), acted(types.GREEDY)
    np.testing.assert_array_equal(sampled.stored["policy"], greedy.stored["policy"])
    shares = np.bincount(sampled.action, minlength=3) / 2000
    np.testing.assert_allclose(shares, sampled.stored["policy"][0], atol=0.05)


def _choice(num_players: int, policy: str, **changes: options.Value) -> base.Outputs:
    """Searches where action 1 brings 0.5 and the end, action 0 nothing; but whoever moves after it gets 1.

    The model knows the rules, and nothing of values and policies.
    """
    config = cases.make_config(reward__discount=1.0, search__policy=policy, search__num_simulations=32, **changes)
    spec = types.EnvSpec((1,), "float32", 2, num_players=num_players)
    start, chance, end = 0.0, 1.0, 2.0

    def dynamics(params: Any, state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        is_start, is_chance = state[:, 0] == start, state[:, 0] == chance
        reward = jnp.where(is_start & (action == 1), 0.5, jnp.where(is_chance, 1.0, 0.0))
        return jnp.where(is_start & (action == 0), chance, end)[:, None], cases.certain(reward)

    def predict(params: Any, state: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros((len(state), 2)), cases.certain(jnp.zeros(len(state)))

    parts = cases.model(config, spec, predict=predict, dynamics=dynamics)
    inputs = agent_cases.inputs(jnp.array([[start]]), 2, action_mode=jnp.zeros(1, bool))
    act = jax.jit(lambda inputs, key: muzero._act(parts, {}, (), inputs, key)[1])
    return act(inputs, jax.random.key(0))


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["gumbel", "puct"])
def test_the_search_counts_what_the_other_player_wins_as_lost(policy: str) -> None:
    alone, two = _choice(1, policy), _choice(2, policy)
    assert (int(alone.action[0]), int(two.action[0])) == (0, 1)
    assert alone.stored["policy"][0, 0] > 0.5 > two.stored["policy"][0, 0]
