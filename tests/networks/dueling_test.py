"""Dueling Q networks: shapes, dtypes, the mean advantage, and an LSTM's state."""

from __future__ import annotations

import functools
from typing import Any

import golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import shared
from seedzero.core import errors, types
from seedzero.networks import actor_critic

VECTOR = types.EnvSpec((4,), "float32", 3)
GRID = types.EnvSpec((10, 5, 1), "uint8", 3, observation_low=0, observation_high=1)
IMAGE = types.EnvSpec((84, 84, 1), "uint8", 3, observation_low=0, observation_high=255)
B, T = 2, 5


@functools.cache
def _make(spec: types.EnvSpec, platform: str = "cpu", **changes: Any) -> actor_critic.RecurrentNetwork[Any]:
    layers = shared.Layers("agent", **{"torso": "auto", "width": 16, **changes})
    return actor_critic.dueling(layers, spec, platform)


def _steps(spec: types.EnvSpec, frame_stack: int = 1) -> actor_critic.Steps:
    random = np.random.default_rng(0)
    shape = (*spec.observation_shape[:-1], spec.observation_shape[-1] * frame_stack)
    shown = random.integers(0, 2, (B, T, *shape)).astype(spec.observation_dtype)
    return actor_critic.Steps(
        observation={types.OBSERVATION: shown},
        first=np.zeros((B, T), bool),
        reward=random.uniform(-1, 1, (B, T)).astype(np.float32),
        last_action=random.integers(0, spec.num_actions, (B, T)).astype(np.int32),
    )


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("lstm_width", [0, 6])
@pytest.mark.parametrize(
    ("spec", "torso"), [(VECTOR, "auto"), (GRID, "auto"), (IMAGE, "auto"), (IMAGE, "deep"), (GRID, "mlp")]
)
def test_values_of_all_actions_are_float32(spec: types.EnvSpec, torso: str, lstm_width: int, platform: str) -> None:
    network = _make(spec, platform, torso=torso, lstm_width=lstm_width, frame_stack=2)
    params = jax.eval_shape(network.init, jax.random.key(0))
    state = jax.eval_shape(lambda: network.initial_state(B))
    after, q = jax.eval_shape(network.unroll, params, state, _steps(spec, 2))
    assert (after.shape, after.dtype) == ((B, 2 * lstm_width), jnp.float32)
    assert (q.shape, q.dtype) == ((B, T, 3), jnp.float32)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))


def test_a_torso_that_does_not_fit_is_refused_by_the_settings_name(said: golden.Said) -> None:
    with pytest.raises(errors.ConfigError, match=r"agent\.torso=nature ") as raised:
        _make(VECTOR, torso="nature")
    said(raised.value)


def test_the_mean_of_the_values_is_the_value_stream() -> None:
    network, steps = _make(VECTOR), _steps(VECTOR)
    params = jax.jit(network.init)(jax.random.key(0))
    heads = sorted(name for name in params if name.startswith("Dense"))
    value_head = next(name for name in heads if params[name]["kernel"].shape == (16, 1))
    _, before = jax.jit(network.unroll)(params, network.initial_state(B), steps)
    assert np.ptp(before, axis=-1).max() > 0.1
    shifted = {**params[value_head], "bias": params[value_head]["bias"] + 2.0}
    _, after = jax.jit(network.unroll)({**params, value_head: shifted}, network.initial_state(B), steps)
    np.testing.assert_allclose(after, before + 2.0, atol=1e-5)
    [advantage_head] = [name for name in heads if params[name]["kernel"].shape == (16, 3)]
    shifted = {**params[advantage_head], "bias": params[advantage_head]["bias"] + 2.0}
    _, after = jax.jit(network.unroll)({**params, advantage_head: shifted}, network.initial_state(B), steps)
    np.testing.assert_allclose(after, before, atol=1e-5)
