"""Manifests: what was written is read; all else is damaged, by name, even where its checksum fits."""

import dataclasses
import hashlib
import json
import pathlib
from typing import Any

import pytest

from seedzero.core import errors
from seedzero.storage.checkpoints import durable, manifest, saved_files, trees

FILE = {"num_bytes": 3, "sha256": "ab"}
FILE_SUM = durable.Checksum(3, "ab")
WHOLE: dict[str, Any] = {
    "format": 2,
    "step": 7,
    "time": 1.5,
    "ordinal": 2,
    "kept_for_good": False,
    "arrays": {"params": [{"path": ["a", "b"], "shape": [2, 0], "dtype": "bfloat16"}]},
    "counters": {"num_updates": 7},
    "files": {"params/d/1": FILE},
    "segments": {"one": {"rows/0": FILE}},
    "has_replay": True,
}


def write(path: pathlib.Path, body: object) -> pathlib.Path:
    """Writes a manifest with a body that its checksum fits."""
    text = body if isinstance(body, str) else json.dumps(body)
    path.mkdir(parents=True, exist_ok=True)
    (path / manifest.NAME).write_text(json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "body": text}))
    return path


def test_a_manifest_is_read_as_it_was_written(tmp_path: pathlib.Path) -> None:
    found = manifest.read(write(tmp_path / "000000000007", WHOLE))
    file = durable.Checksum(3, "ab")
    assert (found.arrays, found.files) == (
        {"params": (trees.TreeLeaf(["a", "b"], [2, 0], "bfloat16"),)},
        {"params/d/1": file},
    )
    manifest.write(tmp_path / "000000000007", found)
    assert manifest.read(tmp_path / "000000000007") == found


@pytest.mark.parametrize(("number", "reads"), [(1, "b0b85cab"), (3, "later version")])
def test_another_format_is_refused_with_the_version_that_reads_it(
    number: int, reads: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(errors.CheckpointError, match=rf"manifest\.json .* format {number}, .*{reads}"):
        manifest.read(write(tmp_path / "000000000007", {**WHOLE, "format": number}))


def test_without_frozen_players_a_manifest_is_written_as_before_byte_for_byte(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "000000000007", json.dumps(WHOLE, sort_keys=True))
    before = (path / manifest.NAME).read_bytes()
    found = manifest.read(path)
    assert found.frozen == {} and found.num_bytes == 6
    manifest.write(path, found)
    assert (path / manifest.NAME).read_bytes() == before
    manifest.write(path, dataclasses.replace(found, frozen={"main-0123456789ab": {"params/d/1": FILE_SUM}}))
    assert manifest.read(path).frozen == {"main-0123456789ab": {"params/d/1": FILE_SUM}}
    assert manifest.read(path).num_bytes == 9
    assert found.state_sha256 == "" and found.has_state
    manifest.write(path, dataclasses.replace(found, state_sha256="ab", arrays={}))
    assert manifest.read(path).state_sha256 == "ab" and not manifest.read(path).has_state


SHARED = ("segments", "frozen")
WRONG: list[dict[str, Any]] = [
    *({name: value} for name in WHOLE if name != "format" for value in (None, "text", [1], [[]])),
    *({name: {"a": value}} for name in (*SHARED, "arrays", "files") for value in (None, 3, [3], {"b": 3})),
    *({"state_sha256": value} for value in (None, 3)),
    {"frozen": None},
    {"frozen": {"main/..": {}}},
    {"frozen": {"one": {"/a": FILE}}},
    {"step": 8},
    {"step": True},
    {"time": float("nan")},
    {"arrays": {"params": [{"path": ["a"], "shape": [-1], "dtype": "float32"}]}},
    {"arrays": {"params": [{"path": ["a"], "shape": [1], "dtype": "no type"}]}},
    {"arrays": {"params": [{"path": [3], "shape": [1], "dtype": "float32"}]}},
    {"files": {"../../x": FILE}},
    {"files": {"/etc/passwd": FILE}},
    {"files": {"a": {"num_bytes": "3", "sha256": "ab"}}},
    {"files": {"a": {"num_bytes": 3, "sha256": "ab", "more": 1}}},
    {"segments": {"..": {}}},
    {"segments": {"one": {"a//b": FILE}}},
    {"more": 1},
]


MALFORMED = ["[]", "null", "3", "no JSON", "[" * 100_000]
LACKING = ["format", "step", "time", "ordinal", "arrays", "files", "segments"]
DAMAGED = [
    *(pytest.param({**WHOLE, **changes}, "", id=str(changes)) for changes in WRONG),
    *(pytest.param(body, "", id=body[:9]) for body in MALFORMED),
    *(({key: value for key, value in WHOLE.items() if key != name}, f".*{name}") for name in LACKING),
]


@pytest.mark.parametrize(("body", "reason"), DAMAGED)
def test_a_malformed_manifest_is_damaged_though_its_checksum_fits(
    body: object, reason: str, tmp_path: pathlib.Path
) -> None:
    path = write(tmp_path / saved_files.STEPS / "000000000007", body)
    with pytest.raises(errors.CheckpointError, match=rf"manifest\.json is damaged: {reason}"):
        manifest.read(path)
    assert list(saved_files.manifests(tmp_path)) == []
    (row,) = saved_files.list_steps(tmp_path)
    assert not row["ok"]
    with pytest.raises(errors.CheckpointError, match="checkpoint 7 "):
        saved_files.find(tmp_path, "last")


@pytest.mark.parametrize("name", ["²", "٣", "5", "1" * 5000, "-00000000001", "latest"])
def test_a_directory_with_another_name_is_no_checkpoint(name: str, tmp_path: pathlib.Path) -> None:
    name = name[:200]
    write(tmp_path / saved_files.STEPS / name, WHOLE)
    write(tmp_path / saved_files.STEPS / "000000000007", WHOLE)
    assert saved_files.finished(tmp_path / saved_files.STEPS) == [7]
