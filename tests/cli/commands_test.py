"""What each command passes on and prints; what it calls is tested where it lives."""

from __future__ import annotations

import json
import pathlib
import sys
import types as python_types
from typing import Any

import pytest

from seedzero.checkpoints import files as checkpoint_files
from seedzero.checkpoints import run_dir
from seedzero.cli import main
from seedzero.config import config, presets, worker_options
from seedzero.evaluation import evaluate
from seedzero.monitoring import status
from seedzero.worker import process


def _last_line(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture
def run_path(tmp_path: pathlib.Path) -> pathlib.Path:
    with run_dir.open_run_dir(tmp_path / "run", presets.get("catch"), preset="catch", given={}) as opened:
        return opened.path


def test_evaluate_ends_with_one_line_of_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []
    result = {"step": 7, "episodes": 3, "mean_return": float("inf")}
    monkeypatch.setattr(evaluate, "evaluate", lambda *args: calls.append(args) or result)
    assert main.main(["evaluate", "--run_dir=r", "--episodes", "3"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out.splitlines()[-1]) == {"step": 7, "episodes": 3, "mean_return": "inf"}
    assert "evaluated the checkpoint of update 7" in output.err
    assert main.main(["evaluate", "--run_dir=r", "--step=best", "--episodes=3", "--seed=4"]) == 0
    assert main.main(["evaluate", "--run_dir=r", "--step=120", "--episodes=3"]) == 0
    assert main.main(["evaluate", "--run_dir=r", "--opponent=exhaustive"]) == 0
    assert main.main(["evaluate", "--run_dir=r", "--opponent=s", "--episodes=2"]) == 0
    assert calls == [
        ("r", None, 3, 0, None),
        ("r", "best", 3, 4, None),
        ("r", 120, 3, 0, None),
        ("r", None, 1, 0, "exhaustive"),
        ("r", None, 2, 0, "s"),
    ]


def test_play_passes_the_video_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls = []
    monkeypatch.setattr(evaluate, "play", lambda *args: calls.append(args) or {"step": 7, "frames": 9})
    assert main.main(["play", "--run_dir=r", "--video=a.gif"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out.splitlines()[-1]) == {"step": 7, "frames": 9}
    assert "played the checkpoint of update 7" in output.err
    assert calls == [("r", pathlib.Path("a.gif"))]


def test_status_asks_the_directory_or_the_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "from_run_dir", lambda path: {"directory": path})
    monkeypatch.setattr(status, "from_server", lambda address, access: {"server": address, "token": access.token_file})
    assert main.main(["status", "--run_dir=r"]) == 0
    assert _last_line(capsys) == {"directory": "r"}
    assert main.main(["status", "--server=unix:s", "--token_file=t"]) == 0
    assert _last_line(capsys) == {"server": "unix:s", "token": "t"}


def test_checkpoint_lists_the_run_s_checkpoints(run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("list", "verify"):
        assert main.main(["checkpoint", action, f"--run_dir={run_path}"]) == 0
        assert _last_line(capsys) == []


def test_checkpoint_verify_ends_with_1_where_one_is_damaged(
    run_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"step": 1, "ok": True}, {"step": 2, "ok": False}]
    monkeypatch.setattr(checkpoint_files, "list_steps", lambda directory, *, content: rows if content else [])
    assert main.main(["checkpoint", "verify", f"--run_dir={run_path}"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1]) == rows
    assert "1 of 2 checkpoints" in err


def test_checkpoint_refuses_what_is_no_run_directory(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["checkpoint", "list", f"--run_dir={tmp_path}"]) == 2
    assert "is no run directory" in capsys.readouterr().err


def test_worker_passes_its_exit_code_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(process, "run", lambda options: calls.append(options) or 5)
    assert main.main(["worker", "--server=localhost:1", "--num_envs=8", "--threads=2"]) == 5
    flags = ["--token_file=t", "--tls.ca_file=ca.pem", "--tls.server_name=learner"]
    assert main.main(["worker", "--server=localhost:1", *flags]) == 5
    assert calls == [
        worker_options.WorkerOptions("localhost:1", num_envs=8, threads=2),
        worker_options.WorkerOptions("localhost:1", "t", "ca.pem", "learner"),
    ]


@pytest.mark.parametrize("agent", config.agent_names())
def test_config_shows_every_setting_of_the_agent_with_value_unit_and_help(
    agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["config", "--preset=atari", f"--agent={agent}", "--seed=17"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"# preset atari, agent {agent}: ")
    for name, field in config.fields().items():
        assert (f"  --{name}=" in out) == config.is_read(name, agent)
        if config.is_read(name, agent):
            assert field.metadata["help"].split(";")[0][:40] in out
    assert "--run.seed=17" in out
    envs = presets.cpu_values("atari", agent, explicit=set())["worker.envs_per_group"]
    assert f"--worker.envs_per_group=128  (on a CPU: {envs})" in out


def test_config_shows_the_values_of_the_preset_for_the_default_agent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["config", "--preset=atari"]) == 0
    out = capsys.readouterr().out
    on_cpu = presets.cpu_values("atari", explicit=set())["replay.batch_size"]
    assert f"--replay.batch_size=512  (on a CPU: {on_cpu})" in out
    assert "--replay.capacity=500000  environment steps" in out
    assert "[muzero]" in out and "[vtrace]" not in out


def test_config_shows_an_agents_part_of_the_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["config", "--preset=atari", "--agent=vtrace", "--vtrace.max_lag=3"]) == 0
    out = capsys.readouterr().out
    for line in ("--vtrace.decay_updates=78125  updates", "--vtrace.max_lag=3  unrolls", "--vtrace.frame_stack=4"):
        assert line in out
    assert not any(f"[{section}]" in out for section in ("muzero", "search", "network", "optimizer", "reanalyse"))
    assert "--replay.num_slots=0" in out and "--replay.capacity" not in out


@pytest.mark.parametrize("as_json", [True, False])
def test_benchmark_prints_the_figures_of_its_part(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    part = python_types.SimpleNamespace(run=lambda: {"ratio": 0.75, "workers": 4})
    monkeypatch.setitem(sys.modules, "seedzero.benchmark.transport", part)
    assert main.main(["benchmark", "transport", *(["--json"] if as_json else [])]) == 0
    out, err = capsys.readouterr()
    if as_json:
        assert json.loads(out) == {"ratio": 0.75, "workers": 4}
        assert "ratio" in err
    else:
        assert out.split() == ["ratio", "0.75", "workers", "4"]


def test_benchmark_tpu_prints_programs_and_predictions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"name": "act", "rows": 256, "gflop": 12.5, "replay_share": None}

    def run(*, report: Any, **chosen: Any) -> Any:
        assert chosen == {"preset": "", "settings": {"run.seed": "3"}, "chips": "v6e-4", "usd_per_chip_hour": 1.5}
        report(row)
        return {"chips": 4, "programs": [row], "predicted_steps_per_second": 12_345.6}

    monkeypatch.setitem(sys.modules, "seedzero.benchmark.tpu", python_types.SimpleNamespace(run=run))
    assert main.main(["benchmark", "tpu", "--chips=v6e-4", "--usd_per_chip_hour=1.5", "--seed=3", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"chips": 4, "programs": [row], "predicted_steps_per_second": 12_345.6}
    lines = [line.split() for line in err.splitlines()]
    assert lines[1:] == [
        ["name", "rows", "gflop", "replay_share"],
        ["act", "256", "12.5", "-"],
        ["chips", "4"],
        ["predicted_steps_per_second", "12,346"],
    ]


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

    monkeypatch.setitem(sys.modules, "seedzero.benchmark.search", python_types.SimpleNamespace(run=run))
    args = ["--batch=128,8", "--policy=gumbel,puct", *(["--json"] if as_json else [])]
    assert main.main(["benchmark", "search", *args]) == 0
    lines = [captured.err if as_json else captured.out for captured in printed]
    assert lines == ["policy  batch  milliseconds\ngumbel      8          12.5\n", "puct      128             9\n"]
    out, err = capsys.readouterr()
    assert (err if as_json else out) == "platform  cpu\n"
    assert json.loads(out) == {"platform": "cpu", "rows": rows} if as_json else not err
