"""Files of episodes: read as written, and refused by name if anything does not fit."""

from __future__ import annotations

import dataclasses
import pathlib
import zipfile
from typing import Any

import numpy as np
import pytest

import seedzero
from seedzero.acting.tables import records
from seedzero.core import errors, types

_SPEC = types.EnvSpec((4,), "float32", 3, has_action_mask=True)
_HEADER = {"env": "catch", "spec": dataclasses.asdict(_SPEC)}


def _arrays(num_steps: int = 2) -> dict[str, np.ndarray]:
    return {
        "observation": np.zeros((num_steps + 1, 4), np.float32),
        "reward": np.ones(num_steps, np.float32),
        "terminated": np.zeros(num_steps, bool),
        "truncated": np.zeros(num_steps, bool),
        "action": np.zeros(num_steps, np.int32),
        "action_mask": np.ones((num_steps, 3), bool),
        "policy": np.full((num_steps, 3), 1 / 3, np.float32),
        "visits": np.ones((num_steps, 3), np.int32),
    }


def test_a_record_is_read_as_written(tmp_path: pathlib.Path) -> None:
    path, arrays = tmp_path / "a.npz", _arrays()
    records.write(path, {**_HEADER, "return": float("inf")}, arrays)
    found = seedzero.read_record(path)
    assert found.num_steps == 2 and found.spec == _SPEC and found.header["env"] == "catch"
    assert found.header["return"] == "inf" and found.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    with np.load(path, allow_pickle=False) as alone:  # numpy reads it without this package
        assert '"seedzero.record"' in str(alone["header"])
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]


def test_named_arrays_are_checked_by_name(tmp_path: pathlib.Path) -> None:
    spec = types.EnvSpec.of_arrays([types.ArraySpec("a/b", (2,), "uint8")], num_actions=3)
    arrays = {name: array for name, array in _arrays().items() if name not in ("observation", "action_mask")}
    header = {"spec": dataclasses.asdict(spec)}
    records.write(tmp_path / "a.npz", header, {**arrays, "observation/a/b": np.zeros((3, 2), np.uint8)})
    assert records.read_record(tmp_path / "a.npz").arrays["observation/a/b"].shape == (3, 2)
    records.write(tmp_path / "b.npz", header, arrays)
    with pytest.raises(errors.RecordError, match="observation/a/b"):
        records.read_record(tmp_path / "b.npz")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"reward": np.ones(3, np.float32)}, r"reward is float32 \[3\]; expected \[2\]"),
        ({"reward": np.ones(2, np.int64)}, "reward"),
        ({"observation": np.zeros((3, 5), np.float32)}, "observation"),
        ({"visits": np.ones((2, 4), np.int32)}, "visits"),
        ({"visits": np.array([[None] * 3] * 2, object)}, "allow_pickle"),
        ({"action": None}, "action"),
        ({"header": None}, "header"),
        ({"header": np.array('{"format": "other"}')}, "format"),
        ({"header": np.array('{"format": "seedzero.record", "version": 2}')}, "version is 2; expected 1"),
        ({"header": np.array("no JSON")}, "not a whole record"),
        ({"header": np.array('{"format": "seedzero.record", "version": 1, "spec": {}}')}, "not a whole record"),
    ],
)
def test_a_damaged_record_is_refused(changes: dict[str, Any], match: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.npz"
    records.write(path, _HEADER, _arrays())
    with np.load(path) as whole:
        content = {**whole, **changes}
    np.savez(path, **{key: value for key, value in content.items() if value is not None})
    with pytest.raises(errors.RecordError, match=match):
        records.read_record(path)


def test_no_cut_file_and_no_flipped_byte_passes_silently(tmp_path: pathlib.Path) -> None:
    path, arrays = tmp_path / "a.npz", _arrays()
    records.write(path, _HEADER, arrays)
    content = path.read_bytes()
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        with pytest.raises(errors.RecordError, match="not a whole record"):
            records.read_record(path)
    for place in range(0, len(content), 61):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            found = records.read_record(path)
        except errors.RecordError:
            continue
        assert all(np.array_equal(found.arrays[name], array) for name, array in arrays.items())


def test_other_files_are_refused_by_name(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.UsageError, match=r"b\.npz.*`seedzero record`"):
        records.read_record(tmp_path / "b.npz")
    np.save(tmp_path / "c.npy", np.zeros(3))
    with pytest.raises(errors.RecordError, match="npz"):
        records.read_record(tmp_path / "c.npy")


def test_a_file_that_cannot_be_written_leaves_none(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.npz").mkdir()
    with pytest.raises(OSError):
        records.write(tmp_path / "a.npz", _HEADER, _arrays())
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_a_file_is_read_within_bounds(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.npz"
    records.write(path, {**_HEADER, "return": 1.5}, _arrays())
    with path.open("rb") as file:
        header, num_steps = records.read_head(file, path, 10_000)
    assert (header["return"], num_steps) == (1.5, 2)
    with path.open("rb") as file:
        assert records.read(file, path, 10_000).num_steps == 2
    for read in (records.read, records.read_head):
        with (
            pytest.raises(errors.RecordError, match=r"a\.npz .*bytes unpacked; expected at most 100"),
            path.open("rb") as file,
        ):
            read(file, path, 100)


def test_a_member_that_is_no_array_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.npz"
    records.write(path, _HEADER, {name: array for name, array in _arrays().items() if name != "reward"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("reward.npy", b"12")
    with pytest.raises(errors.RecordError, match="reward is not an array"):
        records.read_record(path)
