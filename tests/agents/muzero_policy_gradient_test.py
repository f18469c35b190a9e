"""MuZero's policy gradient beside other settings: mixed and corrected targets, legal actions. By hand."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import pytest

from seedzero.agents import learning, muzero, muzero_loss, muzero_model
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.replay import windowing

PROBABILITY = muzero_loss.PROBABILITY


@pytest.fixture(autouse=True)
def _only_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muzero_loss, "_POLICY_WEIGHT", 0.0)
    monkeypatch.setattr(muzero_loss, "_REWARD_WEIGHT", 0.0)


def _config(**changes: options.Value) -> configs.Config:
    """Returns a configuration whose loss is the policy gradient alone; two-step returns, a discount of 1/2."""
    return cases.make_config(muzero__value_loss_weight=0.0, muzero__policy_gradient_weight=1.0, **changes)


def _parts(config: configs.Config, *, has_action_mask: bool = False) -> muzero_model.Parts:
    """Returns a model with the same logits of three actions everywhere, and observations as values."""

    return cases.model(
        config,
        types.EnvSpec((1,), "float32", 3, has_action_mask=has_action_mask),
        predict=lambda params, s: (jnp.broadcast_to(params["logits"], (len(s), 3)), cases.certain(s[:, 0])),
    )


def _windows(config: configs.Config, num_observations: int = 1, **stored: Any) -> windowing.Windows:
    """Returns equal windows with rewards 1, 2, 1, 2 on the way to positions 1 to 4."""
    windows = cases.make_windows(config, num_observations)
    windows = agent_cases.show(windows, jnp.zeros((cases.BATCH, num_observations, 1)))
    reward = np.broadcast_to(np.array([9, 1, 2, 1, 2], np.float32), windows.valid.shape)
    same = {name: jnp.asarray(np.broadcast_to(x, (cases.BATCH, *np.shape(x)))) for name, x in stored.items()}
    return agent_cases.store(windows._replace(reward=jnp.asarray(reward)), **same)


def _expected(advantage: list[float], log_taken: list[float], ratio: list[float]) -> float:
    """Returns the loss: the first position whole, each of two unrolled ones by half."""
    size = np.sqrt(np.mean(np.square(advantage)))
    errors = -np.array(ratio) * np.array(advantage) / size * np.array(log_taken)
    return float(errors[0] + errors[1:].sum() / 2)


@pytest.mark.thorough
def test_old_windows_keep_their_returns_where_values_learn_the_search_s() -> None:
    def update(**changes: options.Value) -> tuple[Any, Any]:
        config = _config(**changes)
        parts, params = _parts(config), {"logits": jnp.array([0.0, 1.0, 0.0]), "offset": jnp.float32(0.0)}
        value, chance = np.array([1, 2, 3, 1, 2], np.float32), np.ones(5, np.float32)
        windows = _windows(config, action=np.zeros(5, np.int32), value=value, **{PROBABILITY: chance})
        zero, old = jnp.int32(0), cases.aged(windows, [0] * cases.BATCH)
        state = learning.TrainState(params, (), parts.optimizer.init(params), jnp.int32(50), zero)
        after, _, metrics = jax.jit(lambda key: muzero._update(parts, state, old, key, None))(jax.random.key(0))
        return after, metrics

    plain, expected = update()
    mixed, found = update(muzero__search_value_age=10)
    assert found["value_target_mean"] == 1.0 != expected["value_target_mean"]  # the value is the search's
    # Two-step returns 1 + 2/2 + 3/4, 2 + 1/2 + 1/4, 1 + 2/2 + 2/4, less 1, 2 and 3.
    np.testing.assert_allclose(found["advantage_size"], np.sqrt((1.75**2 + 0.75**2 + 0.5**2) / 3), rtol=1e-6)
    for name in ("loss_policy_gradient", "grad_norm"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
    np.testing.assert_allclose(mixed.params["logits"], plain.params["logits"], rtol=1e-6)


def test_a_corrected_return_is_weighted_once() -> None:
    """IMPALA (Espeholt et al. 2018), section 4.2: ratio_k (r_k+1 + discount v_k+1 - V_k)."""
    config = _config(muzero__off_policy_correction=True, muzero__target_network_updates=3)
    parts, log_taken = _parts(config), np.log(0.1)
    params = {"logits": jnp.log(jnp.array([0.1, 0.6, 0.3])), "offset": 0.0}
    ratio = [0.5, 0.1, 1.0]
    windows = _windows(
        config,
        5,
        action=np.zeros(5, np.int32),
        value=np.array([1, 2, 1, 7, 7], np.float32),
        **{PROBABILITY: np.array([0.1 / x for x in (*ratio, 1.0, 1.0)], np.float32)},
    )
    windows = agent_cases.show(windows, jnp.broadcast_to(jnp.array([0.0, 2, 4, 8, 4])[:, None], (cases.BATCH, 5, 1)))

    value, metrics, _ = jax.jit(functools.partial(cases.loss_and_metrics, parts))(params, windows)
    # From position 3 on 2 + 4/2 = 4, from 2 on 1 + 4/2 = 3. Position 1: q = 2 + 3/2, v = 2 + 0.1 (q - 2) = 2.15;
    # position 0: q = 1 + 2.15/2.
    advantage = [2.075 - 1, 3.5 - 2, 3.0 - 1]
    np.testing.assert_allclose(metrics["advantage_size"], np.sqrt(np.mean(np.square(advantage))), rtol=1e-3)
    np.testing.assert_allclose(value, _expected(advantage, [log_taken] * 3, ratio), rtol=1e-3)


def test_logits_of_illegal_actions_have_no_gradient() -> None:
    config, logits = _config(), np.array([0.5, -1.0, 2.0])
    parts = _parts(config, has_action_mask=True)
    action, legal = np.array([0, 2, 1, 0, 0]), np.ones((5, 3), bool)
    legal[0, 2] = legal[1, 1] = legal[2, [0, 2]] = False
    chance = np.array([0.5, 0.99, 1.0, 1.0, 1.0], np.float32)
    value = np.array([1, 2, 3, 1, 2], np.float32)
    windows = _windows(config, action=action.astype(np.int32), legal=legal, value=value, **{PROBABILITY: chance})

    loss = jax.jit(jax.value_and_grad(lambda params: cases.loss_and_metrics(parts, params, windows)[0]))
    found, gradient = loss({"logits": jnp.asarray(logits, jnp.float32)})
    policy = np.exp(logits) * legal
    policy /= policy.sum(axis=-1, keepdims=True)
    taken = policy[np.arange(3), action[:3]]
    advantage, ratio = np.array([2.75 - 1, 2.75 - 2, 2.5 - 3]), np.minimum(taken / chance[:3], 1.0)
    np.testing.assert_allclose(found, _expected(list(advantage), list(np.log(taken)), list(ratio)), rtol=1e-5)
    pull = (ratio * advantage / np.sqrt(np.mean(advantage**2)))[:, None] * (np.eye(3)[action[:3]] - policy[:3])
    np.testing.assert_allclose(gradient["logits"], -(pull[0] + pull[1:].sum(axis=0) / 2), rtol=1e-5)
    assert pull[0, 2] == pull[1, 1] == 0  # by hand, so above too


@pytest.mark.thorough
def test_acting_stores_the_legal_actions_for_the_policy_gradient() -> None:
    spec = dataclasses.replace(cases.SPEC, has_action_mask=True)
    config = cases.make_config(muzero__policy_gradient_weight=0.5)
    agent = muzero.make(config, spec, "cpu")
    assert agent.stored["legal"].shape == (3,)
    assert "legal" not in muzero.make(cases.make_config(), spec, "cpu").stored
    mask = jnp.array([[True, False, True], [False, True, True]])
    inputs = agent_cases.inputs(np.zeros((2, 4), np.float32), action_mask=mask)
    _, found = jax.jit(agent.act)(cases.init(config).params, (), inputs, jax.random.key(0))
    np.testing.assert_array_equal(found.stored["legal"], mask)
