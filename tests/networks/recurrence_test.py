"""Recurrent cores against the cells' equations in numpy, step by step."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.networks import recurrence

BATCH, STEPS, FEATURES, UNITS = 3, 6, 4, 5
WIDTHS = {"lstm": 10, "gru": 5}
FIRST = np.zeros((BATCH, STEPS), bool)
FIRST[1, 3], FIRST[2, 0] = True, True


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(params: Any, state: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hochreiter and Schmidhuber 1997, with a forget gate (Gers et al. 2000)."""
    c, h = np.split(state, 2, axis=-1)
    i, f, g, o = (
        x @ params[f"i{k}"]["kernel"] + h @ params[f"h{k}"]["kernel"] + params[f"h{k}"]["bias"] for k in "ifgo"
    )
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return np.concatenate([c, h], axis=-1), h


def gru(params: Any, h: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cho et al. 2014, with the reset gate behind the matrix."""
    r, z = (
        sigmoid(x @ params[f"i{k}"]["kernel"] + params[f"i{k}"]["bias"] + h @ params[f"h{k}"]["kernel"]) for k in "rz"
    )
    n = np.tanh(
        x @ params["in"]["kernel"] + params["in"]["bias"] + r * (h @ params["hn"]["kernel"] + params["hn"]["bias"])
    )
    h = (1 - z) * n + z * h
    return h, h


CELLS = {"lstm": (lstm, "OptimizedLSTMCell_0"), "gru": (gru, "GRUCell_0")}


@functools.cache
def core(kind: str) -> tuple[Any, Any]:
    """Returns a core's function, and parameters that all count."""
    module = recurrence.Recurrence(kind, UNITS, jnp.float32)
    state, x = jnp.zeros((BATCH, WIDTHS[kind])), jnp.zeros((BATCH, STEPS, FEATURES))
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), state, x, jnp.asarray(FIRST)))["params"]
    random = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), shapes)
    return jax.jit(lambda *inputs: module.apply({"params": params}, *inputs)), params


def draw(kind: str) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(2)
    state = random.normal(size=(BATCH, WIDTHS[kind])).astype(np.float32)
    return state, random.normal(size=(BATCH, STEPS, FEATURES)).astype(np.float32)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_core_follows_its_equations_and_begins_anew_with_each_episode(kind: str) -> None:
    apply, params = core(kind)
    (cell, name), (state, x) = CELLS[kind], draw(kind)
    after, out = apply(state, x, FIRST)
    for t in range(STEPS):
        state = np.where(FIRST[:, t, None], 0, state)
        state, expected = cell(params[name], state, x[:, t])
        np.testing.assert_allclose(out[:, t], expected, atol=1e-5)
    np.testing.assert_allclose(after, state, atol=1e-5)
    assert recurrence.state_width(kind, UNITS) == WIDTHS[kind] == after.shape[-1]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_state_that_begins_later_is_the_one_before_that_step(kind: str) -> None:
    """Row 0 begins at step 0, row 1 at step 2, row 2 at step 4; a first step still begins with nothing."""
    apply, _ = core(kind)
    state, x = draw(kind)
    begin = np.array([0, 2, 4])
    after, out = apply(state, x, FIRST, np.arange(STEPS) == begin[:, None])
    for row, start in enumerate(begin):
        one = slice(row, row + 1)
        expected, later = apply(state[one], x[one, start:], FIRST[one, start:])
        np.testing.assert_allclose(out[row, start:], later[0], atol=1e-6)
        np.testing.assert_allclose(after[row], expected[0], atol=1e-6)


def test_the_past_is_a_clipped_reward_and_an_action_and_nothing_at_a_beginning() -> None:
    x, reward = np.ones((1, 3, 1), np.float32), np.array([[5.0, -0.5, 2.0]], np.float32)
    first = np.array([[True, False, False]])
    found = recurrence.with_past(x, first, reward, np.array([[1, 1, 0]]), num_actions=2)
    assert found[0].tolist() == [[1, 0, 0, 0], [1, -0.5, 0, 1], [1, 1, 1, 0]]
    vectors = np.array([[[0.1], [0.2], [0.3]]], np.float32)
    found = recurrence.with_past(x, first, reward, vectors, num_actions=0)
    np.testing.assert_allclose(found[0], [[1, 0, 0], [1, -0.5, 0.2], [1, 1, 0.3]], rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(7,), (2, 3, 5)], ids=["vectors", "images"])
def test_hidden_states_keep_their_shape_and_scale(shape: tuple[int, ...]) -> None:
    module = recurrence.HiddenCore("gru", UNITS, 2, jnp.float32)
    random = np.random.default_rng(3)
    hidden = random.normal(size=(BATCH, STEPS, *shape)).astype(np.float32)
    steps = (np.zeros((BATCH, UNITS), np.float32), FIRST, np.zeros_like(FIRST, np.float32), np.zeros_like(FIRST, int))

    @jax.jit
    def apply(key: jax.Array, hidden: jax.Array) -> Any:
        return module.init_with_output(key, hidden, *steps)[0]

    state, found = apply(jax.random.key(0), hidden)
    assert state.shape == (BATCH, UNITS) and found.shape == hidden.shape
    flat = np.asarray(found).reshape(BATCH, STEPS, -1)
    np.testing.assert_allclose(flat.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(flat.std(-1), 1, atol=1e-3)
    # A later hidden state depends on what was seen earlier in its episode, and on nothing before it.
    changed = hidden.copy()
    changed[:, 2] += 1
    _, other = apply(jax.random.key(0), changed)
    differs = np.abs(np.asarray(found - other)).reshape(BATCH, STEPS, -1).max(-1) > 1e-6
    assert differs.tolist() == [[False] * 2 + [True] * 4, [False] * 2 + [True] + [False] * 3, [False] * 2 + [True] * 4]
