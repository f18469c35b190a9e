"""What each command passes on and prints; what it calls is tested where it lives."""

from __future__ import annotations

import functools
import json
import pathlib
import re
import sys
import types as python_types
from collections.abc import Mapping
from typing import Any

import pytest
import saved_run

from seedzero.acting.actors import agent_choice
from seedzero.acting.tables import scoring, served, videos
from seedzero.api import runs
from seedzero.cli import checkpoint
from seedzero.cli import main as commands
from seedzero.config import configs, presets, worker_options
from seedzero.core import types
from seedzero.monitoring import status
from seedzero.storage.checkpoints import run_dirs, saved_files
from seedzero.worker import worker


def _last_line(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture
def run_path(tmp_path: pathlib.Path) -> pathlib.Path:
    with run_dirs.open_run_dir(tmp_path / "run", presets.get("catch"), preset="catch", given={}) as opened:
        return opened.path


_RESULT: Mapping[str, Any] = {
    "step": 7,
    "chosen": "last",
    "episodes": 3,
    **dict.fromkeys(("mean_return", "std_return", "min_return", "max_return", "mean_length"), 1.0),
}


def test_evaluate_ends_with_one_line_of_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, chosen = [], functools.partial(agent_choice.AgentChoice, pathlib.Path("r").absolute())
    result = {**_RESULT, "chosen": "best", "mean_return": float("inf"), "cut_off": 2, "stderr_return": 0.25}
    monkeypatch.setattr(scoring, "evaluate", lambda *args: calls.append(args) or result)
    assert commands.main(["evaluate", "--run_dir=r", "--episodes", "3"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out.splitlines()[-1]) == {**result, "mean_return": "inf"}
    assert " update 7: " in output.err
    assert " inf, " in output.err and " 0.25 " in output.err and " 3 episodes" in output.err
    assert " 2 of 3 " in output.err and "--max_episode_steps=N" in output.err
    assert "the best by evaluation" in output.err
    assert commands.main(["evaluate", "--run_dir=r", "--max_episode_steps=9"]) == 0
    assert commands.main(["evaluate", "--run_dir=r", "--step=best", "--episodes=3", "--seed=4"]) == 0
    assert commands.main(["evaluate", "--run_dir=r", "--step=120", "--episodes=3"]) == 0
    assert commands.main(["evaluate", "--run_dir=r", "--opponent=exhaustive"]) == 0
    assert commands.main(["evaluate", "--run_dir=r", "--opponent=s", "--episodes=2"]) == 0
    assert commands.main(["evaluate", "--run_dir=r"]) == 0
    assert all(progress is None for *_, progress in calls)  # then it tells the user itself
    assert [tuple(given) for *given, _ in calls] == [
        (chosen(), 3, None),
        (chosen(max_steps=9), 20, None),
        (chosen("best", seed=4), 3, None),
        (chosen(120), 3, None),
        (chosen(), 20, "exhaustive"),
        (chosen(), 2, "s"),
        (chosen(), 20, None),
    ]


@pytest.mark.parametrize(
    ("flags", "result", "why"),
    [
        ([], {"chosen": "last"}, ": the last one, for no evaluation has chosen a best one"),
        (["--step=last"], {"chosen": "last"}, " (--step=last)"),
        (["--step=7"], {"chosen": "given"}, " (--step=7)"),
    ],
)
def test_evaluate_says_why_it_took_the_checkpoint(
    flags: list[str],
    result: dict[str, str],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(scoring, "evaluate", lambda *args: {**_RESULT, **result})
    assert commands.main(["evaluate", "--run_dir=r", *flags]) == 0
    err = capsys.readouterr().err
    assert " update 7" in err and why in err


def test_where_players_meet_each_other_evaluate_says_why_it_took_the_last(
    run_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dirs.write_spec(run_path, types.EnvSpec((4,), "float32", 2, num_players=2))
    monkeypatch.setattr(scoring, "evaluate", lambda *args: _RESULT)
    assert commands.main(["evaluate", f"--run_dir={run_path}"]) == 0
    err = capsys.readouterr().err
    assert f"evaluating {run_path}, 20 episodes" in err and " update 7: the last one, as always where players" in err


@pytest.mark.parametrize(("flags", "is_told"), [([], True), (["--policy=sample"], False)])
def test_evaluate_names_drawn_actions_that_returned_more_in_training(
    flags: list[str],
    is_told: bool,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = saved_run.make(tmp_path / "run", (0.5, 0.6, 0.7))
    drawn = {"policy": "sample"} if flags else {}
    scores = {"mean_return": -0.28, "std_return": 0.3, "stderr_return": 0.03, "episodes": 100}
    monkeypatch.setattr(scoring, "evaluate", lambda *args: {**_RESULT, **scores, **drawn})
    assert commands.main(["evaluate", f"--run_dir={path}", *flags]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "--policy=sample plays" in line]
    assert len(told) == is_told
    assert all("drew their actions and returned 0.5: " in line for line in told)


def test_evaluate_listens_for_a_worker_with_token_and_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(served, "evaluate", lambda *args: calls.append(args) or {"step": 7, "chosen": "best"})
    flags = ["--listen=0.0.0.0:0", "--token_file=t", "--tls.cert_file=c", "--tls.key_file=k"]
    assert commands.main(["evaluate", "--run_dir=r", "--episodes=3", "--seed=4", "--step=last", *flags]) == 0
    ((choice, episodes, access, reports),) = calls
    assert callable(reports.line) and callable(reports.progress)
    assert (choice, episodes) == (agent_choice.AgentChoice(pathlib.Path("r").absolute(), "last", seed=4), 3)
    assert (access.transport.listen, access.transport.token_file) == ("0.0.0.0:0", "t")
    assert (access.tls.cert_file, access.tls.key_file) == ("c", "k")


def test_a_remote_run_names_what_scores_it(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    remote = configs.override(presets.get("catch"), {"env.id": "remote"})
    with run_dirs.open_run_dir(tmp_path / "run", remote, preset="catch", given={}) as opened:
        assert commands.main(["evaluate", f"--run_dir={opened.path}"]) == 2
        err = capsys.readouterr().err
        assert f"{opened.path} was trained with --env=remote" in err and "give --listen=HOST:PORT" in err
        assert commands.main(["play", f"--run_dir={opened.path}", f"--video={tmp_path / 'a.gif'}"]) == 2
        err = capsys.readouterr().err
        assert "--env=remote" in err and "`seedzero evaluate --listen=HOST:PORT`" in err


def test_play_passes_the_video_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    calls = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(videos, "play", lambda *args: calls.append(args) or {"step": 7, "chosen": "best"})
    assert commands.main(["play", "--run_dir=r", "--video=a.gif"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out.splitlines()[-1]) == {"step": 7, "chosen": "best"}
    assert " update 7: " in output.err
    assert commands.main(["play", "--run_dir=r"]) == 0
    assert calls.pop()[1] == pathlib.Path("play.mp4")
    for name in ("play.mp4", "play-2.mp4"):
        pathlib.Path(name).touch()  # the user's own
    assert commands.main(["play", "--run_dir=r"]) == 0
    assert calls.pop()[1] == pathlib.Path("play-3.mp4")
    assert commands.main(["play", "--run_dir=r", "--video=a.gif", "--step=last", "--seed=5"]) == 0
    assert commands.main(["play", "--run_dir=r", "--video=a.gif", "--step=120", "--max_episode_steps=9"]) == 0
    chosen = functools.partial(agent_choice.AgentChoice, pathlib.Path("r").absolute())
    choices = chosen(), chosen("last", seed=5), chosen(120, max_steps=9)
    assert calls == [(choice, pathlib.Path("a.gif")) for choice in choices]
    assert commands.main(["play", "--run_dir=r", "--video=a.gif", "--step=newest"]) == 2
    err = capsys.readouterr().err
    assert "playing r into play-3.mp4" in err and " update 7 (--step=120)" in err
    assert "--step=newest: " in err and " best or last" in err


def test_status_asks_the_directory_or_the_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "from_run_dir", lambda path: {"directory": path})
    monkeypatch.setattr(status, "from_server", lambda address, access: {"server": address, "token": access.token_file})
    assert commands.main(["status", "--run_dir=r"]) == 0
    assert _last_line(capsys) == {"directory": "r"}
    assert commands.main(["status", "--server=unix:s", "--token_file=t"]) == 0
    assert _last_line(capsys) == {"server": "unix:s", "token": "t"}


ROWS = [
    {"step": 500, "best": False, "ok": True, "bytes": 12_340_000, "time": 820.0, "has_replay": True},
    {"step": 1000, "best": False, "ok": False, "reason": "params/a is missing", "bytes": None, "time": None},
    {"step": 500, "best": True, "ok": True, "bytes": 900, "time": 1_000_000.0, "has_replay": False},
]
for _row in ROWS:
    _row.setdefault("has_replay", None)
    _row.setdefault("reason", None)
    _row["kept_for_good"] = False


def test_checkpoint_says_that_there_is_none(run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("list", "verify"):
        assert commands.main(["checkpoint", action, f"--run_dir={run_path}", "--json"]) == 0
        assert _last_line(capsys) == []
        assert commands.main(["checkpoint", action, f"--run_dir={run_path}"]) == 0
        assert f"{run_path} has no checkpoint" in capsys.readouterr().err


def test_checkpoint_shows_sizes_and_ages_in_units_for_people() -> None:
    head, *rows = [re.split("  +", line.strip()) for line in checkpoint.table(ROWS, 1000.0, verified=False)]
    assert head == ["update", "written", "size", "replay", "state"]
    assert rows == [
        ["500", "3 min ago", "12.3 MB", "saved", "complete"],
        ["1000", "-", "-", "-", "damaged: params/a is missing"],
        ["500", "0 s ago", "900 B", "-", "complete, best by evaluation"],
    ]
    assert [checkpoint.size(size) for size in (999, 1000, 999_400, 999_940, 4.3e9)] == [
        "999 B",
        "1.0 kB",
        "999.4 kB",
        "1.0 MB",
        "4.3 GB",
    ]
    hour = 3600
    assert [checkpoint.age(seconds) for seconds in (59.9, 60, 3599, hour, 47.9 * hour, 49 * hour)] == [
        "59 s ago",
        "1 min ago",
        "59 min ago",
        "1 h ago",
        "47 h ago",
        "2 days ago",
    ]


def test_checkpoint_verify_ends_with_1_where_one_is_damaged(
    run_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(saved_files, "list_steps", lambda directory, *, content: ROWS if content else [])
    assert commands.main(["checkpoint", "verify", f"--run_dir={run_path}", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1]) == ROWS
    assert "1 of 3 checkpoints" in err
    assert commands.main(["checkpoint", "verify", f"--run_dir={run_path}"]) == 1
    out, err = capsys.readouterr()
    assert "every byte" in out and "damaged: params/a is missing" in out
    assert "1 of 3 checkpoints" in err


def test_worker_passes_its_exit_code_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(worker, "run_process", lambda options: calls.append(options) or 5)
    assert commands.main(["worker", "--server=localhost:1", "--num_envs=8", "--threads=2"]) == 5
    flags = ["--token_file=t", "--tls.ca_file=ca.pem", "--tls.server_name=learner"]
    assert commands.main(["worker", "--server=localhost:1", *flags]) == 5
    assert calls == [
        worker_options.WorkerOptions("localhost:1", num_envs=8, threads=2),
        worker_options.WorkerOptions("localhost:1", "t", "ca.pem", "learner"),
    ]


@pytest.mark.parametrize("agent", configs.agent_names())
def test_config_shows_every_setting_of_the_agent_with_value_unit_and_help(
    agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = 2 if agent == "alphazero" else 0  # which cannot search in Atari's games
    assert commands.main(["config", "--preset=atari", f"--agent={agent}", "--seed=17", "--advanced"]) == refused
    out = capsys.readouterr().out
    assert out.startswith(f"# preset atari, agent {agent}: ")
    for name, field in configs.fields().items():
        assert (f"  {configs.flag(name)}=" in out) == configs.is_read(name, agent)
        if configs.is_read(name, agent):
            assert field.metadata["help"].split(";")[0][:40] in out
    assert "--seed=17" in out and "--run." not in out, "the flags of `seedzero train`"
    envs = presets.cpu_values("atari", agent, explicit=set())["worker.envs_per_group"]
    assert f"--worker.envs_per_group=128  (on a CPU: {envs})" in out


def test_config_refuses_what_train_would_once_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["config", "--preset=atari", "--deterministic", "--workers=0"]) == 2
    printed = capsys.readouterr()
    assert "--deterministic " in printed.err and "--deterministic=true" in printed.out
    assert commands.main(["config", "--preset=atari", "--env=remote"]) == 0  # which implies --workers=0


def test_config_shows_the_values_of_the_preset_for_the_default_agent(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["config", "--preset=atari"]) == 0
    out = capsys.readouterr().out
    on_cpu = presets.cpu_values("atari", "muzero", explicit=set())["replay.batch_size"]
    assert f"--replay.batch_size=512  (on a CPU: {on_cpu})" in out
    assert "--replay.capacity=500000  environment steps" in out
    assert "[muzero]" in out and "[vtrace]" not in out


def test_config_shows_the_agent_that_train_would_choose(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["config", "--preset=hex", "--alphazero.n_step=9"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# preset hex, agent alphazero: ") and "--alphazero.n_step=9" in out


def test_config_shows_an_agents_part_of_the_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["config", "--preset=atari", "--agent=vtrace", "--vtrace.max_lag=3", "--advanced"]) == 0
    out = capsys.readouterr().out
    for line in ("--optimizer.decay_updates=78125  updates", "--vtrace.max_lag=3  unrolls", "--network.frame_stack=4"):
        assert line in out
    assert not any(f"[{section}]" in out for section in ("muzero", "search", "ppo", "reanalyse"))
    assert "--network.num_bins" not in out and "--optimizer.schedule" not in out and "[reward]" in out
    assert commands.main(["config", "--preset=continuous", "--agent=ppo", "--env=gym:MountainCarContinuous-v0"]) == 0
    assert "--reward.discount=0.99" in capsys.readouterr().out  # Pendulum's is another one
    assert "--replay.num_slots=0" in out and "--replay.capacity" not in out


@pytest.mark.parametrize("as_json", [True, False])
def test_benchmark_prints_the_figures_of_its_part(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    part = python_types.SimpleNamespace(run=lambda: {"ratio": 0.75, "workers": 4})
    monkeypatch.setitem(sys.modules, "seedzero.interfaces.benchmark.transport", part)
    assert commands.main(["benchmark", "transport", *(["--json"] if as_json else [])]) == 0
    out, err = capsys.readouterr()
    if as_json:
        assert json.loads(out) == {"ratio": 0.75, "workers": 4}
        assert "ratio" in err
    else:
        assert out.split() == ["ratio", "0.75", "workers", "4"]


@pytest.mark.parametrize("as_json", [True, False])
def test_benchmark_search_prints_each_row_as_it_comes(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {"policy": "gumbel", "batch": 8, "milliseconds": 12.5}
    rows = [first, {"policy": "puct", "batch": 128, "milliseconds": 9.0}]
    printed = []

    def run(*, report: Any, **chosen: Any) -> Any:
        assert chosen == {"batch": (8, 128), "policy": ("gumbel", "puct")}
        for row in rows:
            report(row)
            printed.append(capsys.readouterr())
        return {"platform": "cpu", "rows": rows}

    monkeypatch.setitem(sys.modules, "seedzero.interfaces.benchmark.search", python_types.SimpleNamespace(run=run))
    args = ["--batch=128,8", "--policy=gumbel,puct", *(["--json"] if as_json else [])]
    assert commands.main(["benchmark", "search", *args]) == 0
    lines = [captured.err if as_json else captured.out for captured in printed]
    assert lines == ["policy  batch  milliseconds\ngumbel      8          12.5\n", "puct      128             9\n"]
    out, err = capsys.readouterr()
    assert (err if as_json else out) == "platform  cpu\n"
    assert json.loads(out) == {"platform": "cpu", "rows": rows} if as_json else not err


def test_benchmark_acting_with_players_measures_their_price(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*, report: Any, **chosen: Any) -> Any:
        assert chosen == {"preset": "catch", "settings": {"run.agent": "ppo"}, "players": (1, 4)}
        report({"agent": "ppo", "players": 4})
        return {"platform": "cpu", "rows": [{"agent": "ppo", "players": 4}]}

    monkeypatch.setitem(sys.modules, "seedzero.interfaces.benchmark.players", python_types.SimpleNamespace(run=run))
    assert commands.main(["benchmark", "acting", "--players=4,1", "--preset=catch", "--agent=ppo"]) == 0
    assert capsys.readouterr().out == "agent  players\nppo          4\nplatform  cpu\n"


def test_the_kind_of_acting_is_passed_on_and_another_one_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def acted(choice: agent_choice.AgentChoice, *args: Any, **names: Any) -> dict[str, Any]:
        asked.append(choice.policy)
        return {**_RESULT, "policy": "sample", "functions": {}, "parameters": {"file": "p", "num_bytes": 1}}

    for module, name in ((scoring, "evaluate"), (videos, "play"), (served, "evaluate"), (runs, "export_choice")):
        monkeypatch.setattr(module, name, acted)
    uses = (["evaluate", "--listen=127.0.0.1:0"], ["play", "--video=a.gif"], ["export", "--out=out"])
    for use in uses:
        assert commands.main([*use, "--run_dir=r"]) == 0
        assert commands.main([*use, "--run_dir=r", "--policy=sample"]) == 0
        assert _last_line(capsys)["policy"] == "sample"
        assert commands.main([*use, "--run_dir=r", "--policy=best"]) == 2
        err = capsys.readouterr().err
        assert "--policy=best: expected greedy " in err and " or sample " in err
    assert asked == [None, "sample"] * 3


def test_a_frozen_player_is_chosen_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def played(choice: agent_choice.AgentChoice, *args: Any) -> dict[str, Any]:
        asked.append(choice.player)
        return {**_RESULT, "chosen": "given", **({} if choice.player is None else {"player": choice.player})}

    monkeypatch.setattr(scoring, "evaluate", played)
    monkeypatch.setattr(videos, "play", played)
    assert commands.main(["evaluate", "--run_dir=r", "--player=main-0"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1])["player"] == "main-0"
    assert "evaluating r, main-0, 20 episodes" in err and "player main-0, of update 7" in err
    assert commands.main(["play", "--run_dir=r", "--player=main-0", "--video=a.gif"]) == 0
    assert commands.main(["evaluate", "--run_dir=r", "--player=main", "--step=7"]) == 0  # the learning one
    assert asked == ["main-0", "main-0", None]
    for flags in (["--step=7"], ["--listen=127.0.0.1:0"]):
        assert commands.main(["evaluate", "--run_dir=r", "--player=main-0", *flags]) == 2
