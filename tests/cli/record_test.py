"""`seedzero record`: flags, the table or JSON of the files, and a stop."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from seedzero.acting.actors import agent_choice
from seedzero.acting.tables import recording
from seedzero.cli import main as commands

_EPISODES = [
    recording.RecordedEpisode("episode-000000.npz", 1.0, 9, False, ""),
    recording.RecordedEpisode("episode-000001.npz", -1.0, 7, True, ""),
]


def _recording(monkeypatch: pytest.MonkeyPatch, *, stops: bool = False) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []

    def record(*args: Any, recorded: Any, **names: Any) -> dict[str, Any]:
        calls.append((*args, names))
        for episode in _EPISODES:
            recorded(episode)
        if stops:
            raise KeyboardInterrupt
        return {"step": 7, "chosen": "best", "out": str(args[1]), "episodes": 2, "steps": 16}

    monkeypatch.setattr(recording, "record", record)
    return calls


def test_record_passes_its_flags_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, run = _recording(monkeypatch), pathlib.Path("r").absolute()
    assert commands.main(["record", "--run_dir=r"]) == 0
    flags = ["--episodes=3", "--seed=4", "--step=120", "--simulations=64", "--max_episode_steps=9", "--policy=sample"]
    assert commands.main(["record", "--run_dir=r", "--out=o", *flags, "--trust_run_dir"]) == 0
    given = agent_choice.AgentChoice(run, 120, policy="sample", trusted=True, seed=4, max_steps=9, simulations=64)
    assert calls == [(agent_choice.AgentChoice(run), "r/records", 20, {}), (given, "o", 3, {})]


def test_record_ends_with_a_table_or_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _recording(monkeypatch)
    assert commands.main(["record", "--run_dir=r", "--out=o"]) == 0
    output = capsys.readouterr()
    assert "recording r into o, 20 episodes" in output.err and "update 7: 16 steps" in output.err
    assert [line.split() for line in output.out.splitlines()] == [
        ["file", "steps", "return", "cut_off"],
        ["episode-000000.npz", "9", "1.000", "no"],
        ["episode-000001.npz", "7", "-1.000", "yes"],
    ]
    assert commands.main(["record", "--run_dir=r", "--out=o", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["step"], found["steps"]) == (7, 16)
    assert found["files"][1] == {"file": "episode-000001.npz", "steps": 7, "return": -1.0, "cut_off": True}


def test_a_stop_tells_the_finished_files(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _recording(monkeypatch, stops=True)
    assert commands.main(["record", "--run_dir=r", "--out=o", "--episodes=5"]) == 130
    err = capsys.readouterr().err
    assert " 2 of 5 episodes are whole in o" in err
