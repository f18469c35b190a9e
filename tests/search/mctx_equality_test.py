"""Both searches equal mctx, row by row, on random models: PUCT everywhere, Gumbel but for halving inside a sweep.

Every row is compared, but for those few whose priors mctx loses. mctx breaks ties by noise of 1e-7, and 32 bits are
not exact: a row that differs must have had a decision that close (the plain reference tells), and at most one row in a
hundred may differ. The many rows of the large cases are `slow`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mctx  # type: ignore[import-untyped]
import numpy as np
import pytest
import reference  # beside this file: see conftest.py

from seedzero import search as mcts

CLOSE = 1e-5
case = reference.case

PUCT = [
    case("puct", 9, 40, 80, masked=True, max_depth=2, pb_c_init=2.5, pb_c_base=100.0),
    case("puct", 18, 50, 120, masked=True),
]

_NARROW = {"num_considered": 8, "max_depth": 3, "gumbel_scale": 0.5, "value_scale": 1.0, "max_visit_init": 5.0}

# Cases of the reference's test, too, and searched once.
GUMBEL = [case("gumbel", 8, 30, 24, masked=True, **_NARROW), case("gumbel", 18, 50, 24, masked=True)]


@functools.cache
def by_mctx(of: reference.Case) -> Any:
    """Returns what mctx finds for the case's batch: its output without the tree, and the summary of the root."""
    batch = reference.batch_of(of)
    return run_mctx(of, batch, reference.step, reference.batch_root(batch))


def run_mctx(of: reference.Case, batch: reference.Batch, step: Any, root: mcts.Root) -> Any:
    config = of.config

    def recurrent_fn(params: Any, key: Any, action: jax.Array, embedding: Any) -> Any:
        del key
        prediction, embedding = step(params, action, embedding)
        return mctx.RecurrentFnOutput(**prediction._asdict()), embedding

    @jax.jit
    def run(params: Any, root: Any, invalid_actions: jax.Array, explore: jax.Array) -> Any:
        output = mctx_policy(of, explore)(
            params,
            reference.KEY,
            root,
            recurrent_fn,
            config.num_simulations,
            invalid_actions=invalid_actions,
            max_depth=config.max_depth or None,
        )
        return output.replace(search_tree=None), output.search_tree.summary()

    tables = jax.tree.map(jnp.asarray, batch.tables)
    found = run(tables, mctx.RootFnOutput(**root._asdict()), jnp.asarray(~batch.legal), jnp.asarray(batch.explore))
    return jax.tree.map(np.asarray, found)


def mctx_policy(of: reference.Case, explore: jax.Array) -> Any:
    config = of.config
    if config.policy == "puct":
        return functools.partial(
            mctx.muzero_policy,
            dirichlet_fraction=0.0,
            pb_c_init=config.pb_c_init,
            pb_c_base=config.pb_c_base,
            qtransform=functools.partial(mctx.qtransform_by_parent_and_siblings, epsilon=config.min_value_range),
        )
    return functools.partial(
        mctx.gumbel_muzero_policy,
        max_num_considered_actions=min(config.num_considered, of.num_actions),
        gumbel_scale=config.gumbel_scale * explore[:, None],
        qtransform=functools.partial(
            mctx.qtransform_completed_by_mix_value,
            value_scale=config.value_scale,
            maxvisit_init=config.max_visit_init,
            epsilon=config.min_value_range,
        ),
    )


def never_halves(of: reference.Case) -> np.ndarray:
    """Returns [B] bool: no sweep visits more than one action of those that it had to choose."""
    num_considered = np.minimum(of.config.num_considered, reference.batch_of(of).legal.sum(axis=1))
    return np.asarray((num_considered <= 2) | (of.config.num_simulations <= num_considered + 1))


def agreement(of: reference.Case) -> np.ndarray:
    """Returns [B] bool: the same visits at the root, and close values and weights."""
    result, (output, summary) = reference.engine(of), by_mctx(of)
    return np.asarray(
        (result.visit_counts == summary.visit_counts).all(axis=1)
        & np.isclose(result.q_values, summary.qvalues, rtol=1e-4, atol=1e-4).all(axis=1)
        & np.isclose(result.root_value, summary.value, rtol=1e-4, atol=1e-4)
        & np.isclose(result.action_weights, output.action_weights, atol=2e-5).all(axis=1)
    )


def lost_by_mctx(of: reference.Case) -> np.ndarray:
    """Returns [B] bool: mctx's PUCT takes 32-bit probabilities before it masks, and no legal action has one left."""
    batch = reference.batch_of(of)
    logits = batch.tables.prior_logits[batch.states].astype(float)
    legal_logits = np.where(batch.legal, logits, -np.inf)
    lost = logits.max(axis=1) - legal_logits.max(axis=1) > 80.0  # exp(-80) is 1e-35, the least float32 1e-38
    assert lost.mean() <= 0.1
    return np.asarray(lost)


def check_differing(of: reference.Case, differs: np.ndarray) -> None:
    rows = np.flatnonzero(differs)
    for row in rows:
        assert reference.reference_of(of, int(row)).margin < CLOSE, f"row {row} of {of}"
    assert len(rows) <= -(-of.batch_size // 100)


@pytest.mark.parametrize("of", PUCT, ids=str)
def test_puct_equals_mctx(of: reference.Case) -> None:
    check_differing(of, ~agreement(of) & ~lost_by_mctx(of))


def test_puct_hardly_ever_decides_otherwise_than_mctx() -> None:
    same = np.concatenate([agreement(of)[~lost_by_mctx(of)] for of in PUCT])
    assert len(same) > 150
    assert (~same).mean() <= 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("of", GUMBEL, ids=str)
def test_gumbel_equals_mctx_where_nothing_is_halved(of: reference.Case) -> None:
    comparable = never_halves(of)
    assert comparable.any()
    same_action = reference.engine(of).action == by_mctx(of)[0].action
    check_differing(of, comparable & ~(agreement(of) & same_action))


@pytest.mark.parametrize("of", GUMBEL, ids=str)
def test_gumbel_differs_from_mctx_only_in_who_is_dropped(of: reference.Case) -> None:
    """mctx ranks again after each visit of a sweep, the engine at its start; equal visits mean equal subtrees."""
    result, (_, summary) = reference.engine(of), by_mctx(of)
    np.testing.assert_array_equal(np.sort(result.visit_counts), np.sort(summary.visit_counts))
    equally_often = result.visit_counts == summary.visit_counts
    close = np.isclose(result.q_values, summary.qvalues, rtol=1e-4, atol=1e-4)
    check_differing(of, (equally_often & ~close).any(axis=1))
    assert equally_often.all(axis=1).mean() > 0.75


@pytest.mark.parametrize("of", PUCT, ids=str)
def test_puct_equals_the_reference(of: reference.Case) -> None:
    """A few rows of each, for what mctx does not tell: depths, and the action where none is drawn."""
    result = reference.engine(of)
    rows = range(0, of.batch_size, -(-of.batch_size // 8))
    clear = {row: found for row in rows if (found := reference.reference_of(of, row)).margin >= CLOSE}
    assert len(clear) > len(rows) / 2
    for row, found in clear.items():
        np.testing.assert_array_equal(result.visit_counts[row], found.visit_counts)
        np.testing.assert_allclose(result.q_values[row], found.q_values, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(result.mean_depth[row], found.mean_depth, rtol=1e-5)
        assert int(result.max_depth[row]) == found.max_depth
        assert int(result.action[row]) == found.action


@pytest.mark.thorough
@pytest.mark.parametrize("of", [PUCT[-1], GUMBEL[-1]], ids=str)
def test_the_same_key_gives_the_same_bits(of: reference.Case) -> None:
    for first, second in zip(reference.engine(of), reference.engine_again(of), strict=True):
        np.testing.assert_array_equal(first, second)


def mixed_step(tables: Any, action: jax.Array, embedding: Any) -> tuple[mcts.Prediction, Any]:
    """A model whose states are a tree of dtypes; the last three actions and the number of moves add to the reward.

    All sums are exact in any order, so that both searches see the same rewards.
    """
    prediction, state = reference.step(tables, action, embedding["state"])
    newest = (action % 8).astype(jnp.bfloat16)[:, None]
    last_actions = jnp.concatenate([newest, embedding["history"]["actions"][:, :2]], axis=1)
    num_moves = embedding["history"]["moves"] + jnp.int8(1)
    bonus = last_actions.astype(jnp.float32).sum(axis=1) / 32 + num_moves.astype(jnp.float32) / 16
    following = {"state": state, "history": {"actions": last_actions, "moves": num_moves}}
    return prediction._replace(reward=bonus), following


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["puct", "gumbel"])
def test_states_may_be_trees_of_any_dtype(policy: str) -> None:
    of = case(policy, 6, 20, 64, num_considered=2)
    batch = reference.batch_of(of)
    rows = of.batch_size
    history = {"actions": jnp.zeros((rows, 3), jnp.bfloat16), "moves": jnp.zeros(rows, jnp.int8)}
    root = reference.batch_root(batch)
    root = root._replace(embedding={"state": root.embedding, "history": history})
    run = jax.jit(functools.partial(mcts.search, recurrent_fn=mixed_step, config=of.config))
    tables = jax.tree.map(jnp.asarray, batch.tables)
    result = run(tables, reference.KEY, root, explore=jnp.asarray(batch.explore))
    output, summary = run_mctx(of, batch, mixed_step, root)
    same = (result.visit_counts == summary.visit_counts).all(axis=1)
    assert (~same).sum() <= 1
    np.testing.assert_allclose(result.q_values[same], summary.qvalues[same], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(result.action_weights[same], output.action_weights[same], atol=2e-5)
