"""The comparison of memories: every player's settings, results that are kept, and the table. The runs are made up."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import agents  # see conftest.py
import memory
import pytest

from seedzero.config import combinations, configs, presets


def test_each_player_is_trained_once_on_a_rung_and_stands_in_the_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    trained: list[tuple[str, ...]] = []

    def train(path: pathlib.Path, settings: Sequence[str]) -> Any:
        path.mkdir(parents=True)
        (path / "metrics.jsonl").write_text(json.dumps({"kind": "evaluation", "env_steps": 100, "seconds": 5.0}))
        trained.append(tuple(settings))
        return agents.runs.Run(12.0, "ended", path)

    monkeypatch.setattr(agents.runs, "train", train)
    monkeypatch.setattr(agents.runs, "evaluations", lambda path: [])
    monkeypatch.setattr(agents.runs, "evaluate", lambda path, arguments: {"mean_return": 0.5})
    words = ["memory_tmaze", "--seeds=1", "--seconds=60", f"--out={tmp_path}"]
    memory.main(words)
    memory.main(words)
    assert len(trained) == len(memory.PLAYERS)
    assert ("--preset=memory-tmaze", "--agent=r2d2", "--seed=1", "--max_seconds=52") in trained
    table = (tmp_path / "memory.md").read_text()
    assert all(f"| {player} |" in table for player in memory.PLAYERS) and "`memory_tmaze`: 0.9" in table
    with pytest.raises(SystemExit):
        memory.main(["--players=nobody"])


@pytest.mark.parametrize("player", memory.PLAYERS)
@pytest.mark.parametrize("rung", memory.RUNGS)
def test_every_player_s_settings_are_possible(player: str, rung: str) -> None:
    words = dict(
        word.removeprefix("--").split("=", 1) for word in (*agents.RUNGS[rung].settings, *memory.PLAYERS[player])
    )
    preset, agent = words.pop("preset"), words.pop("agent")
    config = configs.override(presets.get(preset, agent), words)
    combinations.check(config)
    remembers = config.muzero.memory != "none" or agent != "muzero"
    assert remembers == (player != "muzero, 4 frames")
