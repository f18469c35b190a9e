"""Games in which a player may move several times in a row: signs of targets, and the model's turns."""

from __future__ import annotations

import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import pytest

from seedzero.agents import base, muzero, muzero_loss, muzero_model, muzero_search
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.replay import windowing

SPEC = types.EnvSpec((5,), "float32", 3, num_players=2, moves_again=True)
FUNCTIONS: dict[str, options.Value] = {"muzero.target_network_updates": 5, "muzero.off_policy_correction": True}


def _windows(config: configs.Config, num_observations: int = 1) -> windowing.Windows:
    """Random windows; row 1 ends at position 3, row 2 is cut at 2. Each observation's last number is the mover."""
    windows, random = cases.make_windows(config), np.random.default_rng(1)
    mover = random.integers(0, 2, windows.valid.shape).astype(np.int8)
    shown = np.concatenate(
        [random.normal(size=(cases.BATCH, num_observations, 4)), mover[:, :num_observations, None]], 2
    )
    windows = agent_cases.show(agent_cases.store(windows, mover=mover), shown.astype(np.float32))
    positions, last = np.arange(windows.valid.shape[1]), np.array([9, 3, 2, 9])[:, None]
    return windows._replace(
        valid=jnp.asarray(positions <= last),
        terminated=jnp.asarray((positions == last) & [[False], [True], [False], [False]]),
        truncated=jnp.asarray((positions == last) & [[False], [False], [True], [False]]),
    )


def _loop(windows: windowing.Windows, row: int, k: int, n: int, discount: float) -> float:
    """The return of position k, as the text has it: what the mover wins counts for it, else against it."""
    mover, last = np.asarray(windows.stored["mover"])[row], int(windows.valid[row].sum()) - 1
    if k > last:
        return 0.0

    def mine(at: int) -> float:
        return 1.0 if mover[at] == mover[k] else -1.0

    total, steps = 0.0, min(n, last - k)
    for step in range(steps):  # the reward of the step to k + step + 1 is that of the player who moved at k + step
        total += discount**step * mine(k + step) * float(windows.reward[row, k + step + 1])
    if not windows.terminated[row, k + steps]:
        total += discount**steps * mine(k + steps) * float(windows.stored["value"][row, k + steps])
    return total


@pytest.mark.thorough
@pytest.mark.parametrize("n", [1, 2])
def test_the_sign_of_a_return_follows_the_movers_in_the_rows(n: int) -> None:
    config = cases.make_config(muzero__n_step=n)
    windows, parts = _windows(config), muzero_model.make_parts(config, SPEC, "cpu")
    targets = muzero_loss.make_targets(parts, {}, windows)
    expected = [[_loop(windows, row, k, n, 0.5) for k in range(3)] for row in range(cases.BATCH)]
    np.testing.assert_allclose(
        np.where(targets.value_mask, targets.value, 0), np.where(targets.value_mask, expected, 0), rtol=1e-6
    )
    np.testing.assert_array_equal(
        targets.reward, np.where(targets.reward_mask, windows.reward[:, 1:3], 0) * windows.valid[:, 1:3]
    )
    assert targets.value_mask.sum() > 8


@pytest.mark.thorough
def test_where_movers_alternate_targets_are_those_of_alternating_games() -> None:
    for changes in ({}, FUNCTIONS):
        config = configs.override(cases.make_config(), changes)
        windows = _windows(config, len(muzero_loss.offsets(config)))
        windows = agent_cases.store(windows, probability=jnp.full(windows.valid.shape, 0.5))
        alternates = types.EnvSpec((5,), "float32", 3, num_players=2)
        mover = np.broadcast_to(np.arange(windows.valid.shape[1]) % 2, windows.valid.shape)
        params = jax.jit(muzero.make(config, alternates, "cpu").init)(jax.random.key(0)).params
        found = [
            muzero_loss.make_targets(muzero_model.make_parts(config, spec, "cpu"), params, of_spec)
            for spec, of_spec in (
                (alternates, _without_mover(windows)),
                (SPEC, agent_cases.store(windows, mover=mover)),
            )
        ]
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), *found)


def _without_mover(windows: windowing.Windows) -> windowing.Windows:
    return windows._replace(stored={name: x for name, x in windows.stored.items() if name != "mover"})


def _turn_model(config: configs.Config, logit: float) -> muzero_model.Parts:
    def dynamics(params: Any, s: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        return s, jnp.zeros((len(s), config.network.num_bins + 1)).at[:, -1].set(logit)

    def predict(params: Any, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros((len(s), 3)), cases.certain(jnp.full(len(s), 2.0))

    return cases.model(config, SPEC, dynamics=dynamics, predict=predict)


@pytest.mark.thorough
def test_turns_are_learned_by_their_cross_entropy_and_nobody_moves_at_an_end() -> None:
    config = cases.make_config()
    windows = _windows(config)
    metrics = cases.loss_and_metrics(_turn_model(config, 2.0), {}, windows)[1]
    mover, errors_of_steps = np.asarray(windows.stored["mover"]), []
    for row in range(cases.BATCH):
        for k in (1, 2):
            if windows.valid[row, k] and not windows.terminated[row, k]:
                goes = mover[row, k] != mover[row, k - 1]
                errors_of_steps.append(np.log1p(np.exp(-2.0 if goes else 2.0)) / 2)
    np.testing.assert_allclose(metrics["loss_turn"], np.sum(errors_of_steps) / cases.BATCH, rtol=1e-5)
    ended = windows._replace(terminated=windows.valid & (np.arange(windows.valid.shape[1]) > 0))
    assert cases.loss_and_metrics(_turn_model(config, 2.0), {}, ended)[1]["loss_turn"] == 0


@pytest.mark.parametrize(("logit", "sign"), [(3.0, -1.0), (-3.0, 1.0)])
def test_the_search_takes_the_sign_from_the_predicted_turn(logit: float, sign: float) -> None:
    parts = _turn_model(cases.make_config(), logit)
    prediction, _ = muzero_search.recurrent_fn(parts)({}, jnp.zeros(2, jnp.int32), jnp.zeros((2, 5)))
    np.testing.assert_allclose(prediction.discount, 0.5 * sign)
    np.testing.assert_allclose(prediction.value, 2.0, rtol=1e-3)


@pytest.mark.thorough
def test_rows_store_the_mover_and_the_reward_head_has_one_logit_more() -> None:
    config = cases.make_config()
    agent = muzero.make(config, SPEC, "cpu")
    state = jax.jit(agent.init)(jax.random.key(0))
    assert state.params["reward_head"]["Dense_1"]["kernel"].shape == (8, 12)
    shown = {"observation": jnp.array([[0.0, 0, 0, 0, 1], [1, 0, 0, 0, 0]])}
    inputs = agent_cases.inputs(shown, num_actions=3)
    _, outputs = jax.jit(agent.act)(state.params, (), inputs, jax.random.key(1))
    assert outputs.stored["mover"].tolist() == [1, 0] and outputs.stored["mover"].dtype == agent.stored["mover"].dtype
    assert "mover" not in muzero.make(config, cases.SPEC, "cpu").stored


@pytest.mark.thorough
def test_the_mover_is_found_in_an_array_of_any_name() -> None:
    arrays = [types.ArraySpec("board", (5,), "float32")]
    agent = muzero.make(
        cases.make_config(), types.EnvSpec.of_arrays(arrays, num_actions=3, num_players=2, moves_again=True), "cpu"
    )
    inputs = agent_cases.inputs({"board": jnp.array([[0.0, 0, 0, 0, 1], [1, 0, 0, 0, 0]])}, num_actions=3)
    params = jax.jit(agent.init)(jax.random.key(0)).params
    _, outputs = jax.jit(agent.act)(params, (), inputs, jax.random.key(1))
    assert outputs.stored["mover"].tolist() == [1, 0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [{"muzero.value_prefix": True}, {"muzero.predict_ends": True, "reanalyse.fresh_share": 1.0}, FUNCTIONS],
    ids=str,
)
def test_turns_are_learned_beside_other_targets_and_models(changes: dict[str, options.Value]) -> None:
    """`decode` refuses logits that still hold the turn's."""
    config = configs.override(cases.make_config(), changes)
    windows = _windows(config, len(muzero_loss.offsets(config)))
    windows = agent_cases.store(windows, probability=jnp.full(windows.valid.shape, 0.5))
    agent: base.Agent = muzero.make(config, SPEC, "cpu")
    state = jax.jit(agent.init)(jax.random.key(0))
    update = jax.jit(lambda state, windows, key: agent.update(state, windows, key, None))
    _, _, metrics = update(state, windows, jax.random.key(1))
    assert np.isfinite(float(metrics["loss"])) and float(metrics["loss_turn"]) > 0
