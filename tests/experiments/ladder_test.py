"""What the scripts that train whole runs make of results: tables, speeds, curves. The runs are made up."""

from __future__ import annotations

import json
import pathlib
import sys
from types import SimpleNamespace
from typing import Any

import ablation  # these scripts: see conftest.py
import atari
import ladder
import pytest
import runs
import same_parameters

from seedzero.config import configs


@pytest.mark.parametrize(("seconds", "score", "reached"), [(60.0, 1.0, True), (60.1, 1.0, False), (9.0, 0.9, False)])
def test_a_rung_is_reached_by_its_score_within_its_time(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, seconds: float, score: float, reached: bool
) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    monkeypatch.setattr(ladder.runs, "train", lambda path, settings: ladder.runs.Run(seconds, "finished", tmp_path))
    rung = ladder.RUNGS["catch"]._replace(score=lambda path: ladder.Score(score))
    assert ladder.climb("catch", rung, 1, tmp_path)["reached"] is reached


def test_a_climb_leaves_a_table_a_plot_a_rung_and_one_of_all(tmp_path: pathlib.Path) -> None:
    curve = [{"seconds": x, "env_steps": 20 * x, "mean_return": x / 10} for x in (5.0, 10.0)]
    results = [
        {"rung": rung, "seed": seed, "seconds": seconds, "score": score, "reached": score >= 1, "curve": curve}
        for rung in ("catch", "tictactoe")
        for seed, seconds, score in ((1, 20.0, 1.0), (2, 50.4, 0.5), (3, 30.0, 1.0))
    ]
    ladder.write(results, tmp_path)
    line = "| `catch` | 1 (return, 100 episodes) in 60 s | 1, 0.5, 1 | 20, 50, 30 (median 30) | 2 of 3 |"
    assert line in (tmp_path / "ladder.md").read_text().splitlines()
    assert {file.name for file in tmp_path.iterdir()} == {"ladder.md", "ladder.png", "catch.png", "tictactoe.png"}
    assert all(file.stat().st_size > 5_000 for file in tmp_path.glob("*.png"))


def test_an_ablation_trains_and_shows_what_is_changed_alone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = {"seconds": 10.0, "env_steps": 1000, "last_evaluation": 1.0, "reached": True}
    trained = []

    def measure(task: str, variant: str, seed: int, out: pathlib.Path) -> dict[str, Any]:
        trained.append(variant)
        return result

    monkeypatch.setattr(ablation, "measure", measure)
    words = ["catch", "--variants=base,no_gates,puct,no_ends", "--seeds=1", f"--out={tmp_path}"]
    monkeypatch.setattr(sys, "argv", ["ablation.py", *words])
    earlier = {"task": "catch", "variant": "no_gates", "seed": 1, **result}
    (tmp_path / "ablation.json").write_text(json.dumps([earlier]))
    ablation.main()
    assert trained == ["base", "puct"]
    output = capsys.readouterr().out
    assert output.startswith("catch: left out, as the preset has these settings: no_gates, no_ends\n")
    assert "| `--search.policy=puct` |" in output and "gated" not in output


def _atari(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """Runs the script with a training of 12 seconds that is made up; returns its settings."""
    asked: list[str] = []

    def train(path: pathlib.Path, settings: list[str], *, resumes: bool) -> Any:
        asked.extend(settings)
        return atari.runs.Run(12.0, "ended", path)

    monkeypatch.setattr(atari.runs, "train", train)
    monkeypatch.setattr(atari.runs, "evaluate", lambda path, arguments: {})
    monkeypatch.setattr(atari.run_dirs, "read_saved", lambda path: SimpleNamespace(config=configs.Config()))
    monkeypatch.setattr(atari, "emulator_frames_per_second", lambda config, seconds: 100.0)
    monkeypatch.setattr(atari, "draw", lambda *arguments: None)
    monkeypatch.setattr(sys, "argv", ["atari.py", *words])
    atari.main()
    return asked


def test_seconds_of_a_resumed_run_are_those_of_all_its_processes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two resumes; the row before the first one is a moment older than the one before it.
    _made_up_run(tmp_path / "run", [10.0, 20.0, 19.999, 5.0, 15.0, 3.0])
    expected = [10.0, 20.0, 19.999, 24.999, 34.999, 37.999]
    assert [point["seconds"] for point in runs.training_returns(tmp_path / "run")] == expected
    assert [point["seconds"] for point in runs.evaluations(tmp_path / "run")] == expected
    _atari(monkeypatch, f"--out={tmp_path}")
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["seconds"] == 50.0


def _made_up_run(path: pathlib.Path, seconds: list[float]) -> None:
    path.mkdir()
    row = {"update": 1, "env_steps": 10, "episode_return": 3.0, "kind": "evaluation", "evaluation_mean_return": 5.0}
    (path / "metrics.jsonl").write_text("\n".join(json.dumps({**row, "seconds": x}) for x in seconds))


def test_checkouts_that_are_compared_import_nothing_from_the_current_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments = []
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(same_parameters.subprocess, "run", lambda words, check, env: environments.append(env))
    monkeypatch.setattr(same_parameters, "arrays", lambda run: {})
    monkeypatch.setattr(sys, "argv", ["same_parameters.py", "before", "after", "catch", f"--out={tmp_path}"])
    assert same_parameters.main() == 0
    assert [env["PYTHONSAFEPATH"] for env in environments] == ["1", "1"]
    assert not any("PYTHONPATH" in env for env in environments)
