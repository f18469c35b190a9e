"""A central value sees arrays for training alone, normalized by moments of its own."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from seedzero.config import shared
from seedzero.core import packing, types
from seedzero.networks import actor_critic
from seedzero.ops import statistics

SPEC = packing.add_training_only(
    types.EnvSpec((2,), "float32", 3), types.ArraySpec("joint", (3,), "float32", training_only=True)
)


def _seen(joint: float) -> dict[str, np.ndarray]:
    """Returns observations [2, 4, ...] in which only the joint part tells the difference."""
    return {"observation": np.ones((2, 4, 2), np.float32), "joint": np.full((2, 4, 3), joint, np.float32)}


@pytest.mark.thorough
def test_the_value_follows_the_joint_observation_and_its_moments() -> None:
    found = actor_critic.make_central_value(shared.NetworkConfig(width=8, normalize_observations=True), SPEC, "cpu")
    params, moments = jax.jit(found.init)(jax.random.key(1)), found.no_moments()
    values = jax.jit(found.values)
    one, other = values(params, moments, _seen(0.0)), values(params, moments, _seen(1.0))
    assert one.shape == (2, 4) and not np.allclose(one, other)
    rows = {"observation": np.zeros((2, 2), np.float32), "joint": np.array([[1, 0, 0], [3, 0, 0]], np.float32)}
    counted = found.add_moments(moments, rows, np.ones(2, bool), None)
    assert counted.keys() == {"observation", "joint"}
    assert isinstance(counted["joint"], statistics.Moments) and np.allclose(counted["joint"].mean, [2, 0, 0])
    assert not np.allclose(values(params, counted, _seen(1.0)), other)


def test_without_normalization_there_are_no_moments() -> None:
    found = actor_critic.make_central_value(shared.NetworkConfig(width=8, normalize_observations=False), SPEC, "cpu")
    assert found.no_moments() == () == found.add_moments((), _seen(0.0), np.ones(2, bool), None)


def test_acting_has_none_of_its_parameters() -> None:
    params = {"policy": 1, actor_critic.PARAMS: 2}
    assert actor_critic.without_central_value(params) == {"policy": 1}
    assert actor_critic.without_central_value({"policy": 1}) == {"policy": 1}
