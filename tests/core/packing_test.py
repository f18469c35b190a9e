"""Named arrays as bytes, one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.core import errors, packing, types

ARRAYS = (
    types.ArraySpec("flag", (3,), "uint8", 0, 1),
    types.ArraySpec("robot/speed", (2,), "float32"),
    types.ArraySpec("count", (), "int32"),
    types.ArraySpec("image", (2, 3, 1), "uint8", 0, 255),
)
VALUES = {
    "flag": np.array([[1, 0, 1], [0, 0, 1]]),
    "robot/speed": np.array([[0.5, -2.0], [np.inf, 1e-3]]),
    "count": np.array([-7, 2**31 - 1]),
    "image": np.arange(12).reshape(2, 2, 3, 1),
}


def test_what_is_packed_is_unpacked_with_the_arrays_dtypes() -> None:
    packed = packing.pack(ARRAYS, VALUES)
    assert (packed.shape, packed.dtype) == ((2, 3 + 8 + 4 + 6), np.uint8)
    found = packing.unpack(ARRAYS, packed)
    assert list(found) == [array.name for array in ARRAYS]
    for array in ARRAYS:
        assert (found[array.name].shape, found[array.name].dtype) == ((2, *array.shape), array.dtype)
        np.testing.assert_array_equal(found[array.name], VALUES[array.name].astype(array.dtype))


def test_a_row_is_the_bytes_of_its_arrays_little_endian_and_without_gaps() -> None:
    row = packing.pack(ARRAYS, VALUES)[0]
    expected = b"\1\0\1" + np.array([0.5, -2], "<f4").tobytes() + b"\xf9\xff\xff\xff" + bytes(range(6))
    assert row.tobytes() == expected


def test_memory_is_not_shared_and_its_order_does_not_matter() -> None:
    turned = {name: np.asfortranarray(value) for name, value in VALUES.items()}
    packed = packing.pack(ARRAYS, turned)
    np.testing.assert_array_equal(packed, packing.pack(ARRAYS, VALUES))
    before = packed.copy()
    turned["image"][:] = 0
    np.testing.assert_array_equal(packed, before)


def test_a_spec_of_named_arrays_has_the_shape_of_their_bytes() -> None:
    spec = types.EnvSpec.of_arrays(ARRAYS, num_actions=2)
    assert (spec.observation_shape, spec.observation_dtype, spec.observation_bytes) == ((21,), "uint8", 21)
    assert spec.arrays == spec.packed == ARRAYS
    alone = types.EnvSpec((4,), "float32", 2, observation_low=-1)
    assert alone.arrays == (types.ArraySpec(types.OBSERVATION, (4,), "float32", -1, np.inf),)


def test_wrong_specs_of_named_arrays_are_refused() -> None:
    with pytest.raises(errors.SpecMismatch, match=r" 21 bytes .* flag, robot/speed, count, image"):
        types.EnvSpec((20,), "uint8", 2, packed=ARRAYS)
    with pytest.raises(errors.SpecMismatch, match=r"\['flag', 'flag'\]"):
        types.EnvSpec.of_arrays([ARRAYS[0], ARRAYS[0]], num_actions=2)
    with pytest.raises(errors.SpecMismatch, match=r"'x': .*'float64'"):
        types.ArraySpec("x", (2,), "float64")


@pytest.mark.parametrize(
    ("shapes", "shown"),
    [
        ([(3,)], "vectors"),
        ([(3,), (2, 2, 2, 2)], "vectors"),
        ([(3,), (10, 10, 4)], "small grids"),
        ([(10, 10), (96, 96, 3), (3,)], "images"),
    ],
)
def test_the_largest_image_decides_what_is_shown(shapes: list[tuple[int, ...]], shown: str) -> None:
    assert types.shown([types.ArraySpec(str(index), shape, "uint8") for index, shape in enumerate(shapes)]) == shown
