"""Ends of episodes that MuZero's value head predicts: their loss, and what they make of values."""

from __future__ import annotations

import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import pytest

from seedzero.agents import base, muzero_loss, muzero_model
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.replay import windowing


def _config(**changes: options.Value) -> configs.Config:
    return cases.make_config(muzero__predict_ends=True, **changes)


def _only(name: str, **changes: options.Value) -> configs.Config:
    """All parts of the loss but one weigh nothing, for `_jitted`; "end" has no weight, and "value" that of 1."""
    return cases.make_config(muzero__value_loss_weight=float(name == "value"), **changes)


@functools.cache
def _jitted(config: configs.Config) -> Any:
    parts = cases.hand_model(config)
    num_logits = 11 + config.muzero.predict_ends

    def predict(params: Any, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros((len(s), 2)), jnp.zeros((len(s), num_logits)).at[:, -1].set(s[:, 0] * (num_logits > 11))

    def find(params: Any, windows: windowing.Windows) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(muzero_loss, "_POLICY_WEIGHT", 0.0)
            patch.setattr(muzero_loss, "_REWARD_WEIGHT", 0.0)
            return cases.loss_and_metrics(cases.with_functions(parts, predict=predict), params, windows)

    return jax.jit(find)


def _loss_and_metrics(config: configs.Config, windows: windowing.Windows) -> tuple[np.ndarray, base.Metrics]:
    """Of the hand model, whose states 1, 2, 4 are the logits of going on, and whose value logits are all 0."""
    loss, metrics, _ = _jitted(config)({"p": 0.5, "q": 2.0}, windows)
    return np.asarray(loss), metrics


def _loss(config: configs.Config, windows: windowing.Windows) -> np.ndarray:
    return _loss_and_metrics(config, windows)[0]


def _cut(windows: windowing.Windows, last: int, *, terminated: bool) -> windowing.Windows:
    """The episode of each window is over at position `last`."""
    positions = jnp.broadcast_to(jnp.arange(windows.valid.shape[1]), windows.valid.shape)
    at_last = positions == last
    return windows._replace(
        valid=positions <= last,
        terminated=at_last & terminated,
        truncated=at_last & (not terminated),
    )


def _error(logit: float, goes_on: bool) -> float:
    return float(np.log1p(np.exp(-logit if goes_on else logit)))


@pytest.mark.parametrize(
    ("last", "terminated", "expected"),
    [
        (4, False, _error(5, True) + (_error(6, True) + _error(8, True)) / 2),
        (2, True, _error(5, True) + (_error(6, True) + _error(8, False)) / 2),
        (1, True, _error(5, True) + (_error(6, False) + _error(8, False)) / 2),  # an end lasts
        (1, False, _error(5, True) + _error(6, True) / 2),  # what came behind a truncation is not known
    ],
)
def test_ends_are_learned_by_their_cross_entropy(last: int, terminated: bool, expected: float) -> None:
    config = _only("end", muzero__predict_ends=True)
    windows = _cut(cases.hand_model_windows(config), last, terminated=terminated)
    np.testing.assert_allclose(_loss(config, windows), expected, rtol=1e-5)


def test_the_ends_of_a_window_count_by_its_weight() -> None:
    config = _only("end", muzero__predict_ends=True)
    windows = _cut(cases.hand_model_windows(config), 2, terminated=True)
    weight = jnp.zeros_like(windows.weight).at[0].set(3.0)
    expected = 3.0 / len(weight) * _loss(config, windows)
    np.testing.assert_allclose(_loss(config, windows._replace(weight=weight)), expected, rtol=1e-5)


@pytest.mark.parametrize(("predicts", "share"), [(True, 2 / 3), (False, 2 / 5)])
def test_only_values_that_are_learned_count_as_clipped(predicts: bool, share: float) -> None:
    config = _only("value", muzero__predict_ends=predicts, reward__normalize=False)
    windows = _cut(cases.hand_model_windows(config), 1, terminated=True)
    windows = windows._replace(reward=jnp.full_like(windows.reward, 1e9))  # the return of the first position too
    metrics = _loss_and_metrics(config, windows)[1]
    np.testing.assert_allclose(metrics[types.TARGETS_CLIPPED], share, rtol=1e-5)


@pytest.mark.parametrize(("predicts", "num_steps"), [(True, 1.0), (False, 1.0 + 1 / 2 + 1 / 2)])
def test_an_end_has_no_value_to_learn_where_it_is_predicted(predicts: bool, num_steps: float) -> None:
    config = _only("value", muzero__predict_ends=predicts)
    windows = _cut(cases.hand_model_windows(config), 1, terminated=True)
    ends = _error(5, True) + (_error(6, False) + _error(8, False)) / 2 if predicts else 0.0
    np.testing.assert_allclose(_loss(config, windows), num_steps * np.log(11) + ends, rtol=1e-5)


def test_a_value_counts_as_far_as_the_episode_goes_on() -> None:
    parts = muzero_model.make_parts(_config(), cases.SPEC, "cpu")
    of_value = cases.certain(jnp.array([2.0, 2.0, -1.0]))
    logits = jnp.concatenate([of_value, jnp.array([[0.0], [-4.0], [-30.0]])], axis=-1)
    expected = [2.0 / (1 + np.exp(-4)), 1.0, 0.0]
    np.testing.assert_allclose(muzero_model.decode_value(parts, logits), expected, rtol=1e-3, atol=1e-6)


def test_the_value_head_has_one_logit_more() -> None:
    for predicts in (False, True):
        parts = muzero_model.make_parts(cases.make_config(muzero__predict_ends=predicts), cases.SPEC, "cpu")
        params = jax.eval_shape(parts.network.init, jax.random.key(0))
        assert params["value_head"]["Dense_1"]["kernel"].shape == (8, 11 + predicts)
        assert params["reward_head"]["Dense_1"]["kernel"].shape == (8, 11)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        {"muzero.value_prefix": True, "reanalyse.fresh_share": 1.0},
        {"muzero.target_network_updates": 5, "muzero.off_policy_correction": True},
    ],
    ids=str,
)
def test_ends_are_learned_beside_other_targets_and_models(changes: dict[str, options.Value]) -> None:
    """`decode` refuses logits that still hold the end's."""
    config = configs.override(_config(optimizer__learning_rate=0.01), changes)
    agent, update = cases.agent(config)
    windows = cases.make_windows(config, num_observations=len(muzero_loss.offsets(config)))
    windows = agent_cases.store(windows, probability=jnp.full(windows.valid.shape, 0.5))
    state, _, metrics = update(cases.init(config), windows, jax.random.key(1))
    assert np.isfinite(float(metrics["loss_end"])) and int(state.num_updates) == 1
    assert agent.model is not None
    params, seen = agent.acting(state), {"observation": windows.observation["observation"][:, 0]}
    hidden = jax.eval_shape(agent.model.represent, params, seen)
    assert jax.eval_shape(agent.model.predict, params, hidden)[1].shape == (cases.BATCH,)


def test_a_return_bootstraps_from_the_value_of_what_goes_on() -> None:
    """What was seen later is known to have gone on, or to have ended."""
    config = _config(muzero__target_network_updates=5, reward__normalize=False)
    parts = cases.value_of_observation(config)

    def predict(params: Any, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros((len(s), 2)), jnp.concatenate([cases.certain(s[:, 0]), jnp.full((len(s), 1), -4.0)], axis=-1)

    parts = cases.with_functions(parts, predict=predict)
    num_observations = len(muzero_loss.offsets(config))
    windows = cases.make_windows(config, num_observations=num_observations)
    windows = agent_cases.show(windows, np.full((cases.BATCH, num_observations, 1), 2.0, np.float32))
    windows = windows._replace(reward=jnp.zeros_like(windows.reward))
    targets = jax.jit(functools.partial(muzero_loss.make_targets, parts))({}, windows)
    np.testing.assert_allclose(targets.value, 0.25 * 2.0, rtol=1e-3)


@pytest.mark.thorough
def test_actions_that_end_the_episode_are_learned_to_be_worth_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Action 0 ends it; values are small beside the bins, so that nothing else tells soon."""
    monkeypatch.setattr(muzero_loss, "_POLICY_WEIGHT", 0.0)
    config = _config(optimizer__learning_rate=0.03, reward__normalize=False)
    windows = cases.make_windows(config)
    action = np.array([0, 1, 2, 1], np.int32)[:, None].repeat(windows.valid.shape[1], 1)
    over = _cut(windows, 1, terminated=True)
    is_over = jnp.asarray(action[:, :1] == 0)
    windows = agent_cases.store(
        windows, action=jnp.asarray(action), value=jnp.full(windows.valid.shape, 0.4)
    )._replace(
        valid=jnp.where(is_over, over.valid, windows.valid),
        terminated=is_over & over.terminated,
        reward=jnp.zeros_like(windows.reward),
    )
    state, (agent, _) = cases.init(config), cases.agent(config)
    for _ in range(150):
        state, _, metrics = cases.update(config, state, windows)
    model = agent.model
    assert model is not None
    assert float(metrics["loss_end"]) < 0.02

    @jax.jit
    def values_behind(params: Any) -> list[jax.Array]:
        hidden = model.represent(params, {"observation": windows.observation["observation"][:, 0]})
        return [model.predict(params, model.dynamics(params, hidden, jnp.full(4, a))[0])[1] for a in range(3)]

    values = [np.asarray(value) for value in values_behind(agent.acting(state))]
    assert np.abs(values[0][0]) < 0.01  # in the state where it was taken
    assert all(abs(values[a][row] - 0.1) < 0.05 for a, row in ((1, 1), (2, 2), (1, 3)))  # 0.4 two steps later
