"""Both ways to pick entries, the TPU's and the others', against numpy, and in whole searches against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference  # beside this file: see conftest.py

from seedzero import search as mcts
from seedzero.search import search_forest

N, W, B, A = 5, 3, 4, 7
T = W * B


@pytest.fixture(params=["tpu", "elsewhere"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    _choose(monkeypatch, request.param)
    return str(request.param)


def _choose(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    def by_platform(on_tpu: Callable[..., Any], elsewhere: Callable[..., Any], *arguments: Any) -> Any:
        return (on_tpu if way == "tpu" else elsewhere)(*arguments)

    monkeypatch.setattr(search_forest, "_by_platform", by_platform)


def _table(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _whole_numbers(below: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(below, size=shape).astype(np.int32)


@pytest.mark.thorough
@pytest.mark.parametrize("between", [(), (6,)])
def test_numbers_at_a_node(way: str, between: tuple[int, ...]) -> None:
    table, node = _table(N, *between, T), _whole_numbers(N, T)
    expected = np.stack([table[node[tree], ..., tree] for tree in range(T)], axis=-1)
    np.testing.assert_array_equal(search_forest.numbers(jnp.asarray(table), jnp.asarray(node)), expected)


def test_numbers_of_chosen_trees(way: str) -> None:
    table, chosen = _table(A, N, T), _whole_numbers(W, 2, B)
    expected = np.stack([table[..., chosen[i, b] * B + b] for i in range(2) for b in range(B)], axis=-1)
    np.testing.assert_array_equal(search_forest.trees_numbers(jnp.asarray(table), jnp.asarray(chosen)), expected)


@pytest.mark.parametrize("lengths", [(1,), (1, 2, 2), (2, search_forest.MOST_COMPARED + 1)])
def test_hidden_states_at_a_node_of_any_part(way: str, lengths: tuple[int, ...]) -> None:
    """The first part is the same for all trees of a position."""
    parts = [_table(length, T if i else B, 2, 3) for i, length in enumerate(lengths)]
    nodes = np.concatenate([np.tile(parts[0], (1, W, 1, 1)), *parts[1:]])
    node = _whole_numbers(len(nodes), T)
    found = search_forest.states(list(map(jnp.asarray, parts)), jnp.asarray(node))
    np.testing.assert_array_equal(found, nodes[node, np.arange(T)])


@pytest.mark.parametrize("num_groups", [W, search_forest.MOST_COMPARED + 1])
def test_hidden_states_of_chosen_trees(way: str, num_groups: int) -> None:
    part, chosen = _table(N, num_groups * B, 2), _whole_numbers(num_groups, 2, B)
    trees = (chosen * B + np.arange(B)).reshape(-1)
    np.testing.assert_array_equal(search_forest.trees_states(jnp.asarray(part), jnp.asarray(chosen)), part[:, trees])


def test_numbers_along_rows_are_read_and_written(way: str) -> None:
    table, values = _table(B, A), _table(B, W)
    index = np.stack([np.random.default_rng(row).permutation(A)[:W] for row in range(B)]).astype(np.int32)
    table[0, index[0, 0]] = -np.inf
    found = search_forest.along(jnp.asarray(table), jnp.asarray(index))
    np.testing.assert_array_equal(found, np.take_along_axis(table, index, axis=-1))
    np.put_along_axis(table, index, values, axis=-1)
    found = search_forest.put(
        jnp.asarray(_table(B, A)).at[0, index[0, 0]].set(-np.inf), jnp.asarray(index), jnp.asarray(values)
    )
    np.testing.assert_array_equal(found, table)


@pytest.mark.parametrize(
    ("policy", "masked", "considered", "simulations"),
    [
        ("gumbel", True, 4, 40),
        pytest.param("gumbel", False, 20, 60, marks=pytest.mark.slow),
        ("puct", True, 1, 40),
    ],
)
def test_both_ways_search_alike(
    monkeypatch: pytest.MonkeyPatch, policy: str, masked: bool, considered: int, simulations: int
) -> None:
    config = mcts.SearchConfig(policy=policy, num_simulations=simulations, num_considered=considered, value_scale=1.0)
    num_actions, rows = 20, 5

    def found() -> mcts.Result:
        state = jax.random.normal(jax.random.key(1), (rows, 24))
        invalid = jnp.arange(num_actions)[None] > 5 * jnp.arange(rows)[:, None]
        run = jax.jit(lambda params, key, root: mcts.search(
            params, key, root, reference.smooth_step, config=config, explore=jnp.arange(rows) < 3,
            invalid_actions=invalid if masked else None, return_tree=True,
        ))  # fmt: skip
        root = mcts.Root(state[:, :num_actions], state[:, 0], state)
        result: mcts.Result = run(jax.random.normal(jax.random.key(2), (num_actions, 24)), jax.random.key(3), root)
        return mcts.Result(*jax.tree.map(np.asarray, result))

    usual = found()
    _choose(monkeypatch, "tpu")
    as_on_a_tpu = found()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), usual, as_on_a_tpu)
    np.testing.assert_array_equal(usual.visit_counts, as_on_a_tpu.visit_counts)
