"""The table of leagues beside self-play at equal seconds, from made up runs."""

from __future__ import annotations

import importlib
import pathlib
import sys
from typing import Any

import pytest


@pytest.fixture
def league_pays() -> Any:
    pytest.importorskip("pyspiel")
    return importlib.import_module("league_pays")


def test_a_pair_is_trained_once_and_compared_within_itself(
    league_pays: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[dict[pathlib.Path, list[str]]] = []
    of_league, of_control = iter([0.1, 0.5, 0.3]), iter([0.2, 0.4, 0.6])

    def judged(path: pathlib.Path) -> dict[str, float]:
        value = next(of_control if path.name.endswith("self-play") else of_league)
        return {**dict.fromkeys(league_pays.COLUMNS, value), "frames": 1e3, "snapshots": 4, "entropy": 0.01}

    monkeypatch.setattr(league_pays.runs, "train_side_by_side", lambda jobs, _: trained.append(jobs))
    monkeypatch.setattr(league_pays, "judged", judged)
    command = ["league_pays.py", f"--out={tmp_path}", "--pair=blotto", "--ppo.num_epochs=1"]
    for _ in range(2):  # the second time it has all pairs
        monkeypatch.setattr(sys, "argv", command)
        league_pays.main()
    assert len(trained) == 3
    league, control = trained[2].values()
    assert {"--seed=3", "--max_seconds=120", "--ppo.entropy_weight=0.15", "--ppo.num_epochs=1"} <= {*league} & {
        *control
    }
    assert {*control} - {*league} == {*league_pays.RUNS["self-play"]}
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith(
        "| blotto | 0.15 | exploiters | 1,000 | 4 | 0.01 | 0.30 (0.10 to 0.50); lower in 2 of 3 |"
    )
    assert lines[-1].startswith("| blotto | 0.15 | self-play | 1,000 | 4 | 0.01 | 0.40 (0.20 to 0.60) |")
