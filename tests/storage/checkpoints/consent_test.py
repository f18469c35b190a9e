"""Consent to the code that a run directory names, whichever setting and part of its file names it."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import sys
from collections.abc import Callable, Mapping

import pytest

import seedzero
from seedzero.acting.actors import agent_choice
from seedzero.acting.tables import rethinking, scoring, videos
from seedzero.api import request
from seedzero.cli import main as commands
from seedzero.config import configs
from seedzero.core import errors
from seedzero.storage.checkpoints import own_runs, run_dirs

_RUNS_TEXT = {
    "env.id": "python:numpy.testing._private.utils:runstring",
    "env.kwargs": json.dumps({"astr": "open('was_run', 'w')", "dict": {}}),
}
"""An environment that is a text of the directory's maker, run by a function that is installed everywhere."""
_REGISTERS = {"env.id": "gym:their_module:Env-v0"}
_OWN_GAME = {"env.id": "spiel:their_module:duel"}
_NETWORK = {"network.module": "their_module:network"}
_TORSO = {"run.agent": "vtrace", "network.module": "their_module:torso"}


@pytest.fixture(autouse=True)
def _here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "their_module", raising=False)  # of another test
    (tmp_path / "their_module.py").write_text("open('was_run', 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def _directory(
    given: Mapping[str, str], values: Mapping[str, str] | None = None, *, preset: str = "catch"
) -> pathlib.Path:
    """Returns a run directory with a checkpoint whose file says so; values: of its configuration, if others."""
    config = configs.override(configs.Config(), given if values is None else values)
    saved = {"preset": preset, "given": dict(given), "config": configs.flatten(config)}
    path = pathlib.Path("run")
    (path / "checkpoints" / "steps" / "000000000001").mkdir(parents=True)
    run_dirs.write_json_atomic(path / run_dirs.CONFIG_FILE, saved)
    return path


_CALLS: dict[str, Callable[[pathlib.Path], object]] = {
    "train": lambda path: seedzero.train(run_dir=path, max_updates=1),
    "evaluate": lambda path: seedzero.evaluate(path, 1),
    "play": lambda path: videos.play(agent_choice.AgentChoice(path), "a.gif"),
    "load": lambda path: seedzero.load(path),
    "export": lambda path: seedzero.export(path, "out"),
    "think": lambda path: rethinking.load(agent_choice.AgentChoice(path), {}),
}


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize("code", [_RUNS_TEXT, _REGISTERS, _OWN_GAME, _NETWORK, _TORSO])
def test_what_a_directory_names_does_not_run_without_consent(call: str, code: Mapping[str, str]) -> None:
    path, (flag, value) = _directory(code), list(code.items())[code is _TORSO]
    is_made = call not in ("load", "export", "think") or flag != "env.id"  # these make no environment
    named = rf" here: {configs.flag(flag)}={value}\. .*--trust_run_dir"
    with pytest.raises(errors.ResumeError, match=named if is_made else "^(?!.*--trust_run_dir)"):
        _CALLS[call](path)
    assert not pathlib.Path("was_run").exists()


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize("part", ["given", "config", "both"])
def test_an_agent_of_a_module_is_not_imported_without_consent(call: str, part: str) -> None:
    path, agent = _directory({}), {"run.agent": "their_module:AGENT", "theirs.size": 3}
    saved = json.loads((path / run_dirs.CONFIG_FILE).read_text())
    saved["given"] |= agent if part != "config" else {}
    saved["config"] |= agent if part != "given" else {}
    run_dirs.write_json_atomic(path / run_dirs.CONFIG_FILE, saved)
    with pytest.raises(errors.ResumeError, match=r" here: --agent=their_module:AGENT\. .*--trust_run_dir"):
        _CALLS[call](path)
    assert not pathlib.Path("was_run").exists()
    with pytest.raises(errors.ConfigError, match="has no agent 'AGENT'"):  # with consent it is imported
        own_runs.check_consent(path, run_dirs.read_saved(path), trusted=True)
        seedzero.train(run_dir=path, trust_run_dir=True)
    assert pathlib.Path("was_run").exists()
    del sys.modules["their_module"]


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize(
    "code", [{"league.builder": "their_module:build"}, {"league.members": "random,their_module:bot"}], ids=str
)
def test_a_league_s_code_needs_consent_to_train_and_is_imported_by_nothing_else(
    call: str, code: Mapping[str, str]
) -> None:
    path, ((flag, value),) = _directory(code), code.items()
    named = rf" here: --{flag}={value}\. .*--trust_run_dir"
    with pytest.raises((errors.ResumeError, errors.UsageError, errors.CheckpointError)) as raised:
        _CALLS[call](path)
    assert bool(re.search(named, str(raised.value))) is (call == "train")
    assert not pathlib.Path("was_run").exists()


@pytest.mark.parametrize("command", ["train", "evaluate", "play --video=a.gif", "export --out=out"])
def test_the_flag_is_consent(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    _directory({**_RUNS_TEXT, **_NETWORK})
    words = [*command.split(), "--run_dir=run"]
    assert commands.main(words) == 2 and "give --trust_run_dir" in capsys.readouterr().err
    assert commands.main([*words, "--trust_run_dir"]) != 0  # nothing is trained
    assert "trust_run_dir" not in capsys.readouterr().err


@pytest.mark.parametrize("config", [{}, {"env.id": "python:their_module:make"}])
def test_both_parts_of_the_file_are_looked_at(config: Mapping[str, str]) -> None:
    given = {} if config else {"env.id": "python:their_module:make"}
    saved = run_dirs.read_saved(_directory(given, config))
    with pytest.raises(errors.ResumeError, match="python:their_module:make"):
        own_runs.check_consent("run", saved, trusted=False, asked={})


def test_what_the_user_names_now_is_consent() -> None:
    code = {**_REGISTERS, **_NETWORK}
    saved = run_dirs.read_saved(_directory(code))
    own_runs.check_consent("run", saved, trusted=False, asked={**code, "run.seed": "1"})
    for asked in ({}, _REGISTERS, {**code, **_RUNS_TEXT}):
        with pytest.raises(errors.ResumeError, match="--trust_run_dir"):
            own_runs.check_consent("run", saved, trusted=False, asked=asked)


def test_a_resume_by_preset_keeps_no_code_of_the_directory() -> None:
    path = _directory({}, {"env.id": "python:their_module:make"})
    with pytest.raises(errors.ResumeError, match=r"--env: .*python:their_module:make, .*catch"):
        run_dirs.open_run_dir(path, configs.Config(), preset="catch", given={})


def test_directories_without_code_of_a_user_need_no_consent() -> None:
    for values in ({"env.id": "gym:CartPole-v1"}, {"env.id": "remote"}, {"env.id": "atari:Pong"}):
        config = configs.override(configs.Config(), values)
        own_runs.check_consent("run", run_dirs.SavedConfig("vector", values, config), trusted=False)


def test_the_opponent_s_directory_is_looked_at_too() -> None:
    game = {"env.id": "spiel:tic_tac_toe"}
    pytest.importorskip("pyspiel")
    other = _directory({**game, **_NETWORK}).rename("other")
    path = _directory(game)
    with pytest.raises(errors.ResumeError, match=f"{other} names code"):
        scoring.evaluate(agent_choice.AgentChoice(path), 1, str(other))
    with contextlib.suppress(errors.CheckpointError, errors.SpecMismatch):
        scoring.evaluate(agent_choice.AgentChoice(path), 1, "random")


def test_a_request_with_consent_takes_the_settings_of_the_directory() -> None:
    path = _directory({**_REGISTERS, "run.seed": "5"})
    asked = request.make({"run_dir": str(path), request.TRUST: "true"}, {})
    assert asked.given == {**_REGISTERS, "run.seed": "5"}
    asked = request.make({"run_dir": str(path), "preset": "catch"}, _REGISTERS)  # the command line of the first start
    assert asked.given == _REGISTERS


@pytest.mark.parametrize("code", [{"env": "python:their_module:make"}, {"env": "gym:their_module:Env-v0"}])
def test_short_names_of_settings_name_code_too(code: Mapping[str, str]) -> None:
    path = _directory(code, {})
    with pytest.raises(errors.ResumeError, match=r"--env=.*their_module.*trust_run_dir"):
        seedzero.train(run_dir=path, max_updates=1)
    assert not pathlib.Path("was_run").exists()


@pytest.mark.parametrize(
    ("mine", "arguments"),
    [
        ({"env.id": "python:my_module:make"}, "env.kwargs"),
        ({"league.builder": "my_module:build"}, "league.builder_args"),
    ],
)
def test_the_user_s_function_gets_no_arguments_of_the_directory(mine: Mapping[str, str], arguments: str) -> None:
    path = _directory({}, {**mine, arguments: '{"theirs": 1}'})
    config = configs.override(configs.Config(), mine)
    with pytest.raises(errors.ResumeError, match=configs.flag(arguments)):
        run_dirs.open_run_dir(path, config, preset="catch", given=mine)


def test_a_moved_agent_is_named_anew_at_a_resume() -> None:
    made = "import seedzero.config.own_agents as own, seedzero.config.options as options, dataclasses\n"
    made += "@dataclasses.dataclass(frozen=True)\nclass S(options.AgentSection):\n"
    made += "    size: int = options.at_creation(3, 'x')\n"
    pathlib.Path("moved_agent.py").write_text(f"{made}AGENT = own.OwnAgent('mine', S, lambda *a: None)\n")
    path = _directory({})
    saved = json.loads((path / run_dirs.CONFIG_FILE).read_text())
    agent = {"run.agent": "gone_agent:AGENT", "mine.size": 4}
    saved["given"], saved["config"] = dict(agent), {**saved["config"], **agent}
    run_dirs.write_json_atomic(path / run_dirs.CONFIG_FILE, saved)
    asked = request.make({"run_dir": str(path)}, {"run.agent": "moved_agent:AGENT"})
    assert asked.given == {"run.agent": "moved_agent:AGENT", "mine.size": "4"}
    assert configs.flatten(asked.config)["mine.size"] == 4
    saved["given"]["network.module"] = saved["config"]["network.module"] = "their_module:network"
    run_dirs.write_json_atomic(path / run_dirs.CONFIG_FILE, saved)
    with pytest.raises(errors.ResumeError, match=r"--network\.module=their_module:network.*--trust_run_dir"):
        request.make({"run_dir": str(path)}, {"run.agent": "moved_agent:AGENT"})
    assert not pathlib.Path("was_run").exists()


def test_an_own_run_needs_no_consent_where_its_code_runs_here() -> None:
    path = _directory({**_REGISTERS, **_NETWORK})
    assert own_runs.remember(path, run_dirs.read_saved(path)) == ""
    assert request.make({"run_dir": str(path)}, {}).given["env.id"] == _REGISTERS["env.id"]
    with pytest.raises(errors.ResumeError, match="trust_run_dir"):  # a learner on another node
        request.make({"run_dir": str(path)}, {}, is_here=False)
    for call in set(_CALLS) - {"train"}:
        with pytest.raises(errors.Error, match=r"their_module|no checkpoint") as raised:
            _CALLS[call](path)
        assert "trust_run_dir" not in str(raised.value)


def test_a_renamed_run_of_ones_own_is_refused_with_the_reason() -> None:
    path = _directory({**_REGISTERS, **_NETWORK})
    assert own_runs.remember(path, run_dirs.read_saved(path)) == ""
    moved = path.rename(path.with_name("moved"))
    with pytest.raises(errors.ResumeError, match="one that was renamed"):
        request.make({"run_dir": str(moved)}, {})
