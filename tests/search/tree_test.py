"""The tree that a search returns on request: consistent with the result, and drawn."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference  # beside this file: see conftest.py

from seedzero import search as mcts

B, A = 3, 4


@functools.cache
def _search(policy: str, *, mask: bool = False, max_depth: int = 0, return_tree: bool = True) -> mcts.Result:
    config = mcts.SearchConfig(
        policy=policy, num_simulations=20, num_considered=4, max_depth=max_depth, value_scale=1.0
    )
    state = jax.random.normal(jax.random.key(1), (B, 8))
    invalid = jnp.arange(A)[None] > jnp.arange(B)[:, None] if mask else None
    run = functools.partial(mcts.search, recurrent_fn=reference.smooth_step, config=config, return_tree=return_tree)
    result: mcts.Result = jax.jit(run)(
        jax.random.normal(jax.random.key(2), (A, 8)),
        jax.random.key(3),
        mcts.Root(state[:, 3 : 3 + A], state[:, 0], state),
        explore=jnp.arange(B) < 2,
        invalid_actions=invalid,
    )
    return result


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("policy", "mask", "max_depth"), [("gumbel", True, 0), ("gumbel", False, 2), ("puct", False, 0), ("puct", True, 2)]
)
def test_a_tree_holds_every_simulation_and_agrees_with_the_result(policy: str, mask: bool, max_depth: int) -> None:
    result = jax.tree.map(np.asarray, _search(policy, mask=mask, max_depth=max_depth))
    tree = result.tree
    assert (np.sum(tree.num_visits > 0, axis=1) == 21).all()
    for row in range(B):
        used = np.flatnonzero(tree.num_visits[row] > 0)
        assert tree.parent[row, 0] == -1
        assert tree.num_visits[row, 0] == 21
        np.testing.assert_allclose(tree.value[row, 0], result.root_value[row], rtol=1e-5)
        assert tree.depth[row].max() == result.max_depth[row] <= (max_depth or 20)
        np.testing.assert_allclose(tree.depth[row][used[1:]].mean(), result.mean_depth[row], rtol=1e-6)
        returns = np.zeros(tree.value.shape[1])
        counts = np.zeros(tree.value.shape[1])
        for node in used[:0:-1]:
            parent = tree.parent[row, node]
            assert parent < node
            assert tree.num_visits[row, parent] > 0
            assert tree.depth[row, node] == tree.depth[row, parent] + 1
            edge = tree.reward[row, node] + tree.discount[row, node] * tree.value[row, node]
            returns[parent] += tree.num_visits[row, node] * edge
            counts[parent] += tree.num_visits[row, node]
            if parent == 0:
                same = (tree.parent[row] == 0) & (tree.action[row] == tree.action[row, node])
                assert tree.num_visits[row][same].sum() == result.visit_counts[row, tree.action[row, node]]
        # A node's visits are its own evaluation and those behind it.
        np.testing.assert_array_equal(counts[used] + 1, tree.num_visits[row][used])
        unused = tree.num_visits[row] == 0
        assert (tree.parent[row][unused] == -1).all()


def test_values_are_means_of_what_lies_below() -> None:
    tree = jax.tree.map(np.asarray, _search("puct").tree)
    for node in range(1, 21):
        children = np.flatnonzero(tree.parent[0] == node)
        below = tree.num_visits[0][children] * (
            tree.reward[0][children] + tree.discount[0][children] * tree.value[0][children]
        )
        own = tree.value[0, node] * tree.num_visits[0, node] - below.sum()
        if not len(children):
            assert tree.num_visits[0, node] == 1
        assert abs(own) <= 2.0 + 1e-4  # the model's values lie within -2 and 2


@pytest.mark.thorough
def test_a_search_without_a_tree_finds_the_same() -> None:
    result = _search("gumbel")
    assert result.tree is not None
    bare = _search("gumbel", return_tree=False)
    assert bare.tree is None
    np.testing.assert_array_equal(bare.visit_counts, result.visit_counts)
    np.testing.assert_array_equal(bare.action, result.action)


@pytest.mark.thorough
def test_a_drawing_names_every_node_and_edge_once() -> None:
    result = _search("gumbel", mask=True)
    assert result.tree is not None
    text = mcts.to_dot(result.tree, row=1)
    assert text.startswith("digraph search {")
    assert text.rstrip().endswith("}")
    assert text.count(" -> ") == 20
    assert text.count(" visits") == 21
    assert "21 visits" in text
