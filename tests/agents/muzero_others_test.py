"""Learning from games against others: policy and value at own rows, the model at all. By hand, on tables of logits."""

from __future__ import annotations

import dataclasses
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import pytest

from seedzero.agents import learning, muzero, muzero_loss, muzero_model, own
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.replay import ring_store, windowing

OWN = ring_store.OWN
SPEC = types.EnvSpec((2,), "float32", 3, num_players=2)
EVEN, ODD, LATE, NEVER = ([1, 0, 1, 0, 1], [0, 1, 0, 1, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0])
"""Whose rows the four windows hold, 1 for own. Three positions are trained, two behind them are seen."""
VALUES = np.array([[1, 9, 2], [9, 5, 9], [9, 9, 4], [9, 9, 9]], np.float32) / 2
"""What the table says the positions are worth."""


def _config(**changes: options.Value) -> configs.Config:
    return cases.make_config(league__freeze_every=100, reward__normalize=False, **changes)


def _parts(config: configs.Config) -> muzero_model.Parts:
    """Returns a model whose logits are parameters, [row, position, ...]: a state is a row's number and a position."""

    def look_up(table: jax.Array, state: jax.Array) -> jax.Array:
        return table[state[:, 0].astype(int), state[:, 1].astype(int)]

    def dynamics(params: Any, state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = state + jnp.array([0.0, 1.0])
        return state, look_up(params["reward"], state)

    return cases.model(
        config,
        SPEC,
        predict=lambda params, state: (look_up(params["policy"], state), look_up(params["value"], state)),
        dynamics=dynamics,
    )


def _params(config: configs.Config) -> dict[str, jax.Array]:
    """Returns a table with `VALUES` and random numbers."""
    random = np.random.default_rng(1)
    shape = (cases.BATCH, 3)
    value = np.asarray(cases.certain(jnp.asarray(VALUES)))
    if config.muzero.predict_ends:
        value = np.concatenate([value, np.full((*shape, 1), 20.0)], axis=-1)
    tables = {"policy": random.normal(size=(*shape, 3)), "value": value, "reward": random.normal(size=(*shape, 11))}
    return {name: jnp.asarray(table, jnp.float32) for name, table in tables.items()}


def _windows(config: configs.Config) -> windowing.Windows:
    """Returns the four windows; rewards are 1, stored values 4 at own rows, and 100 at others."""
    windows = cases.make_windows(config)
    row = np.arange(cases.BATCH, dtype=np.float32)
    windows = agent_cases.show(windows, np.stack([row, 0 * row], axis=-1)[:, None])
    shape = windows.valid.shape
    own = np.array([EVEN, ODD, LATE, NEVER], bool)
    stored = {
        "value": np.where(own, 4.0, 100.0).astype(np.float32),
        muzero_loss.PROBABILITY: np.full(shape, 0.9, np.float32),
    }
    windows = cases.aged(agent_cases.store(windows, **{OWN: own}, **stored), [0] * cases.BATCH)
    return windows._replace(reward=jnp.ones(shape))


def _update(config: configs.Config, windows: windowing.Windows) -> Any:
    """Returns the priorities and metrics of one update."""
    parts, params = _parts(config), _params(config)
    state = learning.TrainState(params, (), parts.optimizer.init(params), jnp.int32(50), jnp.int32(0))
    return jax.jit(lambda key: muzero._update(parts, state, windows, key, None)[1:])(jax.random.key(0))


@pytest.mark.thorough
@pytest.mark.parametrize("predicts_ends", [False, True])
def test_logits_of_policy_and_value_have_no_gradient_where_others_moved(predicts_ends: bool) -> None:
    config = _config(
        muzero__predict_ends=predicts_ends,
        muzero__entropy_weight=0.1,
        muzero__policy_gradient_weight=0.5,
        muzero__search_value_age=3,
    )
    parts, windows = _parts(config), _windows(config)

    def loss(params: Any) -> jax.Array:
        targets = muzero_loss.make_targets(parts, (), windows)
        fitted = muzero_loss.mix_search_values(parts, windows, targets, jnp.int32(50))
        return muzero_loss.loss_and_metrics(parts, params, windows, fitted, jax.random.key(0))[0]

    found = jax.tree.map(lambda x: np.abs(np.asarray(x)), jax.jit(jax.grad(loss))(_params(config)))
    own = np.array([EVEN, ODD, LATE, NEVER], bool)[:, :3]
    for gradient in (found["policy"], found["value"][..., :11]):
        assert (gradient[~own] == 0).all() and (gradient[own].max(axis=-1) > 1e-4).all()
    # What the model learns, it learns from every move: rewards on the way to positions 1 and 2, and ends.
    assert (found["reward"][:, 1:].max(axis=-1) > 1e-4).all()
    if predicts_ends:
        assert (found["value"][..., 11] > 0).all()


def test_with_a_model_of_opponents_windows_from_own_rows_teach_all_moves() -> None:
    config = _config(league__opponent_model=True)
    parts, windows = _parts(config), _windows(config)

    gradient = jax.jit(jax.grad(lambda params: cases.loss_and_metrics(parts, params, windows)[0]))(_params(config))
    found = jax.tree.map(lambda x: np.abs(np.asarray(x)).max(axis=-1), gradient)
    for name in ("policy", "value"):
        np.testing.assert_array_equal(found[name] > 1e-4, [[True] * 3] + [[False] * 3] * 3)
    assert (found["reward"][:, 1:] > 1e-4).all()


@pytest.mark.thorough
def test_of_others_the_drawn_moves_are_learned_not_their_searches_policy() -> None:
    config = _config(league__opponent_model=True, search__gumbel_scale=4.0)
    agent = muzero.make(config, SPEC, "cpu")
    random = np.random.default_rng(0)
    params = jax.jit(lambda key: agent.acting(agent.init(key)))(jax.random.key(0))
    params = jax.tree.map(lambda x: x + random.random(x.shape, np.float32), params)
    inputs = own.first_inputs(agent, SPEC, 2)

    @jax.jit
    def policy(own: jax.Array) -> jax.Array:
        _, outputs = agent.act(params, agent.initial_memory(2), inputs._replace(own=own), jax.random.key(1))
        return outputs.stored["policy"]

    improved, drawn = np.asarray(policy(jnp.bool_(True))), np.asarray(policy(jnp.bool_(False)))
    flat = improved ** (1 / 4.0)
    np.testing.assert_allclose(drawn, flat / flat.sum(axis=1, keepdims=True), rtol=1e-4)
    assert np.abs(drawn - improved).max() > 0.01


def test_a_priority_is_the_error_of_the_first_own_value() -> None:
    priority, _ = _update(_config(), _windows(_config()))
    # Two-step returns between own rows of EVEN and ODD: 1 - 1/2 + 4/4. LATE has an own row one step on, and two.
    target = 1 - 1 / 2 + 4 / 4
    known = [abs(1 / 2 - target), abs(5 / 2 - target), abs(4 / 2 - target)]
    np.testing.assert_allclose(priority, [*known, np.mean(known)], rtol=1e-4)


@pytest.mark.thorough
def test_windows_without_a_value_do_not_keep_a_new_row_s_priority() -> None:
    """They teach the model alone, and are drawn as often as the mean of the others that were sampled."""
    windows = _windows(_config())._replace(weight=jnp.array([1.0, 0.0, 1.0, 1.0]))
    priority, _ = _update(_config(), windows)
    np.testing.assert_allclose(priority[3], (priority[0] + priority[2]) / 2, rtol=1e-6)
    priority, _ = _update(_config(), agent_cases.store(windows, **{OWN: np.array([NEVER] * 4, bool)}))
    assert np.isnan(priority).all()  # nothing is known


def test_own_values_that_are_not_trained_and_ends_that_are_make_priorities_too() -> None:
    windows = _windows(_config())
    position = np.arange(5)
    # EVEN is cut after position 1: nothing to bootstrap from. ODD ends at 1, its own row, LATE at 1, another's.
    windows = windows._replace(
        valid=jnp.asarray(position <= np.array([1, 1, 1, 4])[:, None]),
        terminated=jnp.asarray((position == 1) & np.array([0, 1, 1, 0], bool)[:, None]),
    )
    priority, _ = _update(_config(), windows)
    np.testing.assert_allclose(priority, [5 / 2] * 4, rtol=1e-4)


@pytest.mark.thorough
def test_metrics_of_positions_are_means_over_own_ones() -> None:
    config = _config(muzero__policy_gradient_weight=1.0)
    windows = _windows(config)
    _, metrics = _update(config, windows)
    # EVEN alone begins with an own row.
    logits = np.asarray(_params(config)["policy"])[0, 0]
    policy = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(metrics["value_mean"], 0.5, rtol=1e-4)
    np.testing.assert_allclose(metrics["value_target_mean"], 1.5, rtol=1e-6)
    np.testing.assert_allclose(metrics["policy_entropy"], -(policy * np.log(policy)).sum(), rtol=1e-5)
    # Advantages 1.5 - 4 at the four own rows of EVEN, ODD and LATE, whatever the values of others are.
    np.testing.assert_allclose(metrics["advantage_size"], 2.5, rtol=1e-6)
    own = np.array([NEVER, ODD, LATE, NEVER], bool)
    _, metrics = _update(config, agent_cases.store(windows, **{OWN: own}))
    assert [float(metrics[name]) for name in ("value_mean", "value_target_mean", "policy_entropy")] == [0, 0, 0]


@pytest.mark.thorough
def test_windows_of_own_rows_teach_what_they_do_without_a_league() -> None:
    """The search's values of old windows and the policy gradient among it."""
    changes: dict[str, options.Value] = {"muzero__policy_gradient_weight": 0.5, "muzero__search_value_age": 3}
    config = _config(**changes)
    windows = _windows(config)
    own = windows._replace(stored={**windows.stored, OWN: jnp.ones_like(windows.valid)})
    alone = windows._replace(stored={name: array for name, array in windows.stored.items() if name != OWN})
    found, expected = _update(config, own), _update(config, alone)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7), found, expected)


def test_values_of_the_target_network_are_those_of_own_positions() -> None:
    config = _config(muzero__target_network_updates=5)
    assert muzero.make(config, cases.SPEC, "cpu").data.observe == (0, 1, 2, 3, 4)
    parts = cases.value_of_observation(config)
    parts = parts._replace(spec=dataclasses.replace(parts.spec, num_players=2))
    windows = _windows(config)
    # Observation k is worth k.
    shown = jnp.broadcast_to(jnp.arange(5.0)[None, :, None], (cases.BATCH, 5, 1))
    windows = agent_cases.show(windows, shown)
    targets = jax.jit(lambda: muzero_loss.make_targets(parts, {"offset": 0.0}, windows))()
    mask = np.array([[True, False, True], [False, True, False], [False, False, True], [False] * 3])
    np.testing.assert_array_equal(targets.value_mask, mask)
    # 1 - 1/2 + (k + 2)/4 where the row two steps on is own.
    np.testing.assert_allclose(
        np.asarray(targets.value)[mask], [0.5 + 2 / 4, 0.5 + 4 / 4, 0.5 + 3 / 4, 1.5], rtol=1e-4
    )
    # Where it is another's, the row before it: 1 - (k + 1)/2.
    nearer = agent_cases.store(windows, **{OWN: np.tile(np.array([1, 1, 0, 1, 0], bool), (cases.BATCH, 1))})
    targets = jax.jit(lambda: muzero_loss.make_targets(parts, {"offset": 0.0}, nearer))()
    np.testing.assert_allclose(np.asarray(targets.value)[:, :2], [[1 - 1 / 2, 0.5 + 3 / 4]] * 4, rtol=1e-4)


def test_rows_say_whose_they_are_in_a_league_alone() -> None:
    kept = muzero.make(_config(), cases.SPEC, "cpu").stored[OWN]
    assert (kept.shape, kept.dtype, kept.every) == ((), np.dtype(bool), 1)
    assert OWN not in muzero.make(cases.make_config(), cases.SPEC, "cpu").stored
