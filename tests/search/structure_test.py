"""What a search compiles to: no loop inside a simulation, the same work however many there are, small trees."""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero import search as mcts

B, A = 4, 6
CASES = [("gumbel", False), ("gumbel", True), ("puct", False), ("puct", True)]


def _step(params: None, action: jax.Array, state: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
    """The cosine occurs nowhere else: a loop that contains it runs simulations."""
    zeros = jnp.zeros(action.shape)
    return mcts.Prediction(zeros, zeros + 0.9, jnp.zeros((*action.shape, A)), state), jnp.cos(state)


@functools.cache
def _lower(policy: str, masked: bool, num_simulations: int) -> str:
    """Returns the StableHLO of a search."""
    config = mcts.SearchConfig(policy=policy, num_simulations=num_simulations, num_considered=4)

    def run(key: jax.Array, root: mcts.Root, invalid: jax.Array) -> mcts.Result:
        return mcts.search(
            None,
            key,
            root,
            _step,
            config=config,
            explore=jnp.zeros(B, bool),
            invalid_actions=invalid if masked else None,
        )

    root = mcts.Root(jnp.zeros((B, A)), jnp.zeros(B), jnp.zeros(B))
    return jax.jit(run).lower(jax.random.key(0), root, jnp.zeros((B, A), bool)).as_text()


def _regions(text: str) -> Iterator[tuple[int, str]]:
    """Yields every operation with the depth of the braces it stands in; calls are followed."""
    bodies: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if found := re.search(r"func\.func (?:public |private )?@(\w+)", line):
            name = found[1]
            bodies[name] = []
        elif name:
            bodies[name].append(line)

    def walk(function: str, depth: int) -> Iterator[tuple[int, str]]:
        for line in bodies[function]:
            depth -= line.lstrip().startswith("}")
            if found := re.search(r"\b(?:func\.)?call @(\w+)", line):
                yield from walk(found[1], depth)
            elif found := re.search(r"\bstablehlo\.(\w+)", line):
                yield depth, found[1]
            depth += line.count("{") - line.count("}") + line.lstrip().startswith("}")

    yield from walk("main", 0)


def _simulation_loops(text: str) -> list[list[str]]:
    """Returns the loops of a search that evaluate the model; there are others, which draw random numbers."""
    return [loop for loop in _loops(text) if "cosine" in loop]


def _loops(text: str) -> list[list[str]]:
    """Returns the operations inside each outermost loop."""
    loops: list[list[str]] = []
    outside = 0
    inside = False
    for depth, operation in _regions(text):
        if inside and depth <= outside:
            inside = False
        if inside:
            loops[-1].append(operation)
        elif operation == "while":
            outside, inside = depth, True
            loops.append([])
    return loops


def test_loops_within_loops_and_within_called_functions_are_seen() -> None:
    def inner(x: jax.Array) -> jax.Array:
        last: jax.Array = jax.lax.while_loop(lambda x: x < 9, lambda x: x + 1, x)
        return last

    def outer(x: jax.Array) -> jax.Array:
        last: jax.Array = jax.lax.fori_loop(0, 3, lambda _, x: jax.jit(inner)(x) * 2, x)
        return last

    nested = _loops(jax.jit(outer).lower(0).as_text())
    assert len(nested) == 1
    assert nested[0].count("while") == 1
    flat = _loops(jax.jit(lambda x: inner(inner(x))).lower(0).as_text())
    assert len(flat) == 2
    assert not any("while" in loop for loop in flat)


@pytest.mark.thorough
@pytest.mark.parametrize(("policy", "masked"), CASES)
def test_no_loop_inside_the_simulation_loop(policy: str, masked: bool) -> None:
    loops = _simulation_loops(_lower(policy, masked, 200))
    assert loops
    for loop in loops:
        assert loop.count("cosine") == 1
        assert "while" not in loop
        assert "sort" not in loop


@pytest.mark.thorough
@pytest.mark.parametrize(("policy", "masked"), CASES)
def test_a_simulation_is_the_same_operations_however_deep_and_many_they_are(policy: str, masked: bool) -> None:
    few, many = (_simulation_loops(_lower(policy, masked, number))[0] for number in (24, 200))
    assert collections.Counter(few) == collections.Counter(many)


@pytest.mark.parametrize("policy", ["gumbel", "puct"])
def test_trees_of_a_large_batch_take_at_most_60_megabytes(policy: str) -> None:
    config = mcts.SearchConfig(policy=policy, num_simulations=50, num_considered=16)
    assert 1_000_000 < mcts.tree_bytes(512, 18, config) <= 60_000_000


def test_tree_bytes_counts_what_a_search_holds() -> None:
    config = mcts.SearchConfig(policy="puct", num_simulations=1)
    # Two nodes: value, next action; prior, its logarithm, visits, Q of three actions; three tables of two by two.
    assert mcts.tree_bytes(5, 3, config) == 5 * 4 * (2 * 2 + 2 * 3 * 4 + 3 * 2 * 2)


def test_sweeps_have_as_many_actions_as_there_are() -> None:
    config = mcts.SearchConfig(policy="gumbel", num_simulations=16, num_considered=8)
    assert mcts.sweep_widths(config, 4) == (4, 4, 2, 2, 2, 2)
    puct = mcts.SearchConfig(policy="puct", num_simulations=3)
    assert mcts.sweep_widths(puct, 18) == (1, 1, 1)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("num_considered", "rounds", "widths"),
    [(8, 0, (8, 4, 2, 2)), (8, 2, (8, 4, 4)), (8, 1, (8, 8)), (16, 1, (16,))],  # the last: one call behind the root's
)
def test_the_network_is_called_once_a_sweep(num_considered: int, rounds: int, widths: tuple[int, ...]) -> None:
    config = mcts.SearchConfig(policy="gumbel", num_simulations=16, num_considered=num_considered, rounds=rounds)
    assert mcts.sweep_widths(config, 18) == widths
    called: list[int] = []

    def step(params: None, action: jax.Array, state: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
        jax.debug.callback(lambda: called.append(action.shape[0]))
        return _step(params, action, state)

    @jax.jit
    def run() -> mcts.Result:
        return mcts.search(
            None,
            jax.random.key(0),
            mcts.Root(jnp.zeros((B, 18)), jnp.zeros(B), jnp.zeros(B)),
            lambda params, action, state: _with_actions(step(params, action, state), 18),
            config=config,
            explore=jnp.zeros(B, bool),
        )

    found = jax.block_until_ready(run())
    jax.effects_barrier()
    assert sorted(called, reverse=True) == [width * B for width in widths]
    visits = np.sort(np.asarray(found.visit_counts), axis=1)[:, ::-1]
    assert np.all(visits.sum(axis=1) == 16) and np.all((visits > 0).sum(axis=1) == widths[0])
    assert np.all(visits[:, : widths[-1]] == len(widths))  # the last ones were visited in every sweep


def _with_actions(found: tuple[mcts.Prediction, jax.Array], num_actions: int) -> tuple[mcts.Prediction, jax.Array]:
    prediction, state = found
    return prediction._replace(prior_logits=jnp.zeros((*state.shape, num_actions))), state
