"""A run's state, evaluations, and the time to its budget's end."""

from __future__ import annotations

import fcntl
import os
import pathlib
from typing import Any

import page_runs
import pytest
import saved_run

from seedzero.interfaces.page import summaries
from seedzero.storage.checkpoints import manifest, run_lock

_STATUS = {"env_steps": 400, "updates": 50, "env_steps_per_second": 20.0, "updates_per_second": 2.0, "finished": None}


def test_an_ended_run(tmp_path: pathlib.Path) -> None:
    evaluation = {"evaluation_mean_return": 0.25, "evaluation_best_score": 0.5}
    rows = [page_runs.row(1, **evaluation), page_runs.row(2, loss=1.0, time="2026-01-01T00:00:00+00:00")]
    page_runs.write(tmp_path / "one", *rows, status={**_STATUS, "finished": "max_env_steps=400 reached"})
    found = summaries.describe(tmp_path / "one", "group/one")
    assert (found["run"], found["name"], found["environment"], found["agent"]) == (
        "group/one",
        "one",
        "catch",
        "muzero",
    )
    assert (found["env_steps"], found["updates"], found["seconds"]) == (400, 50, 10.0)
    assert (found["last_evaluation"], found["best_evaluation"]) == (0.25, 0.5)
    assert (found["state"], found["reason"]) == (summaries.ENDED, "max_env_steps=400 reached")
    assert (found["done"], found["eta_seconds"], found["has_league"]) == (0.4, None, False)
    assert found["time"].startswith("2026")


def test_an_evaluation_many_rows_ago_is_the_last_one(tmp_path: pathlib.Path) -> None:
    rows = [page_runs.row(number, loss=1.0, note="x" * 1000) for number in range(2, 500)]
    page_runs.write(tmp_path, page_runs.row(1, evaluation_mean_return=0.25), *rows, status=_STATUS)
    found = summaries.describe(tmp_path, ".")
    assert (found["last_evaluation"], found["seconds"]) == (0.25, page_runs.row(499)["seconds"])


def test_an_evaluation_that_was_cut_short_is_no_score(tmp_path: pathlib.Path) -> None:
    cut = page_runs.row(2, evaluation_mean_return=9.0, evaluation_unfinished=3)
    page_runs.write(tmp_path, page_runs.row(1, evaluation_mean_return=0.25), cut, status=_STATUS)
    found = summaries.describe(tmp_path, ".")
    assert (found["last_evaluation"], found["seconds"]) == (0.25, cut["seconds"])


def test_a_run_that_holds_its_lock_trains(tmp_path: pathlib.Path) -> None:
    page_runs.write(tmp_path, status=_STATUS, learner={"address": "unix:x", "pid": os.getpid()})
    (tmp_path / "lock").write_text("1\n")
    assert summaries.state_of(tmp_path, _STATUS) == (summaries.STOPPED, "")
    with open(tmp_path / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert summaries.state_of(tmp_path, _STATUS) == (summaries.TRAINS, "")
        stalled = {**_STATUS, "stalled": "compiling"}
        assert summaries.state_of(tmp_path, stalled) == (summaries.STALLED, "compiling")
        assert summaries.describe(tmp_path, ".")["eta_seconds"] == (1000 - 400) / 20
        (tmp_path / "learner.json").unlink()
        assert summaries.state_of(tmp_path, _STATUS) == (summaries.STOPPED, "")


def test_of_another_user_s_lock_nothing_is_known(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page_runs.write(tmp_path, status=_STATUS, learner={"address": "unix:x", "pid": os.getpid()})
    monkeypatch.setattr(run_lock, "holder", lambda path: run_lock.UNKNOWN)
    assert summaries.state_of(tmp_path, _STATUS)[0] == summaries.UNKNOWN
    assert summaries.describe(tmp_path, ".")["eta_seconds"] is None


def test_a_copy_of_a_bucket_s_run_has_no_lock(tmp_path: pathlib.Path) -> None:
    told = {**_STATUS, "followed": True}
    assert summaries.state_of(tmp_path, {**told, "alive": True}) == (summaries.TRAINS, "")
    assert summaries.state_of(tmp_path, {**told, "alive": False}) == (summaries.STOPPED, "")
    finished = {**told, "alive": False, "finished": "--max_updates=9 passed"}
    assert summaries.state_of(tmp_path, finished) == (summaries.ENDED, "--max_updates=9 passed")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, (None, None)),
        ({"run.max_env_steps": 1000}, (0.4, 30.0)),
        ({"run.max_updates": 100}, (0.5, 25.0)),
        ({"run.max_seconds": 40.0}, (0.25, 30.0)),
        ({"run.max_env_steps": 1000, "run.max_updates": 60}, (50 / 60, 5.0)),
        ({"run.max_env_steps": 200}, (1.0, 0.0)),
        ({"run.max_env_steps": "many", "run.max_updates": None}, (None, None)),
    ],
)
def test_the_first_budget_to_end_counts(config: dict[str, Any], expected: tuple[float | None, float | None]) -> None:
    found = summaries.budget(config, _STATUS, 10.0, is_alive=True)
    assert (found["done"], found["eta_seconds"]) == expected


def test_the_best_checkpoint_has_its_update_and_steps(tmp_path: pathlib.Path) -> None:
    run = saved_run.make(tmp_path / "run")
    assert summaries.best(run) is None
    place = run / "checkpoints" / "best" / f"{20:012d}"
    place.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_directory(place, {}, manifest.Manifest(20, 0.0, 1, counters={"env_steps": 2_000}))
    assert summaries.best(run) == {"update": 20, "env_steps": 2_000}
    (place / manifest.NAME).write_text("{}")
    assert summaries.best(run) is None


def test_files_of_another_hand_give_a_row_without_numbers(tmp_path: pathlib.Path) -> None:
    page_runs.write(tmp_path, status={"env_steps": [1], "finished": {"a": 1}}, config={"config": [], "given": 3})
    (tmp_path / "metrics.jsonl").write_bytes(b"\xff\n[]\n" + b"x" * 300_000 + b"\n")
    found = summaries.describe(tmp_path, "a")
    assert (found["environment"], found["env_steps"], found["last_evaluation"]) == ("", None, None)
    (tmp_path / "status.json").write_text("[" * 100_000)
    assert summaries.describe(tmp_path, "a")["state"] == summaries.STOPPED
    assert summaries.settings(tmp_path) == {"preset": "", "given": {}, "config": {}}


@pytest.mark.parametrize(
    ("agent", "names"),
    [
        ("ppo", ["env.id", "ppo.num_epochs", "league.freeze_every", "replay.num_slots", "later.version"]),
        ("apex", ["env.id", "replay.num_slots", "replay.capacity", "later.version"]),
        (
            "mine:AGENT",
            ["env.id", "league.freeze_every", "replay.num_slots", "replay.capacity", "mine.width", "later.version"],
        ),
    ],
)
def test_only_settings_that_the_agent_reads_are_shown(tmp_path: pathlib.Path, agent: str, names: list[str]) -> None:
    everything = ("env.id", "ppo.num_epochs", "muzero.n_step", "league.freeze_every", "replay.num_slots")
    everything += ("replay.capacity", *(["mine.width"] if ":" in agent else []), "later.version")
    path = page_runs.write(tmp_path / "run", config={"config": dict.fromkeys(everything, 1) | {"run.agent": agent}})
    found = summaries.read_settings(path)
    assert [*found["config"]] == [*names, "run.agent"]
    assert found["marks"]["replay.num_slots"] == "advanced" and "later.version" not in found["marks"]


def test_settings_of_leagues_and_hosts_are_shown_to_runs_that_have_them(tmp_path: pathlib.Path) -> None:
    values = {"run.agent": "ppo", "league.freeze_every": 0, "league.weighting": "squared", "cluster.num_hosts": 2}
    path = page_runs.write(tmp_path / "run", config={"config": values})
    assert [*summaries.read_settings(path)["config"]] == ["run.agent", "cluster.num_hosts"]


@pytest.mark.parametrize(
    ("env_id", "names"),
    [
        ("catch", []),
        ("atari:Pong", ["env.frame_size", "env.frame_skip", "env.max_episode_steps"]),
        ("gym:CartPole-v1", ["env.max_episode_steps", "env.kwargs"]),
        ("later:one", ["env.frame_size", "env.frame_skip", "env.max_episode_steps", "env.kwargs"]),
    ],
)
def test_only_settings_that_the_environment_reads_are_shown(
    tmp_path: pathlib.Path, env_id: str, names: list[str]
) -> None:
    everything = ("env.frame_size", "env.frame_skip", "env.max_episode_steps", "env.kwargs")
    values = {"env.id": env_id, "run.agent": "ppo", **dict.fromkeys(everything, 1)}
    path = page_runs.write(tmp_path / "run", config={"config": values})
    assert [*summaries.read_settings(path)["config"]] == ["env.id", "run.agent", *names]


def test_a_league_is_seen_by_settings_or_files(tmp_path: pathlib.Path) -> None:
    assert not summaries.has_league(tmp_path, page_runs.CONFIG["config"])
    assert summaries.has_league(tmp_path, {"league.freeze_every": 100})
    assert summaries.has_league(tmp_path, {"league.builder": "biased"})
    (tmp_path / "league.jsonl").touch()
    assert summaries.has_league(tmp_path, {})


def test_settings_have_their_meaning_and_the_presets_other_value(tmp_path: pathlib.Path) -> None:
    path = page_runs.write(tmp_path, config={**page_runs.CONFIG, "given": {"run.max_env_steps": "1000"}})
    found = {one.pop("name"): one for one in summaries.described(path)["settings"]}
    steps, agent = found["run.max_env_steps"], found["run.agent"]
    assert (steps["value"], steps["unit"], steps["is_given"], steps["usual"]) == (1000, "environment steps", True, 0)
    assert "training steps" in steps["help"]
    assert (agent["value"], agent["is_given"], agent["usual"]) == ("muzero", False, None)
