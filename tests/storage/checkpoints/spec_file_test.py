from __future__ import annotations

import dataclasses
import json
import math
import pathlib

import pytest

from seedzero.core import errors, types
from seedzero.storage.checkpoints import spec_file

DISCRETE = types.EnvSpec((4, 5), "uint8", 3, 0, 255, frames_per_step=4)
ARRAYS = types.EnvSpec.of_arrays(
    [types.ArraySpec("image", (4, 5, 1), "uint8", 0, 255), types.ArraySpec("robot/arm", (3,), "float32")],
    num_actions=6,
)
CONTINUOUS = types.EnvSpec((3,), "float32", 0, action_low=(-1.0, 0.5), action_high=(1.0, 2.5))

TASKS = types.EnvSpec((3,), "float32", 2, tasks=("walk", "run"))


@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS, ARRAYS, TASKS])
def test_a_spec_is_read_as_it_was_written(tmp_path: pathlib.Path, spec: types.EnvSpec) -> None:
    assert spec_file.read(tmp_path) is None
    spec_file.write(tmp_path, spec)
    assert spec_file.read(tmp_path) == spec


def _spaces(text: str) -> str:
    return json.dumps({"observation": {"kind": text}, "action": {}})


def test_other_spaces_are_another_environment_unless_one_side_is_silent() -> None:
    run, other = (dataclasses.replace(DISCRETE, spaces=_spaces("x" * 10**6 + end)) for end in ("A", "B"))
    for silent in (DISCRETE, run):
        spec_file.check_equal(silent, run)
        spec_file.check_equal(run, dataclasses.replace(silent))
    with pytest.raises(errors.SpecMismatch, match=r"spaces is .*xA\W.* expected .*xB\W") as refusal:
        spec_file.check_equal(run, other)
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("observation_shape", [4.0, 5]),
        ("observation_shape", ["4"]),
        ("num_actions", 3.0),
        ("num_players", 1.5),
        ("frames_per_step", "4"),
        ("num_states", None),
        ("tasks", [3]),
        ("spaces", "{"),
        ("spaces", '{"observation": 1}'),
        ("spaces", 7),
        ("observation_dtype", "complex"),
        ("packed", [{"name": "a", "shape": [2.5], "dtype": "uint8", "low": 0, "high": 1}]),
    ],
)
def test_a_damaged_file_is_named_with_the_value(tmp_path: pathlib.Path, name: str, value: object) -> None:
    spec_file.write(tmp_path, DISCRETE)
    values = json.loads((tmp_path / "spec.json").read_text()) | {name: value}
    (tmp_path / "spec.json").write_text(json.dumps(values))
    with pytest.raises(errors.ResumeError, match=r"spec\.json is damaged"):
        spec_file.read(tmp_path)


@pytest.mark.parametrize(
    ("came", "expected", "difference"),
    [
        (dataclasses.replace(CONTINUOUS, action_high=(1.0, 9.0)), CONTINUOUS, r"action_high is \(1.0, 9.0\), .*2.5\)"),
        *(
            (types.EnvSpec((3,), "int32", 2, low, math.inf), types.EnvSpec((3,), "int32", 2, -5.0, math.inf), str(low))
            for low in (-math.inf, -7.0, 2.0**31 - 1)
        ),
    ],
)
def test_other_bounds_are_another_environment(came: types.EnvSpec, expected: types.EnvSpec, difference: str) -> None:
    with pytest.raises(errors.SpecMismatch, match=difference):
        spec_file.check_equal(came, expected)
    spec_file.check_equal(expected, expected)


def test_who_does_not_tell_the_number_of_states_is_believed() -> None:
    silent = types.EnvSpec((4,), "float32", 3)
    telling = dataclasses.replace(silent, num_states=4)
    spec_file.check_equal(silent, telling)
    spec_file.check_equal(telling, silent)
    with pytest.raises(errors.SpecMismatch, match=r"observation_shape is \(1,\), expected \(4,\)"):
        spec_file.check_equal(types.EnvSpec((1,), "int32", 3), telling)
    with pytest.raises(errors.SpecMismatch, match=r"num_states .* 5, .*\(4,\)"):
        dataclasses.replace(telling, num_states=5)
