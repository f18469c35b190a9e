"""Named arrays as bytes, one after the other."""

from __future__ import annotations

import re
from typing import Any

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


JOINT = types.ArraySpec("joint", (3,), "float32", -1.0, 2.0, training_only=True)


def test_acting_sees_the_spec_of_before() -> None:
    plain = types.EnvSpec((4,), "float32", 2, observation_low=-1.0, observation_high=5.0, num_states=4)
    found = packing.add_training_only(plain, JOINT)
    assert (found.observation_shape, found.observation_dtype) == ((28,), "uint8")
    assert [array.name for array in found.arrays] == [types.OBSERVATION, "joint"]
    assert packing.without_training_only(found) == plain == packing.without_training_only(plain)
    assert found.kept == found  # it is stored
    assert types.EnvSpec.from_json({**vars(found), "packed": [vars(array) for array in found.packed]}) == found


def test_several_arrays_stay_bytes() -> None:
    parts = [types.ArraySpec("a", (2,), "uint8", 0, 255), types.ArraySpec("b", (1,), "float32")]
    plain = types.EnvSpec.of_arrays(parts, num_actions=2)
    assert packing.without_training_only(packing.add_training_only(plain, JOINT)) == plain


@pytest.mark.parametrize("order", [(0, 2, 1), (0, 1, 2), (2, 2, 2)])
def test_arrays_for_one_purpose_lie_behind_the_others_and_there_is_one_kind(order: tuple[int, ...]) -> None:
    flags = [dict(acting_only=kind == 1, training_only=kind == 2) for kind in order]
    arrays = [types.ArraySpec(str(at), (1,), "uint8", **each) for at, each in enumerate(flags)]
    with pytest.raises(
        errors.SpecMismatch,
        match=rf"arrays 0, 1, 2 .*{re.escape(str(list(order)))}; expected those of 1, or those of 2, after the others",
    ):
        types.EnvSpec.of_arrays(arrays, num_actions=2)


PLAIN, MASKED = types.EnvSpec((2,), "float32", 3), types.EnvSpec((2,), "float32", 3, has_action_mask=True)
FIRST = np.array([True, False])


def _given(spec: types.EnvSpec = PLAIN, reward: Any = None, mask: Any = None, **given: Any) -> Any:
    given = {"is_single": False, "reads_reward": False, **given}
    return packing.rewards_and_mask(spec, FIRST, reward, mask, **given)


def test_a_number_is_every_row_s_reward_and_none_is_zero() -> None:
    for reward, expected in ((None, [0, 0]), (0.5, [0.5, 0.5]), ([1, 2], [1, 2])):
        rewards, mask = _given(reward=reward)
        assert rewards.tolist() == expected and rewards.dtype == np.float32 and mask is None
    single = packing.rewards_and_mask(MASKED, FIRST[:1], 1.0, [0, 1, 1], is_single=True, reads_reward=True)
    assert single[0].tolist() == [1.0] and single[1] is not None and single[1].tolist() == [[False, True, True]]


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"reads_reward": True}, "reward is missing"),
        ({"reward": [1, 2, 3]}, r"reward has the shape \[3\]; expected \[2\]"),
        ({"mask": np.ones((2, 3))}, "no action mask"),
        ({"spec": MASKED}, "has an action mask"),
        ({"spec": MASKED, "mask": np.ones(3)}, r"action_mask has the shape \[3\]; expected \[2, 3\]"),
        ({"spec": MASKED, "mask": np.full((2, 3), 0.5)}, "expected bool"),
    ],
)
def test_faults_are_named(given: dict[str, Any], part: str) -> None:
    with pytest.raises(errors.UsageError, match=part):
        _given(**given)


def test_rows_begin_an_episode_by_number_or_by_truth_value() -> None:
    for rows, expected in (([1], [False, True, False]), ([True, False, True], [True, False, True]), ([], [False] * 3)):
        first = np.zeros(3, bool)
        packing.restart(first, rows)
        assert first.tolist() == expected
    with pytest.raises(errors.UsageError, match=r"rows \[3\]: expected numbers from 0 to 2"):
        packing.restart(np.zeros(3, bool), [3])
