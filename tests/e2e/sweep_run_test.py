"""Sweeps of real runs: interrupted, resumed, compared and drawn; a search for good settings."""

from __future__ import annotations

import json
import pathlib
import signal

import e2e_harness as harness
import pytest

from seedzero.storage.checkpoints import run_dirs

_SWEEP = ("sweep", "--optimizer.learning_rate=1e-3,1e-2", "--seeds=1,2", "--jobs=1", "--run_dir=sweep", "--")
_SETTINGS = [word for word in harness.TINY if not word.startswith("--evaluation.")]
_FIXED = (*_SETTINGS, "--evaluation.every_updates=20", "--evaluation.episodes=4", "--evaluation.num_envs=4")


@pytest.mark.slow
def test_a_sweep_goes_on_after_ctrl_c_and_its_runs_are_compared(
    host: harness.Host, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # as the programs
    command = host.command(*_SWEEP, *_FIXED, "--max_updates=40")
    first = host.start(command, "sweep")
    first.says(r"seed=1: finished: --max_updates=40")
    first.says(r"seed=2: begins")
    log = tmp_path / "sweep" / "optimizer.learning_rate=0.001_seed=2.log"
    harness.wait_for(lambda: log.exists() and "learner listening" in log.read_text(), "the second run", alive=first)
    first.send(signal.SIGINT)
    ended = first.wait()
    assert ended.code == 0 and "to resume" in ended.err and not first.children()
    status = run_dirs.read_status(log.with_suffix(""))
    assert status is None or not status["alive"]

    again = host.seedzero(*_SWEEP[:-1], "--json", "--", *_FIXED, "--max_updates=40").ok()
    states = [run["state"] for run in again.json["sweep"]]
    assert states[0] == "finished before" and set(states[1:]) <= {"finished", "finished before"}
    assert [group["settings"] for group in again.json["groups"]] == [
        {"optimizer.learning_rate": 0.001},
        {"optimizer.learning_rate": 0.01},
    ]
    assert all(run["updates"] == 40 and run["last"]["episodes"] == 4 for run in again.json["runs"])

    drawn = host.seedzero("plot", "sweep", "--x=updates", "--json").ok()
    assert [len(group["runs"]) for group in drawn.json["groups"]] == [2, 2]
    assert all(group["x"][-1] == 40 and group["low"] for group in drawn.json["groups"])
    compared = host.seedzero("compare", "sweep", "--json")
    assert json.dumps(compared.json["groups"]) == json.dumps(again.json["groups"])


@pytest.mark.slow
def test_a_search_resumes_after_ctrl_c_and_names_the_best_settings(
    host: harness.Host, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("optuna")
    search = ("sweep", "--trials=3", "--optimizer.learning_rate=log:1e-4:1e-2", "--jobs=1", "--run_dir=search")
    fixed = ("--", "--preset=catch", *harness.AGENTS["ppo"], "--stop_at_return=inf", "--max_updates=40")
    evaluated = ("--evaluation.every_updates=10", "--evaluation.episodes=4", "--evaluation.num_envs=4")
    first = host.start(host.command(*search, *fixed, *evaluated), "search")
    first.says(r"trial-000: finished: --max_updates=40")
    first.says(r"trial-001: begins")
    log = tmp_path / "search" / "trial-001.log"
    harness.wait_for(lambda: log.exists() and "learner listening" in log.read_text(), "the second trial", alive=first)
    first.send(signal.SIGINT)
    ended = first.wait()
    assert ended.code == 0 and "to resume" in ended.err and not first.children()

    again = host.seedzero(*search, "--json", *fixed, *evaluated).ok()
    states = [run["state"] for run in again.json["sweep"]]
    assert states[0] == "finished before" and set(states[1:]) <= {"finished", "finished before", "stopped early"}
    best = again.json["trials"][0]
    assert len(again.json["trials"]) == 3 and best["value"] == max(
        run["last"]["mean"] for run in again.json["runs"] if run["state"] == "finished"
    )
    rate = best["settings"]["optimizer.learning_rate"]
    assert 1e-4 <= float(rate) <= 1e-2 and f"--optimizer.learning_rate={rate}" in again.json["best"]
    compared = host.seedzero("compare", "search", "--json")
    assert compared.code == 0 and len(compared.json["groups"]) == 3
