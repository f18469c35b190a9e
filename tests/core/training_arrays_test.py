"""Arrays for training alone lie behind the others, and acting sees a spec as if there were none."""

from __future__ import annotations

import re

import pytest

from seedzero.core import errors, training_arrays, types

JOINT = types.ArraySpec("joint", (3,), "float32", -1.0, 2.0, training_only=True)


def test_acting_sees_the_spec_of_before() -> None:
    plain = types.EnvSpec((4,), "float32", 2, observation_low=-1.0, observation_high=5.0, num_states=4)
    found = training_arrays.add(plain, JOINT)
    assert (found.observation_shape, found.observation_dtype) == ((28,), "uint8")
    assert [array.name for array in found.arrays] == [types.OBSERVATION, "joint"]
    assert training_arrays.without(found) == plain == training_arrays.without(plain)
    assert found.kept == found  # it is stored
    assert types.EnvSpec.from_json({**vars(found), "packed": [vars(array) for array in found.packed]}) == found


def test_several_arrays_stay_bytes() -> None:
    parts = [types.ArraySpec("a", (2,), "uint8", 0, 255), types.ArraySpec("b", (1,), "float32")]
    plain = types.EnvSpec.of_arrays(parts, num_actions=2)
    assert training_arrays.without(training_arrays.add(plain, JOINT)) == plain


@pytest.mark.parametrize("order", [(0, 2, 1), (0, 1, 2), (2, 2, 2)])
def test_arrays_for_one_purpose_lie_behind_the_others_and_there_is_one_kind(order: tuple[int, ...]) -> None:
    flags = [dict(acting_only=kind == 1, training_only=kind == 2) for kind in order]
    arrays = [types.ArraySpec(str(at), (1,), "uint8", **each) for at, each in enumerate(flags)]
    with pytest.raises(
        errors.SpecMismatch,
        match=rf"arrays 0, 1, 2 .*{re.escape(str(list(order)))}; expected those of 1, or those of 2, behind",
    ):
        types.EnvSpec.of_arrays(arrays, num_actions=2)
