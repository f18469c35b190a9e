"""What the scripts that train whole runs make of results: tables, speeds, curves. The runs are made up."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import signal
from typing import Any

import pytest

EXPERIMENTS = pathlib.Path(__file__).parents[2] / "experiments"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    return importlib.import_module


def test_what_an_interrupted_run_left_is_deleted(
    script: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "run" / "checkpoints"
    left.mkdir(parents=True)
    runs = script("runs")
    monkeypatch.setattr(runs.sys, "executable", "true")  # in place of a training
    assert runs.train(tmp_path / "run", ["--preset=catch"], resumes=True).path == tmp_path / "run"
    assert left.exists()
    assert runs.train(tmp_path / "run", ["--preset=catch"]).path == tmp_path / "run"
    assert not left.exists()


def test_a_script_that_is_ended_ends_its_run(script: Any) -> None:
    done = []

    class Training:
        def wait(self, limit: float | None) -> int:
            os.kill(os.getpid(), signal.SIGTERM)
            return 0

        def terminate(self) -> None:
            done.append("asked to leave")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        script("runs")._wait(Training(), None)
    assert ended.value.code == 128 + signal.SIGTERM and done == ["asked to leave"]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("seconds", "score", "reached"), [(60.0, 1.0, True), (60.1, 1.0, False), (9.0, 0.9, False)])
def test_a_rung_is_reached_by_its_score_within_its_time(
    script: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, seconds: float, score: float, reached: bool
) -> None:
    ladder = script("ladder")
    (tmp_path / "metrics.jsonl").write_text("")
    monkeypatch.setattr(ladder.runs, "train", lambda path, settings: ladder.runs.Run(seconds, "finished", tmp_path))
    rung = ladder.RUNGS["catch"]._replace(score=lambda path: score)
    assert ladder.climb("catch", rung, 1, tmp_path)["reached"] is reached


def test_a_rung_is_summed_up_in_one_line(script: Any) -> None:
    results = [
        {"rung": "catch", "seed": seed, "seconds": seconds, "score": score, "reached": score >= 1}
        for seed, seconds, score in [(1, 20.0, 1.0), (2, 50.4, 0.5), (3, 30.0, 1.0)]
    ]
    line = script("ladder").summary(results).splitlines()[-1]
    assert line == "| `catch` | 1 (return, 100 episodes) in 60 s | 1, 0.5, 1 | 20, 50, 30 (median 30) | 2 of 3 |"


def test_a_climb_leaves_a_table_a_plot_a_rung_and_one_of_all(script: Any, tmp_path: pathlib.Path) -> None:
    curve = [{"seconds": x, "env_steps": 20 * x, "mean_return": x / 10} for x in (5.0, 10.0)]
    results = [
        {"rung": rung, "seed": 1, "seconds": 10.0, "score": 1.0, "reached": True, "curve": curve}
        for rung in ("catch", "tictactoe")
    ]
    script("ladder").write(results, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"ladder.md", "ladder.png", "catch.png", "tictactoe.png"}
    assert all(file.stat().st_size > 5_000 for file in tmp_path.glob("*.png"))


def test_an_ablation_shows_medians_over_seeds(script: Any) -> None:
    results = [
        {
            "task": "catch",
            "variant": "puct",
            "seed": seed,
            "seconds": 10.0 * seed,
            "env_steps": 1000 * seed,
            "reached": seed < 3,
            "last_evaluation": 1.0 - seed,
        }
        for seed in (1, 2, 3)
    ]
    lines = script("ablation").summary("catch", results).splitlines()
    assert lines[2:] == ["| `--search.policy=puct` | 20 | 2,000 | 2 of 3 | -1 |"]


def test_the_speed_of_a_run_is_that_of_the_rows_in_which_it_trained(script: Any) -> None:
    rows = [
        {"frames_per_second": frames, "updates_per_second": updates}
        for frames, updates in [(9.0, 0.0), (100.0, 1.0), (40.0, 4.0), (60.0, 6.0), (50.0, 5.0)]
    ]
    found = script("atari").speed(rows, emulator=200.0)  # the first row with updates had some of its time without
    assert found["frames_per_second"] == 50.0
    assert found["updates_per_second"] == 5.0
    assert found["ratio_to_emulator"] == 0.25


def test_curves_are_read_from_the_metrics_of_a_run(script: Any, tmp_path: pathlib.Path) -> None:
    rows = [
        {"update": 1, "env_steps": 10, "seconds": 2.0, "episode_return": 3.0},
        {"update": 2, "env_steps": 20, "seconds": 4.0, "kind": "evaluation", "evaluation_mean_return": 5.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    runs = script("runs")
    assert runs.training_returns(tmp_path) == [{"seconds": 2.0, "env_steps": 10, "mean_return": 3.0}]
    assert runs.evaluations(tmp_path) == [{"seconds": 4.0, "env_steps": 20, "update": 2, "mean_return": 5.0}]
