"""SAC's networks: shapes, dtypes, two critics that differ, and bounds of the standard deviations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import shared
from seedzero.core import types
from seedzero.networks import sac_net

VECTOR = types.EnvSpec((4,), "float32", 0, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
GRID = types.EnvSpec((3, 5, 2), "uint8", 0, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))


@pytest.mark.thorough
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("frame_stack", [1, 3])
@pytest.mark.parametrize("spec", [VECTOR, GRID], ids=["vector", "grid"])
def test_an_actor_and_two_critics(spec: types.EnvSpec, frame_stack: int, platform: str) -> None:
    network = sac_net.make(shared.NetworkConfig(width=16, frame_stack=frame_stack), spec, platform)
    shape = (6, *spec.observation_shape[:-1], spec.observation_shape[-1] * frame_stack)
    observation = {types.OBSERVATION: jax.ShapeDtypeStruct(shape, jnp.dtype(spec.observation_dtype))}
    actor, critics = (jax.eval_shape(init, jax.random.key(0)) for init in (network.init_actor, network.init_critics))
    found = jax.eval_shape(network.act, actor, observation)
    assert [(x.shape, x.dtype) for x in found] == [((6, 2), jnp.float32)] * 2
    value = jax.eval_shape(network.value, critics, observation, found[0])
    assert (value.shape, value.dtype) == ((2, 6), jnp.float32)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((actor, critics)))


@pytest.mark.thorough
def test_critics_begin_apart_and_see_the_action() -> None:
    network = sac_net.make(shared.NetworkConfig(width=16), VECTOR, "cpu")
    params = jax.jit(network.init_critics)(jax.random.key(0))
    observation = {types.OBSERVATION: np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)}
    value = jax.jit(network.value)
    still, moved = (
        value(params, observation, np.zeros((6, 2), np.float32)),
        value(params, observation, np.ones((6, 2))),
    )
    assert np.all(still[0] != still[1]) and np.all(still != moved)


def test_standard_deviations_are_bounded() -> None:
    network = sac_net.make(shared.NetworkConfig(width=16), VECTOR, "cpu")
    params = jax.jit(network.init_actor)(jax.random.key(0))
    observation = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    _, log_std = jax.jit(network.act)(params, {types.OBSERVATION: 1e4 * observation})
    assert np.min(log_std) == sac_net.LOWEST_LOG_STD and np.max(log_std) == sac_net.HIGHEST_LOG_STD


@pytest.mark.thorough
def test_bfloat16_tells_near_observations_and_actions_apart() -> None:
    network = sac_net.make(shared.NetworkConfig(width=64, compute_dtype="bfloat16"), VECTOR, "gpu")
    actor, critics = jax.jit(network.init_actor)(jax.random.key(0)), jax.jit(network.init_critics)(jax.random.key(1))
    seen = {types.OBSERVATION: np.array([[100.0, 99, 98, 97], [100.2, 99, 98, 97]], np.float32)}
    mean, _ = jax.jit(network.act)(actor, seen)
    assert np.any(mean[0] != mean[1])
    low = {types.OBSERVATION: np.full((2, 4), 0.1, np.float32)}
    value = jax.jit(network.value)(critics, low, np.array([[0.5, 0.9], [0.5, 0.901]], np.float32))
    assert np.all(value[:, 0] != value[:, 1])
