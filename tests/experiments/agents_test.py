"""The comparison of all agents: who plays what, results that are kept, tables and figures. The runs are made up."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import agents  # see conftest.py
import pytest

CURVE = [
    {
        "kind": "evaluation",
        "update": 10 * n,
        "seconds": 5.0 * n,
        "env_steps": 100 * n,
        "evaluation_mean_return": 0.5 * n,
    }
    for n in (1, 2)
]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The settings of each training run, none of which is real."""
    runs: list[tuple[str, ...]] = []

    def train(path: pathlib.Path, settings: Sequence[str]) -> Any:
        path.mkdir(parents=True)
        (path / "metrics.jsonl").write_text("\n".join(map(json.dumps, CURVE)))
        runs.append(tuple(settings))
        return agents.runs.Run(12.0, "ended", path)

    monkeypatch.setattr(agents.runs, "train", train)
    monkeypatch.setattr(agents.runs, "evaluate", lambda path, arguments: {"mean_return": float(len(arguments[0]))})
    return runs


def test_a_table_and_a_figure_of_each_rung_remain(trained: list[tuple[str, ...]], tmp_path: pathlib.Path) -> None:
    agents.main(["catch", "memory_repeat", "--agents=ppo,r2d2", "--seeds=1,2", f"--out={tmp_path}"])
    lines = (tmp_path / "agents.md").read_text().splitlines()
    assert lines[2] == "| `catch`: 1 | r2d2 | 14, 14 | 12, 12 (median 12) | 200, 200 | 2 of 2 |"
    assert lines[5].startswith("| `memory_repeat`: 28.8 | ppo |") and lines[5].endswith("| 0 of 2 |")
    assert {file.stem for file in tmp_path.glob("*.png")} == {"catch", "memory_repeat"}
    assert all(file.stat().st_size > 5_000 for file in tmp_path.glob("*.png"))
