"""The driver of the Atari tables: which runs are left, and what it keeps of one. The runs are made up."""

from __future__ import annotations

import csv
import json
import pathlib
import shutil
from typing import Any

import atari_table  # see conftest.py
import pytest
import runs
import saved_run

from seedzero.storage.checkpoints import saved_files

ENTRY = atari_table.Entry("Pong", "muzero", 1)
ROWS: list[dict[str, Any]] = [
    {"env_steps": 10, "update": 1, "seconds": 4.0, "learner_cpu_percent": 50.0, "episode_return": -21.0},
    {"env_steps": 15, "update": 2, "seconds": 5.0, "kind": "evaluation", "evaluation_mean_return": 1.5},
    {"env_steps": 20, "update": 3, "seconds": 8.0, "learner_cpu_percent": 100.0, "workers_cpu_percent": 25.0},
    {"env_steps": 30, "update": 4, "seconds": 9.0, "kind": "evaluation", "evaluation_unfinished": 2},
]


def test_processor_seconds_are_shares_of_the_time_between_rows() -> None:
    assert atari_table.processor_seconds(ROWS) == pytest.approx(0.5 * 4 + 1.25 * 4)


def test_a_curve_has_training_returns_and_whole_evaluations(tmp_path: pathlib.Path) -> None:
    atari_table.write_curve(tmp_path / "curve.csv", ROWS)
    found = list(csv.DictReader((tmp_path / "curve.csv").read_text().splitlines()))
    assert [(row["env_steps"], row["episode_return"], row["evaluation_mean_return"]) for row in found] == [
        ("10", "-21", ""),
        ("15", "", "1.5"),
    ]


def test_a_long_curve_is_thinned_to_means(tmp_path: pathlib.Path) -> None:
    rows = [{"env_steps": n, "update": n, "seconds": n, "episode_return": float(n % 2)} for n in range(1, 9)]
    atari_table.write_curve(tmp_path / "curve.csv", rows, num_points=4)
    found = list(csv.DictReader((tmp_path / "curve.csv").read_text().splitlines()))
    assert [(row["env_steps"], row["episode_return"]) for row in found] == [(str(n), "0.5") for n in (2, 4, 6, 8)]


def test_entries_have_names_of_their_own_and_commands_that_train_takes() -> None:
    names = [entry.name for entry in atari_table.ENTRIES]
    assert len(set(names)) == len(names) and "pong_muzero_1" in names
    (benchmark,) = (entry for entry in atari_table.ENTRIES if entry.name == "krull_muzero-100k_1")
    assert benchmark.arguments == ["--preset=atari-100k", "--env=atari:Krull", "--seed=1"]


def test_a_finished_run_leaves_a_row_a_curve_and_parameters(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(path: pathlib.Path, settings: list[str], *, resumes: bool) -> None:
        assert resumes and settings[:-1] == ENTRY.arguments and settings[-1] == "--max_seconds=9000"
        saved_run.make(path)
        for step in (5, 7):
            saved_run.add_checkpoint(path, step)

    def evaluate(path: pathlib.Path, arguments: list[str]) -> dict[str, float]:
        assert arguments == ["--step=last", "--episodes=100", "--policy=greedy"]
        return {"mean_return": 14.8, "stderr_return": 0.7}

    monkeypatch.setattr(runs, "train", train)
    monkeypatch.setattr(runs, "evaluate", evaluate)
    readme = tmp_path / "examples" / "trained" / "README.md"
    readme.parent.mkdir(parents=True)
    readme.write_text("| agent |\n|---|\n")
    row = atari_table.make(ENTRY, tmp_path / "runs", tmp_path)
    assert (row["name"], row["score"], row["updates"], row["env_steps"]) == ("pong_muzero_1", 14.8, 7, 2_000)
    assert list(atari_table.rows_of(tmp_path)) == [row]
    assert "| [pong](pong) |" in readme.read_text() and "| `--policy=greedy` | 14.8 ± 0.7 |" in readme.read_text()
    kept = readme.parent / "pong"
    assert saved_files.finished(kept / "checkpoints" / "steps") == [7]
    shutil.rmtree(kept)
    shutil.rmtree(tmp_path / "runs")
    atari_table.make(ENTRY, tmp_path / "runs", tmp_path)
    assert not kept.exists()  # an equal score is no better one


def test_runs_with_a_row_are_left_out(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "docs" / "curves" / "table.jsonl"
    table.parent.mkdir(parents=True)
    row = {"name": "pong_muzero_1", "score": 1.0, "standard_error": 0.5, "env_steps": 4}
    table.write_text(json.dumps(row) + "\n")
    made = []

    def make(entry: atari_table.Entry, *places: pathlib.Path) -> dict[str, Any]:
        made.append(entry.name)
        return row

    monkeypatch.setattr(atari_table, "make", make)
    arguments = ["atari_table.py", f"--into={tmp_path}", "--only", "pong_muzero_1", "pong_muzero_2"]
    monkeypatch.setattr("sys.argv", arguments)
    atari_table.main()
    assert made == ["pong_muzero_2"] and "1.0 ± 0.5 after 4 steps" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", [*arguments, "nobody"])
    with pytest.raises(SystemExit):
        atari_table.main()
    assert "no run is called nobody" in capsys.readouterr().err
