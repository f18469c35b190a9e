"""The search: noise row by row, masks, depth, trees, and values worked by hand."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference  # beside this file: see conftest.py

from seedzero import search as mcts
from seedzero.search import selection

A, B = 5, 16
POLICIES = ("gumbel", "puct")
PARAMS = jax.random.normal(jax.random.key(42), (A, 8))


def _root() -> mcts.Root:
    embedding = jax.random.normal(jax.random.key(1), (B, 8))
    return mcts.Root(embedding[:, 3:], embedding[:, 0], embedding)


def _even(params: Any, action: jax.Array, embedding: Any) -> tuple[mcts.Prediction, Any]:
    """A model without rewards and values."""
    zeros = jnp.zeros(action.shape)
    return mcts.Prediction(zeros, zeros, jnp.zeros((*action.shape, A)), zeros), embedding


def _run(step: Any, root: mcts.Root, *, explore: Any = False, **changes: Any) -> mcts.Result:
    """Returns the search of a model without parameters."""
    config, num_rows = mcts.SearchConfig(**changes), len(root.value)
    run = jax.jit(functools.partial(mcts.search, recurrent_fn=step, config=config))
    result: mcts.Result = run((), jax.random.key(0), root, explore=jnp.broadcast_to(jnp.asarray(explore), num_rows))
    return result


@functools.cache
def _compiled(config: mcts.SearchConfig) -> Any:
    """One compilation for each configuration, whatever the test."""
    return jax.jit(functools.partial(mcts.search, recurrent_fn=reference.smooth_step, config=config))


def _search(
    policy: str, key: int, explore: Any = True, invalid: Any = False, root: mcts.Root | None = None, **changes: Any
) -> mcts.Result:
    config = dataclasses.replace(mcts.SearchConfig(policy=policy, num_simulations=12), **changes)
    result: mcts.Result = _compiled(config)(
        PARAMS,
        jax.random.key(key),
        root or _root(),
        invalid_actions=jnp.broadcast_to(jnp.asarray(invalid), (B, A)),
        explore=jnp.broadcast_to(jnp.asarray(explore), (B,)),
    )
    return result


@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_rows_do_not_depend_on_the_key_and_exploring_rows_do(policy: str) -> None:
    explore = [False] * 8 + [True] * 8
    results = [_search(policy, key, explore) for key in range(3)]
    actions = np.stack([result.action for result in results])
    assert (actions[:, :8] == actions[0, :8]).all()
    assert not (actions[:, 8:] == actions[0, 8:]).all()
    values = np.stack([result.root_value for result in results])
    np.testing.assert_array_equal(values[0, :8], values[1, :8])
    assert not np.array_equal(values[0, 8:], values[1, 8:])


@pytest.mark.thorough
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("name", "value"),
    [("jax_enable_x64", True), ("jax_numpy_rank_promotion", "raise"), ("jax_numpy_dtype_promotion", "strict")],
)
def test_it_searches_with_every_setting_of_jax(name: str, value: Any, policy: str) -> None:
    def step(params: jax.Array, action: jax.Array, embedding: Any) -> tuple[mcts.Prediction, Any]:
        end = jnp.zeros(action.shape)
        return mcts.Prediction(params[action], end, jnp.zeros((*action.shape, 2)), end), embedding

    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        root = mcts.Root(jnp.zeros((2, 2)), jnp.zeros(2), jnp.zeros((2, 1)))
        config = mcts.SearchConfig(policy=policy, num_simulations=8)
        run = jax.jit(functools.partial(mcts.search, recurrent_fn=step, config=config, return_tree=True))
        invalid = jnp.zeros((2, 2), bool)
        found = run(
            jnp.array([0.0, 1.0]), jax.random.key(0), root, explore=jnp.zeros(2, bool), invalid_actions=invalid
        )
        assert found.action.tolist() == [1, 1] and found.visit_counts.sum(axis=-1).tolist() == [8, 8]
        assert found.root_value.dtype == (jnp.float64 if name == "jax_enable_x64" else jnp.float32)
    finally:
        jax.config.update(name, before)


@pytest.mark.thorough
def test_of_equal_actions_the_first_is_taken() -> None:
    result = _run(_even, mcts.Root(jnp.zeros((1, A)), jnp.zeros(1), ()), policy="puct", num_simulations=2)
    assert result.visit_counts.tolist() == [[1, 1, 0, 0, 0]]


@pytest.mark.parametrize("policy", POLICIES)
def test_illegal_actions_are_never_visited_chosen_or_learned(policy: str) -> None:
    invalid = np.random.default_rng(0).random((B, A)) < 0.6
    invalid[np.arange(B), np.arange(B) % A] = False
    result = _search(policy, 5, invalid=invalid)
    assert not invalid[np.arange(B), result.action].any()
    assert (np.asarray(result.visit_counts)[invalid] == 0).all()
    assert (np.asarray(result.action_weights)[invalid] == 0.0).all()
    np.testing.assert_allclose(np.asarray(result.action_weights).sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("explore", [False, True])
def test_a_legal_prior_of_minus_infinity_stays_ahead_of_illegal_actions(policy: str, explore: bool) -> None:
    """Rows of an even number have one legal action with a prior above 0, rows of an odd number none."""
    invalid = np.tile(np.array([True, False, True, False, False]), (B, 1))
    root = _root()
    logits = np.array(root.prior_logits)
    logits[:, 3:] = -np.inf
    logits[1::2] = -np.inf
    result = _search(policy, 5, explore, invalid, root._replace(prior_logits=jnp.asarray(logits)))
    visits, weights = np.asarray(result.visit_counts), np.asarray(result.action_weights)
    assert (visits[invalid] == 0).all() and (visits.sum(axis=1) == 12).all()
    assert not invalid[np.arange(B), result.action].any()
    assert (weights[invalid] == 0.0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-5)
    if policy == "gumbel":  # every legal action is considered
        assert (visits[~invalid] > 0).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("explore", [False, True])
def test_a_row_without_a_legal_action_gives_numbers_and_disturbs_no_other(policy: str, explore: bool) -> None:
    invalid = np.zeros((B, A), bool)
    invalid[1] = True
    result = _search(policy, 5, explore, invalid)
    assert all(np.isfinite(x).all() for x in result[:-1])
    assert 0 <= result.action[1] < A
    undisturbed = _search(policy, 5, explore)
    np.testing.assert_array_equal(result.visit_counts[0], undisturbed.visit_counts[0])


@pytest.mark.thorough
@pytest.mark.parametrize("policy", POLICIES)
def test_the_root_value_is_the_mean_of_what_was_backed_up(policy: str) -> None:
    def step(params: Any, action: jax.Array, embedding: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
        ones = jnp.ones(action.shape)
        return mcts.Prediction(2.0 * ones, 0.5 * ones, jnp.zeros((*action.shape, A)), 4.0 * ones), embedding

    result = _run(step, mcts.Root(jnp.zeros((1, A)), jnp.ones(1), jnp.zeros((1, 1))), policy=policy, num_simulations=1)
    # The edge gives 2 + 4/2 = 4; with the root's own value 1 that is (1 + 4) / 2.
    np.testing.assert_allclose(result.root_value, [2.5])
    np.testing.assert_allclose(np.asarray(result.q_values).max(), 4.0)
    assert np.asarray(result.visit_counts).sum() == 1


@pytest.mark.thorough
@pytest.mark.parametrize(("max_depth", "deepest"), [(1, 1.0), (2, 2.0), (0, 3.0)])
def test_paths_end_at_the_largest_depth(max_depth: int, deepest: float) -> None:
    seen: list[float] = []

    def step(params: Any, action: jax.Array, depth: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
        jax.debug.callback(lambda d: seen.append(float(d)), depth[0] + 1.0)
        zeros = jnp.zeros(action.shape)
        return mcts.Prediction(zeros, zeros + 1.0, jnp.zeros((*action.shape, 1)), zeros), depth + 1.0

    root = mcts.Root(jnp.zeros((1, 1)), jnp.zeros(1), jnp.zeros(1))
    jax.block_until_ready(_run(step, root, num_simulations=3, max_depth=max_depth))
    jax.effects_barrier()
    assert max(seen) == deepest


def test_puct_without_temperature_takes_the_most_visited_action_though_it_explores() -> None:
    result = _search("puct", 5, temperature=0.0)
    counts = np.asarray(result.visit_counts)
    np.testing.assert_array_equal(counts[np.arange(B), result.action], counts.max(axis=1))


def test_puct_noise_reaches_actions_that_the_prior_rules_out() -> None:
    root = mcts.Root(jnp.tile(jnp.array([60.0, 0.0, 0.0, 0.0, 0.0]), (B, 1)), jnp.zeros(B), jnp.zeros(B))
    settings = {"policy": "puct", "num_simulations": 12, "dirichlet_fraction": 0.5}
    result = _run(_even, root, explore=jnp.arange(B) < 8, **settings)
    elsewhere = np.asarray(result.visit_counts)[:, 1:].sum(axis=1)
    assert elsewhere[:8].sum() > 0
    assert elsewhere[8:].sum() == 0


# The draw ------------------------------------------------------------------------------------------------------------


def _draws(num_rows: int, **changes: Any) -> mcts.Result:
    """Returns so many searches of one position of four actions whose Q values are known: only the noise differs."""

    def step(params: Any, action: jax.Array, embedding: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
        reward = jnp.array([0.0, 1.0, 0.3, 0.6])[action]
        zeros = jnp.zeros(action.shape)
        return mcts.Prediction(reward, zeros, jnp.zeros((*action.shape, 4)), zeros), embedding

    logits = jnp.log(jnp.array([0.4, 0.1, 0.3, 0.2]))
    root = mcts.Root(jnp.tile(logits, (num_rows, 1)), jnp.full(num_rows, 0.35), jnp.zeros(num_rows))
    settings = {"num_simulations": 8, "value_scale": 0.02, "dirichlet_fraction": 0.0, **changes}
    return _run(step, root, explore=True, **settings)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        {"gumbel_scale": 0.5},
        {"gumbel_scale": 1.0},
        {"gumbel_scale": 4.0},
        {"policy": "puct", "temperature": 0.5},
        {"policy": "puct", "temperature": 1.0},
        {"policy": "puct", "temperature": 3.0},
    ],
    ids=str,
)
def test_actions_are_drawn_as_often_as_their_weights_say(changes: dict[str, Any]) -> None:
    result = _draws(4000, **changes)
    action, weights = np.asarray(result.action), np.asarray(result.draw_weights)
    shares = np.bincount(action, minlength=4) / len(action)
    np.testing.assert_allclose(weights.mean(axis=0), shares, atol=0.03)
    # By importance weights, the draws count as those of any other policy: here one that takes all of them alike.
    num_possible = np.count_nonzero(weights.mean(axis=0))  # PUCT draws visited actions alone
    counted = 1.0 / num_possible / np.take_along_axis(weights, action[:, None], axis=1)[:, 0]
    assert counted.mean() == pytest.approx(1.0, abs=0.1)
    is_usual = 1.0 in changes.values()
    learned = np.asarray(result.action_weights).mean(axis=0)
    assert (np.abs(learned - shares).max() < 0.03) == is_usual
    if is_usual and "policy" not in changes:  # runs of the usual scale keep their bits
        np.testing.assert_array_equal(result.draw_weights, result.action_weights)


def test_weights_of_the_draw_are_those_worked_by_hand() -> None:
    visits = np.array([[1.0, 9.0, 0.0], [4.0, 4.0, 0.0]], np.float32)
    explore, action = jnp.ones(2, bool), jnp.array([1, 0])

    def found(scale: float, explore: Any = explore) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.asarray(selection.draw_weights(jnp.asarray(np.log(visits)), scale, action, explore))

    np.testing.assert_allclose(found(1.0), [[0.1, 0.9, 0.0], [0.5, 0.5, 0.0]], rtol=1e-5)
    np.testing.assert_allclose(found(2.0), [[0.25, 0.75, 0.0], [0.5, 0.5, 0.0]], rtol=1e-5)
    np.testing.assert_allclose(found(0.5), [[1 / 82, 81 / 82, 0.0], [0.5, 0.5, 0.0]], rtol=1e-5)
    certain = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    np.testing.assert_array_equal(found(0.0), certain)
    np.testing.assert_array_equal(found(1.0, jnp.zeros(2, bool)), certain)


def _game_step(params: None, action: jax.Array, state: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
    """After one move, whichever it is, the other player's policy is 0.75, 0.25; its moves are worth 1, -1 to us."""
    depth, zeros = state + 1.0, jnp.zeros(action.shape)
    value = jnp.where(depth == 1.0, -0.5, jnp.where(action == 0, 1.0, -1.0))
    logits = jnp.broadcast_to(jnp.log(jnp.array([0.75, 0.25])), (*action.shape, 2))
    return mcts.Prediction(zeros, zeros - 1.0, logits, value), depth


@pytest.mark.thorough
@pytest.mark.parametrize("policy", POLICIES)
def test_with_a_model_of_the_opponent_values_are_expected_against_its_policy(policy: str) -> None:
    config = mcts.SearchConfig(policy=policy, num_simulations=33, max_depth=2)
    root = mcts.Root(jnp.zeros((1, 2)), jnp.zeros(1), jnp.zeros(1))
    one_move = dict(explore=jnp.zeros(1, bool), invalid_actions=jnp.array([[False, True]]))

    def value(opponent_model: bool) -> float:
        search = functools.partial(mcts.search, config=config, opponent_model=opponent_model, **one_move)
        return float(jax.jit(lambda: search(None, jax.random.key(0), root, _game_step).q_values[0, 0])())

    # Of 33 visits one ends at the opponent's node, 24 behind its first move and 8 behind its second.
    assert value(True) == pytest.approx(0.5)
    assert value(False) < 0.0  # it would take the second
