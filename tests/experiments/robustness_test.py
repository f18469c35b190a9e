"""The table of environments that nobody tuned for. The runs are made up."""

from __future__ import annotations

import importlib
import json
import pathlib
import sys
from typing import Any

import pytest


@pytest.fixture
def robustness(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYTHONPATH", "")
    return importlib.import_module("robustness")


def _measured(score: float | None, failed: str = "") -> dict[str, Any]:
    return {"score": score, "failed": failed, "preset": "vector", "env_steps": 1000, "updates": 40, "load": 2.0}


def test_there_are_a_dozen_environments_and_no_game_without_scores(robustness: Any) -> None:
    suites = robustness.SUITES
    assert [len(suite.tasks) for suite in suites.values()] == [12, 26, 57]
    assert len(robustness.QUICK) == 6 and set(robustness.QUICK) <= set(robustness.TASKS)
    assert all(task.random < task.best for suite in suites.values() for task in suite.tasks.values())
    assert suites["atari26"].tasks["BankHeist"] == ("atari:BankHeist", 14.2, 753.1, 100)
    assert suites["atari26"].settings == ("--preset=atari-100k",)


def test_a_line_of_the_table_shows_scores_and_failures(robustness: Any) -> None:
    results = [
        {"name": "MountainCar-v0", "seed": 1, **_measured(-97.7)},
        {"name": "MountainCar-v0", "seed": 2, **_measured(None, "train ended with 1: a | b")},
    ]
    table = robustness.summary(results, robustness.SUITES[""]).splitlines()
    assert table[2].split(" | ")[2:] == [
        "-200, -97.7",
        "-97.7, -",
        "0.500",
        "1,000, 40",
        "2.0",
        "seed 2: train ended with 1: a / b |",
    ]
    assert table[4].startswith("Normalised, 1 environments: mean 0.500 [0.000, 1.000]")


def test_a_run_that_fails_is_a_result(
    robustness: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise robustness.runs.Failure(["seedzero", "train"], 1, "lines\nthe reason\n")

    monkeypatch.setattr(robustness.runs, "train", fail)
    arguments = robustness._parse([f"--out={tmp_path}"])
    result = robustness.measure(robustness.TASKS["Taxi-v4"], tmp_path / "Taxi-v4-1", [], arguments)
    assert result["score"] is None and result["failed"].endswith(" 1: the reason")


def test_a_process_that_does_not_end_is_a_failure(robustness: Any) -> None:
    with pytest.raises(robustness.runs.Failure) as raised:
        robustness.runs._last_json(["-c", "import time; time.sleep(60)"], limit=0.2)
    assert "time" in raised.value.reason


def test_finished_runs_are_not_repeated_and_other_settings_refused(
    robustness: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def measure(task: Any, path: pathlib.Path, settings: list[str], _: Any) -> dict[str, Any]:
        asked.append((task.env, path.name, settings))
        return _measured(task.best)

    def call(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["robustness.py", f"--out={tmp_path}", *arguments])
        robustness.main()

    monkeypatch.setattr(robustness, "measure", measure)
    given = ("--minutes=1", "--", "--agent=vtrace")
    call("Taxi-v4", "--seeds=1", *given)
    call("Taxi-v4", "--seeds=1,2", *given)
    shared = ["--max_seconds=60", "--agent=vtrace"]
    assert asked == [
        ("gym:Taxi-v4", "Taxi-v4-1", [*shared, "--seed=1"]),
        ("gym:Taxi-v4", "Taxi-v4-2", [*shared, "--seed=2"]),
    ]
    assert [result["seed"] for result in json.loads((tmp_path / "robustness.json").read_text())] == [1, 2]
    assert "mean 1.000" in (tmp_path / "robustness.md").read_text()
    with pytest.raises(SystemExit, match="give another --out"):
        call("Taxi-v4", "--minutes=2")
    with pytest.raises(SystemExit, match=r"--episodes .* 20; .*--out"):
        call("Taxi-v4", "--episodes=20", *given)


def test_a_preset_of_the_user_replaces_that_of_the_games(robustness: Any) -> None:
    arguments = robustness._parse(["--games=atari26", "--agent=vtrace", "Pong"])
    assert robustness._shared_settings(robustness.SUITES["atari26"], arguments, ["--preset=atari"]) == [
        "--agent=vtrace"
    ]
    assert arguments.out == pathlib.Path("runs/atari26")


@pytest.mark.parametrize("setting", ["--max_seconds=60", "--max_seconds", "--run.max_seconds=60"])
def test_a_time_among_the_settings_is_refused(robustness: Any, setting: str) -> None:
    arguments = robustness._parse(["Taxi-v4"])
    with pytest.raises(SystemExit, match="give --minutes=M"):
        robustness._shared_settings(robustness.SUITES[""], arguments, [setting])


def test_scaled_cartpole_is_cartpole_in_other_units(robustness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    group = robustness.registry.make(
        robustness.TASKS["ScaledCartPole-v0"].env, robustness.sections.EnvConfig(), num_envs=1
    )
    plain = robustness.registry.make("gym:CartPole-v1", robustness.sections.EnvConfig(), num_envs=1)
    first, other = group.reset([3]), plain.reset([3])
    assert first.observation == pytest.approx(10_000 * other.observation, rel=1e-5)
    action = robustness.np.ones(1, "int32")
    stepped, other = group.step(action), plain.step(action)
    assert stepped.observation == pytest.approx(10_000 * other.observation, rel=1e-5)
    assert (stepped.reward[0], other.reward[0]) == (1_000.0, 1.0)
    group.close()
    plain.close()


def test_random_play_is_measured_over_whole_episodes(robustness: Any) -> None:
    assert robustness.random_return("gym:MountainCar-v0", num_episodes=3) == -200.0
