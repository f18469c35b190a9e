"""PPO's networks: shapes, dtypes, what policy and value share, and an untrained network's outputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.core import errors, types
from seedzero.networks import ppo
from seedzero.ops import statistics

VECTOR = types.EnvSpec((4,), "float32", 3)
CONTINUOUS = types.EnvSpec((4,), "float32", 0, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
GRID = types.EnvSpec((10, 5, 2), "uint8", 3, observation_low=0, observation_high=1)
IMAGE = types.EnvSpec((40, 40, 1), "uint8", 3, observation_low=0, observation_high=255)


def _make(spec: types.EnvSpec, platform: str = "cpu", **changes: Any) -> ppo.Network:
    usual = {"torso": "auto", "width": 16, "frame_stack": 1, "initial_std": 0.5, "normalizes": True}
    return ppo.make(spec, platform, **{**usual, "compute_dtype": "auto", **changes})


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("frame_stack", [1, 3])
@pytest.mark.parametrize("spec", [VECTOR, CONTINUOUS, GRID, IMAGE], ids=["vector", "continuous", "grid", "image"])
def test_every_network_gives_a_policy_and_a_value(spec: types.EnvSpec, frame_stack: int, platform: str) -> None:
    network = _make(spec, platform, frame_stack=frame_stack)
    shape = (6, *spec.observation_shape[:-1], spec.observation_shape[-1] * frame_stack)
    observation = jax.ShapeDtypeStruct(shape, jnp.dtype(spec.observation_dtype))
    params = jax.eval_shape(network.init, jax.random.key(0))
    found = jax.eval_shape(network.predict, params, network.no_moments, {types.OBSERVATION: observation})
    num_outputs = spec.num_actions or 2
    assert (found.policy.shape, found.policy.dtype) == ((6, num_outputs), jnp.float32)
    assert (found.value.shape, found.value.dtype) == ((6,), jnp.float32)
    assert found.log_std.shape == ((2,) if spec.is_continuous else (0,))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    num_normalized = 0 if network.no_moments is None else len(network.no_moments.mean)
    assert num_normalized == (4 * frame_stack if spec in (VECTOR, CONTINUOUS) else 0)


def test_an_untrained_policy_is_nearly_even_and_as_wide_as_configured() -> None:
    network = _make(CONTINUOUS)
    params = jax.jit(network.init)(jax.random.key(0))
    observation = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    found = jax.jit(network.predict)(params, network.no_moments, {types.OBSERVATION: observation})
    np.testing.assert_allclose(found.log_std, np.log([0.5, 0.5]), rtol=1e-6)
    assert np.all(np.abs(found.policy) < 0.1)
    # Moments change what is seen, and nothing else: observations 10 times as large look the same.
    ten = statistics.Moments(jnp.ones(()), jnp.zeros(4), jnp.full(4, 100.0))
    again = jax.jit(network.predict)(params, ten, {types.OBSERVATION: 10 * observation})
    np.testing.assert_allclose(again.value, found.value, rtol=1e-4)


@pytest.mark.parametrize(("spec", "shares"), [(VECTOR, False), (GRID, True)])
def test_policy_and_value_share_a_torso_for_pictures_alone(spec: types.EnvSpec, shares: bool) -> None:
    network = _make(spec, normalizes=False)
    drawn = np.random.default_rng(0).integers(0, 2, (6, *spec.observation_shape)).astype(spec.observation_dtype)
    observation = {types.OBSERVATION: drawn}
    params = jax.jit(network.init)(jax.random.key(0))
    gradient = jax.jit(jax.grad(lambda params: jnp.sum(network.predict(params, None, observation).policy)))(params)
    silent = {name for name, leaves in gradient.items() if not any(np.any(leaf) for leaf in jax.tree.leaves(leaves))}
    assert silent == ({"value"} if shares else {"value", "value_0", "value_1"})


def test_convolutions_are_refused_for_vectors_by_name() -> None:
    with pytest.raises(errors.ConfigError, match=r"ppo\.torso=conv"):
        _make(VECTOR, torso="conv")
