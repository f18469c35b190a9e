"""Named arrays from bytes on the device, against numpy's."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from seedzero.core import packing, types
from seedzero.ops import unpacking

ARRAYS = (
    types.ArraySpec("flag", (3,), "uint8"),
    types.ArraySpec("speed", (2,), "float32"),
    types.ArraySpec("count", (), "int32"),
    types.ArraySpec("image", (2, 3, 1), "uint8"),
)


@pytest.mark.parametrize("batch_shape", [(4,), (2, 2), (2, 1, 2)])
def test_arrays_are_those_that_were_packed(batch_shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    values = {array.name: random.integers(0, 99, (4, *array.shape)).astype(array.dtype) for array in ARRAYS}
    values["speed"][0] = (np.nan, -np.inf)
    packed = packing.pack(ARRAYS, values).reshape(*batch_shape, -1)
    found = jax.jit(functools.partial(unpacking.unpack, ARRAYS))(packed)
    assert found.keys() == values.keys()
    for array in ARRAYS:
        assert (found[array.name].shape, found[array.name].dtype) == ((*batch_shape, *array.shape), array.dtype)
        np.testing.assert_array_equal(np.asarray(found[array.name]).reshape(4, *array.shape), values[array.name])


def test_packing_on_the_device_gives_the_same_bytes() -> None:
    random = np.random.default_rng(1)
    values = {array.name: random.integers(0, 99, (4, *array.shape)).astype(array.dtype) for array in ARRAYS}
    values["speed"][0] = (-0.5, np.inf)
    values["count"][0] = -7
    packed = jax.jit(functools.partial(unpacking.pack, ARRAYS))(values)
    np.testing.assert_array_equal(packed, packing.pack(ARRAYS, values))


def test_where_nothing_is_packed_the_observation_is_the_one_array() -> None:
    observation = np.ones((2, 3), np.float32)
    assert unpacking.unpack((), observation) == {types.OBSERVATION: observation}  # type: ignore[arg-type]
