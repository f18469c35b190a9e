"""Settings under names of earlier versions: frozen values, saved runs, and what users are told.

`resolved.json` has the values of every preset and agent before settings of agents became shared ones, by the names of
then: in row "" what all agents have, else what differs from it; a preset's row has values, those on a CPU over them,
and those for other environments. MuZero's presets of memory tasks are those of later: then it had no memory.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

from seedzero.api import training
from seedzero.checkpoints import run_dirs
from seedzero.cli import main as commands
from seedzero.config import configs, options, preset_files, presets, removed, renamed
from seedzero.core import errors

AGENTS = ("muzero", "vtrace", "apex", "r2d2", "ppo", "sac")
BOARDS = {"tictactoe", "connect_four", "spiel", "league-tictactoe", "league-connect-four"}
"""Presets of games that PPO and V-trace did not play then."""
Values = Mapping[str, options.Value]


@functools.cache
def _frozen() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((pathlib.Path(__file__).parent / "resolved.json").read_text())
    return found


def _defaults(agent: str) -> Values:
    return {**_frozen()[""][""], **_frozen()[agent][""]}


def _differences(then: Values, now: Values) -> dict[str, tuple[options.Value, options.Value | None]]:
    """Returns the values of then and now that differ; of a setting that is gone, from the value that holds always."""
    gone = {name: setting.default for name, setting in removed.SETTINGS.items()}
    of_now = {name: gone.get(name, now.get(renamed.NOW.get(name, name))) for name in then}
    return {
        name: (value, of_now[name])
        for name, value in then.items()
        if (type(value), value) != (type(of_now[name]), of_now[name])
    }


@pytest.mark.parametrize("agent", AGENTS)
def test_every_preset_has_the_values_of_before(agent: str) -> None:
    assert not _differences(_defaults(agent), configs.flatten(configs.of_agent(agent)))
    for preset in _frozen()[""].keys() - {""} - (BOARDS if agent in ("ppo", "vtrace") else set()):
        (values, on_cpu), own = _frozen()[""][preset], [*_frozen()[agent].get(preset, []), {}, {}, {}]
        then = {**_defaults(agent), **values, **own[0]}
        now = presets.get(preset, agent)
        assert not _differences(then, configs.flatten(now)), preset
        now_on_cpu = configs.override(now, presets.cpu_values(preset, agent, explicit=frozenset()))
        assert not _differences({**then, **on_cpu, **own[1]}, configs.flatten(now_on_cpu)), preset
        assert not _differences(own[2], presets.part(preset, agent).elsewhere), preset


def test_every_earlier_name_is_that_of_one_setting_which_its_agent_reads() -> None:
    for name, now in renamed.NOW.items():
        section = name.partition(".")[0]
        agent = section if section in AGENTS else "muzero"
        assert name in _defaults(agent) and name not in configs.fields()
        assert configs.is_read(now, agent) and list(renamed.NOW.values()).count(now) <= len(AGENTS)
    for agent in AGENTS:
        now = [renamed.NOW[name] for name in _defaults(agent) if name in renamed.NOW]
        assert len(now) == len(set(now))


def _saved(agent: str, **changes: options.Value) -> dict[str, options.Value]:
    """Returns config.json's values of an earlier version: those of all agents."""
    everything = {name: value for other in AGENTS for name, value in _defaults(other).items()}
    return {**everything, "run.agent": agent, **{name.replace("__", "."): value for name, value in changes.items()}}


@pytest.mark.parametrize("agent", AGENTS)
def test_a_run_of_an_earlier_version_has_its_agent_s_values(agent: str) -> None:
    mine = {"muzero": "optimizer.learning_rate"}.get(agent, f"{agent}.learning_rate")
    other = "ppo.learning_rate" if agent == "muzero" else "optimizer.learning_rate"
    values = _saved(agent, **{mine: 0.125, other: 0.5, f"{agent}.discount": 0.25})
    saved = run_dirs.parse_saved({"preset": "catch", "given": {f"{agent}.discount": "0.25"}, "config": values})
    assert (saved.config.optimizer.learning_rate, saved.config.reward.discount) == (0.125, 0.25)
    assert saved.given == {"reward.discount": "0.25"}
    asked = configs.override(configs.of_agent(agent), {"optimizer.learning_rate": 0.125, "reward.discount": 0.25})
    assert {name: x for name, x in configs.flatten(saved.config).items() if configs.is_read(name, agent)} == {
        name: x for name, x in configs.flatten(asked).items() if configs.is_read(name, agent)
    }


def test_names_of_code_count_under_their_names_of_now() -> None:
    content = {"preset": "catch", "given": {"ppo.module": "a:b"}, "config": _saved("ppo", ppo__module="a:b")}
    saved = run_dirs.parse_saved(content)
    assert saved.config.network.module == "a:b" and saved.given == {"network.module": "a:b"}
    other = run_dirs.parse_saved({**content, "config": _saved("apex", ppo__module="a:b")})
    assert not other.config.network.module and not other.given


def test_a_warning_names_the_setting_of_now() -> None:
    given, (note,) = renamed.of_user({"ppo.learning_rate": "1e-3", "run.seed": "3"}, ["ppo"])
    assert given == {"optimizer.learning_rate": "1e-3", "run.seed": "3"}
    assert note.startswith("--ppo.learning_rate is called --optimizer.learning_rate now")
    # The later one counts, as of other flags.
    given, _ = renamed.of_user({"network.width": "3", "ppo.width": "4", "ppo.num_epochs": "1"}, ["ppo"])
    assert list(given.items()) == [("network.width", "4"), ("ppo.num_epochs", "1")]


def test_another_agent_s_earlier_name_is_refused() -> None:
    with pytest.raises(
        errors.ConfigError, match=r"--ppo\.width .*--network\.width .*ppo.*--agent=apex.*--network\.width"
    ):
        renamed.of_user({"ppo.width": "4"}, ["ppo", "apex"])


@pytest.mark.parametrize(
    "words",
    [
        ("--preset=catch", "--agent=ppo", "--ppo.learning_rate=0.125"),
        ("--preset=league-kuhn", "--ppo.learning_rate", "0.125"),
        ("--preset=mine.preset",),
    ],
)
def test_the_command_line_takes_and_names_them(
    words: tuple[str, ...],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("mine.preset").write_text("--preset=catch\n--agent=ppo\n--ppo.learning_rate=0.125\n")
    assert preset_files.read("mine.preset").settings["optimizer.learning_rate"] == "0.125"
    commands.main(["config", *words])
    printed = capsys.readouterr()
    assert "--optimizer.learning_rate=0.125" in printed.out
    assert printed.err.count("--ppo.learning_rate is called --optimizer.learning_rate now") == 1


def test_switches_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["config", "--preset=catch", "--nomuzero.scale_rewards"]) == 0
    printed = capsys.readouterr()
    assert "--reward.normalize=false" in printed.out and "--reward.normalize now" in printed.err


def test_calls_take_and_name_them(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"agent": "ppo", "ppo.normalize_rewards": False}
    assert training.texts(given) == {"run.agent": "ppo", "reward.normalize": "false"}
    assert "--reward.normalize now" in capsys.readouterr().err
    assert training.texts({"ppo.width": 3}, preset="seats") == {"network.width": "3"}
