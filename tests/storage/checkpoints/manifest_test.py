"""Manifests: what was written is read; all else is damaged, by name, even where its checksum fits."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from seedzero.acting.actors import agent_choice
from seedzero.api import request, run_groups
from seedzero.cli import main as commands
from seedzero.cli import parse
from seedzero.config import configs
from seedzero.core import errors
from seedzero.interfaces.page import grouping
from seedzero.monitoring import status
from seedzero.storage.bucket import run_copy
from seedzero.storage.checkpoints import durable, manifest, run_dirs, saved_files, trees

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


def _run(name: str, *words: str) -> None:
    """Runs a command, and raises its error."""
    command = commands.COMMANDS[name]
    command.run(parse.read(name, command, words))


def _open(path: pathlib.Path) -> None:
    run_dirs.open_run_dir(path, configs.Config(), preset="catch", given={"seed": 1}).close()


_READ: dict[str, Callable[[pathlib.Path], object]] = {
    "evaluate": lambda path: agent_choice.AgentChoice(path).config(),
    "compare": lambda path: run_groups.read_run(str(path), ["episode_return"]),
    "status": status.from_run_dir,
    "checkpoint": lambda path: run_copy.checkpoint_rows(str(path), content=True),
    "diagnose": lambda path: _run("diagnose", str(path)),
}
_RESUME: dict[str, Callable[[pathlib.Path], object]] = {
    "train": lambda path: request.make({"run_dir": str(path)}, {}),
    "a learner": lambda path: _open(path),
}


def _written(path: pathlib.Path, **changes: Any) -> pathlib.Path:
    """Returns a run directory with a checkpoint and a status, whose config.json has changes; None leaves a key out."""
    _open(path)
    (path / "checkpoints" / "steps" / "000000000001").mkdir(parents=True, exist_ok=True)
    (path / run_dirs.STATUS_FILE).write_text("{}")
    content = json.loads((path / run_dirs.CONFIG_FILE).read_text()) | changes
    content = {name: value for name, value in content.items() if value is not None}
    (path / run_dirs.CONFIG_FILE).write_text(json.dumps(content))
    return path


def _values(**changes: Any) -> dict[str, Any]:
    """Returns the values in config.json, with changes; None leaves a setting out."""
    values = configs.flatten(configs.Config()) | {name.replace("__", "."): value for name, value in changes.items()}
    return {
        name: str(value) if value == float("inf") else value for name, value in values.items() if value is not None
    }


def test_a_run_writes_its_format_and_version_and_a_resume_writes_them_again(tmp_path: pathlib.Path) -> None:
    for _ in range(2):
        _written(tmp_path, format=None, version=None)  # as before the number
        _open(tmp_path)
        content = json.loads((tmp_path / run_dirs.CONFIG_FILE).read_text())
        assert (content["format"], content["version"]) == (manifest.FORMAT, "0.2.0")


def test_a_run_without_a_number_has_the_present_format_if_it_has_the_newest_setting(tmp_path: pathlib.Path) -> None:
    assert run_dirs.read_saved(_written(tmp_path, format=None, version=None)).given == {"run.seed": "1"}


_BY_COMMIT = "format 1, .* reads format 2.* b0b85cab"
_OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "no number": (
        {"format": None, "config": _values(evaluation__policy=None)},
        "format 1, .* reads format 2.* b0b85cab",
    ),
    "smaller": ({"format": 1}, "format 1, .* reads format 2.* b0b85cab"),
    "newer": ({"format": 3, "version": "0.9.1"}, r"format 3, .* 0\.2\.0, which reads format 2.* 0\.9\.1"),
    "no number at all": ({"format": "two", "version": None}, "format 'two'"),
}


@pytest.mark.parametrize("other", _OTHERS)
def test_another_format_is_refused_by_all_with_the_version_that_reads_it(other: str, tmp_path: pathlib.Path) -> None:
    changes, expected = _OTHERS[other]
    _written(tmp_path, **changes)
    before = (tmp_path / run_dirs.CONFIG_FILE).read_bytes()
    for use in [*_READ.values(), *_RESUME.values()]:
        with pytest.raises(errors.ResumeError, match=f"{run_dirs.CONFIG_FILE} .*{expected}"):
            use(tmp_path)
    assert (tmp_path / run_dirs.CONFIG_FILE).read_bytes() == before


@pytest.mark.parametrize("way", _READ)
def test_readers_ignore_a_setting_that_this_version_lacks_in_one_line(way: str, tmp_path: pathlib.Path) -> None:
    lacking = {"search.pb_c_init": 2.0, "gone.name": "x"}
    _written(tmp_path, config=_values(**lacking), given={"search.pb_c_init": "2", "seed": "1"})
    saved = run_dirs.parse_saved(json.loads((tmp_path / run_dirs.CONFIG_FILE).read_text()))
    assert saved.config == configs.Config() and saved.given == {"run.seed": "1"}
    with contextlib.redirect_stderr(io.StringIO()) as printed, contextlib.suppress(errors.ResumeError):
        for _ in range(2):
            _READ[way](tmp_path)
    (line,) = [text for text in printed.getvalue().splitlines() if "pb_c_init" in text]
    assert "--search.pb_c_init=2, --gone.name=x" in line and "ignores" in line


@pytest.mark.parametrize("way", _RESUME)
def test_a_resume_with_such_a_setting_is_refused_by_name_and_changes_nothing(way: str, tmp_path: pathlib.Path) -> None:
    _written(tmp_path, config=_values(search__pb_c_init=2.0))
    before = (tmp_path / run_dirs.CONFIG_FILE).read_bytes()
    with pytest.raises(errors.ResumeError, match=r"--search\.pb_c_init=2\."):
        _RESUME[way](tmp_path)
    assert (tmp_path / run_dirs.CONFIG_FILE).read_bytes() == before
    content = {**json.loads(before), "config": _values()}
    (tmp_path / run_dirs.CONFIG_FILE).write_text(json.dumps(content))  # without the setting, as the message says
    _RESUME[way](tmp_path)


def test_a_page_leaves_a_run_of_another_format_out_with_the_reason(tmp_path: pathlib.Path) -> None:
    found = grouping.group({"run": _written(tmp_path, format=3)})
    assert not found.groups and "format 3" in found.left_out["run"]
