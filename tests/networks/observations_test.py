"""Observations as networks take them: shapes of stacks, dtypes, scales."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.core import types
from seedzero.networks import observations


@pytest.mark.parametrize(
    ("shape", "frame_stack", "expected"),
    [((), 1, (1,)), ((), 3, (3,)), ((4,), 2, (8,)), ((10, 5), 2, (10, 10)), ((10, 5, 3), 4, (10, 5, 12))],
)
def test_frames_of_a_stack_are_joined_on_the_last_axis(
    shape: tuple[int, ...], frame_stack: int, expected: tuple[int, ...]
) -> None:
    assert observations.stack_shape(shape, frame_stack) == expected


@pytest.mark.parametrize(
    ("platform", "name", "expected"),
    [
        ("cpu", "auto", "float32"),
        ("gpu", "auto", "bfloat16"),
        ("tpu", "auto", "bfloat16"),
        ("gpu", "float32", "float32"),
        ("cpu", "bfloat16", "bfloat16"),
    ],
)
def test_accelerators_compute_in_bfloat16_unless_told(platform: str, name: str, expected: str) -> None:
    assert jnp.dtype(observations.compute_dtype(name, platform)) == jnp.dtype(expected)


@pytest.mark.parametrize(
    ("low", "high", "dtype", "value", "scaled"),
    [
        (0, 255, "uint8", 51, 0.2),
        (0, 4, "uint8", 1, 0.25),
        (-np.inf, np.inf, "uint8", 51, 0.2),
        (-10, 5, "int32", -5, -0.5),
        (-np.inf, np.inf, "int32", 7, 7.0),
        (0, 10, "float32", 5, 5.0),
    ],
)
def test_integers_are_scaled_by_their_range(low: float, high: float, dtype: str, value: int, scaled: float) -> None:
    array = types.ArraySpec("x", (2,), dtype, low, high)
    prepared = observations.preparation("mlp", array, 1)(jnp.asarray([[0, value]], dtype))
    assert prepared.dtype == jnp.float32
    np.testing.assert_allclose(prepared, [[0.0, scaled]], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "shape", "dtype", "low", "high", "expected"),
    [
        ("mlp", (4,), "float32", -np.inf, np.inf, 12),
        ("mlp", (), "float32", -np.inf, np.inf, 3),
        ("mlp", (4,), "float32", -1.2, 0.6, 12),
        ("mlp", (4,), "int32", -(2.0**31), 2.0**31 - 1, 12),
        ("mlp", (128,), "uint8", 0, 255, 384),
        ("mlp", (16,), "float32", 0, 1, 0),
        ("mlp", (4,), "float32", -1, 1, 0),
        ("conv", (10, 10, 4), "uint8", 0, 1, 0),
        ("conv", (10, 10, 4), "int32", 0, 10, 0),
        ("conv", (10, 10, 4), "int32", 0, 5000, 12),
        ("conv", (10, 10), "float32", 0, 50, 3),
        ("resnet", (96, 96, 1), "uint8", 0, 255, 0),
        ("resnet", (64, 64, 3), "float32", 0, 255, 9),
    ],
)
def test_features_are_normalized_where_bounds_do_not_tell_their_scale(
    kind: str, shape: tuple[int, ...], dtype: str, low: float, high: float, expected: int
) -> None:
    array = types.ArraySpec("x", shape, dtype, low, high)
    assert observations.num_normalized(kind, array, 3) == expected


def test_stacked_frames_of_a_grid_without_channels_become_its_channels() -> None:
    array = types.ArraySpec("x", (4, 5), "float32")
    frames = jnp.arange(3 * 4 * 5, dtype=jnp.float32).reshape(3, 1, 4, 5)
    side_by_side = jnp.concatenate(list(frames), axis=-1)
    prepared = observations.preparation("conv", array, 3)(side_by_side)
    np.testing.assert_array_equal(prepared, jnp.stack(list(frames), axis=-1))
    flat = observations.preparation("mlp", array, 3)(side_by_side)
    np.testing.assert_array_equal(flat, side_by_side)


def test_grids_with_channels_keep_their_axes() -> None:
    array = types.ArraySpec("x", (4, 5, 2), "float32")
    stacked = jnp.arange(4 * 5 * 4, dtype=jnp.float32).reshape(1, 4, 5, 4)
    np.testing.assert_array_equal(observations.preparation("conv", array, 2)(stacked), stacked)
