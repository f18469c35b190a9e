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
