"""Run directories of this format, of others, and with settings that this version lacks."""

from __future__ import annotations

import contextlib
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
from seedzero.storage.checkpoints import formats, run_dirs


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
        assert (content["format"], content["version"]) == (formats.FORMAT, "0.2.0")


def test_a_run_without_a_number_has_the_present_format_if_it_has_the_newest_setting(tmp_path: pathlib.Path) -> None:
    assert run_dirs.read_saved(_written(tmp_path, format=None, version=None)).given == {"run.seed": "1"}


_BY_COMMIT = "format 1, .* reads format 2.* b0b85cab"
_OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "no number": ({"format": None, "config": _values(evaluation__policy=None)}, _BY_COMMIT),
    "smaller": ({"format": 1}, _BY_COMMIT),
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
