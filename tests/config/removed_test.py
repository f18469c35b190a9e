"""Settings that are gone: what a saved run, a command line, a preset's file and the Python interface say of them."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable

import pytest

from seedzero.actors import agent_choice
from seedzero.api import request, run_groups, training
from seedzero.checkpoints import run_dirs
from seedzero.cli import main as commands
from seedzero.cli import parse
from seedzero.config import configs, options, preset_files, removed, worker_options
from seedzero.core import errors

NAMES = sorted(removed.SETTINGS)


def _other(value: options.Value) -> options.Value:
    """Returns another value of a setting's type."""
    if isinstance(value, bool):
        return not value
    return f"{value}_other" if isinstance(value, str) else value + 1


def _saved(path: pathlib.Path, values: dict[str, options.Value]) -> run_dirs.SavedConfig:
    """Returns the settings of a run directory of an earlier version, with some more of them."""
    content = {"preset": "catch", "given": values, "config": {**configs.flatten(configs.Config()), **values}}
    (path / run_dirs.CONFIG_FILE).write_text(json.dumps(content))
    return run_dirs.read_saved(path)


def test_none_of_them_is_a_setting() -> None:
    assert not removed.SETTINGS.keys() & {*configs.fields(), *configs.ALIASES}


def test_a_run_that_had_all_of_them_as_they_are_now_is_read(tmp_path: pathlib.Path) -> None:
    saved = _saved(tmp_path, {name: was.default for name, was in removed.SETTINGS.items()})
    assert saved.config == configs.Config() and not saved.given


@pytest.mark.parametrize("name", NAMES)
def test_a_run_with_another_value_is_refused_unless_a_resume_ignored_it_before(
    name: str, tmp_path: pathlib.Path
) -> None:
    values = {name: _other(removed.SETTINGS[name].default)}
    assert _saved(tmp_path, values).config == configs.Config()  # readers use it
    if removed.SETTINGS[name].is_free:
        run_dirs.check_resumable(tmp_path)
        return
    with pytest.raises(errors.ResumeError, match=f"--{name}={options.shown(values[name])}, ") as raised:
        run_dirs.check_resumable(tmp_path)
    plays = name.partition(".")[0] in removed.PLAYED
    assert run_dirs.played_otherwise(tmp_path) == [str(raised.value).split("seedzero: ")[1].split(". Only")[0]] * plays


def test_a_run_that_cannot_be_resumed_is_left_as_it_is_and_still_acts(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _saved(tmp_path, {"search.pb_c_init": 2.0})
    (tmp_path / "checkpoints" / "steps" / "000000000005").mkdir(parents=True)
    before = (tmp_path / run_dirs.CONFIG_FILE).read_bytes()
    config = run_dirs.read_saved(tmp_path).config
    with pytest.raises(errors.ResumeError, match=r"search\.pb_c_init=2"):
        run_dirs.open_run_dir(tmp_path, config, preset="catch", given={})
    with pytest.raises(errors.ResumeError, match=r"search\.pb_c_init=2"):
        request.make({"run_dir": str(tmp_path)}, {})
    assert (tmp_path / run_dirs.CONFIG_FILE).read_bytes() == before
    assert agent_choice.AgentChoice(tmp_path, trusted=True).config() == config
    assert "--search.pb_c_init=2" in capsys.readouterr().err


def _on_command_line(name: str, path: pathlib.Path) -> None:
    parse.read("train", commands.COMMANDS["train"], [f"--{name}=3"])


def _in_preset_file(name: str, path: pathlib.Path) -> None:
    (path / "own.preset").write_text(f"--preset=catch\n--{name}=3\n")
    preset_files.read(path / "own.preset")


WAYS: dict[str, Callable[[str, pathlib.Path], object]] = {
    "command line": _on_command_line,
    "preset file": _in_preset_file,
    "python": lambda name, path: training.texts({name: 3}),
    "override": lambda name, path: configs.override(configs.Config(), {name: "3"}),
    "--by": lambda name, path: run_groups.read_names(name, []),
}


@pytest.mark.parametrize("way", WAYS)
def test_who_gives_one_is_told_what_holds_today(way: str, tmp_path: pathlib.Path) -> None:
    for name in NAMES:
        with pytest.raises((errors.ConfigError, errors.UsageError), match=name) as raised:
            WAYS[way](name, tmp_path)
        assert removed.SETTINGS[name].now in str(raised.value) and "did you mean" not in str(raised.value)


def test_a_workers_flag_that_is_gone_is_told_so() -> None:
    with pytest.raises(errors.UsageError, match=r"--keepalive_seconds=3.* --transport\.lease_seconds.*\b5\b"):
        worker_options.read(["--server=h:1", "--keepalive_seconds=3"])
