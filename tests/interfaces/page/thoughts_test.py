"""Thoughts in the process that thinks: its own numbers, agents in memory, bounded answers, and its end."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import page_records
import page_runs
import pytest

from seedzero.acting.actors import agent_choice, search_traces
from seedzero.acting.tables import rethinking
from seedzero.interfaces.page import thoughts


class _Agent:
    """Stands in for an agent: thinks of a root and a child."""

    def think(self, record: Any, number: int) -> search_traces.Thought:
        if number > 4:
            raise ZeroDivisionError("a network's mistake")
        child = search_traces.Node(1, 0, 2, "right", 0.5, 3, 0.25, 1.0, -0.5, 1, position=self.position)
        root = search_traces.Node(0, None, None, "", 1.0, 4, 0.0, 1.0, 0.5, 0, (child,), position=self.position)
        choice = search_traces.Choice(2, "right", True, 0.5, 1.0, 3, 0.1, 0.1)
        return search_traces.Thought("catch", "muzero", 7, 2, "right", (choice,), 0.5, 0.25, 3, root)

    position: str | None = None

    def nearest(self, record: Any, number: int, thought: search_traces.Thought) -> dict[int, rethinking.Nearest]:
        return {1: rethinking.Nearest(number + 1, 0.125)}


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the arguments of all loads of agents."""
    found: list[Any] = []

    def load(choice: agent_choice.AgentChoice, header: Any, num_simulations: int | None) -> _Agent:
        found.append((choice, num_simulations))
        return _Agent()

    monkeypatch.setattr(rethinking, "load", load)
    return found


def _question(root: pathlib.Path, number: int = 0, step: Any = "last", **others: Any) -> dict[str, Any]:
    place = {"run_dir": str(root / "a"), "record": str(root / "a" / "records" / "episode-000000.npz")}
    return {
        **place,
        "number": number,
        "step": step,
        "player": None,
        "trusted": False,
        "num_simulations": None,
        **others,
    }


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    page_records.write(page_runs.write(tmp_path / "a", page_runs.row(1)))
    return tmp_path


def _checkpoint(root: pathlib.Path, name: str) -> None:
    path = root / "a" / "checkpoints" / name
    path.mkdir(parents=True)
    (path / "manifest.json").write_text("{}")


def test_a_thought_has_nodes_lines_and_nearest_observations(root: pathlib.Path, loads: list[Any]) -> None:
    answer = thoughts.Agents().answer(_question(root, 2, trusted=True, num_simulations=9))
    assert loads == [(agent_choice.AgentChoice(root / "a", "last", trusted=True), 9)]
    assert (answer["step"], answer["name"], answer["value"], answer["num_nodes"]) == (7, "right", 0.5, 2)
    assert answer["choices"][0]["is_taken"] and answer["num_choices"] == 1
    assert answer["lines"][0]["nodes"] == [1] and answer["nodes"][0]["children"] == [1]
    assert answer["nodes"][1]["frame"] == {"step": 3, "distance": 0.125} and answer["nodes"][0]["frame"] is None
    assert answer["seconds"] >= 0 and json.dumps(answer, allow_nan=False)


def test_a_game_s_positions_are_no_approximations(
    root: pathlib.Path, loads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Agent, "position", "x.\n<b>\x07")
    nodes = thoughts.Agents().answer(_question(root))["nodes"]
    assert [node["frame"] for node in nodes] == [None, None] and nodes[1]["position"] == "x.\n<b>\\x07"


def test_agents_stay_in_memory_until_their_checkpoint_changes(root: pathlib.Path, loads: list[Any]) -> None:
    agents = thoughts.Agents()
    _checkpoint(root, "steps/000000000010")
    for question in (_question(root), _question(root, 1), _question(root, step=10)):
        assert "error" not in agents.answer(question)
    assert len(loads) == 1
    _checkpoint(root, "steps/000000000020")
    _checkpoint(root, "best/000000000015")
    for step in ("last", "best", 15, 10):
        agents.answer(_question(root, step=step))
    assert [choice.step for choice, _ in loads] == ["last", "last", "best"]
    for number in range(1, 1 + thoughts.MAX_AGENTS):
        agents.answer(_question(root, num_simulations=number))
    agents.answer(_question(root, step=10))
    assert len(loads) == 4 + thoughts.MAX_AGENTS


def test_frozen_players_stay_in_memory(root: pathlib.Path, loads: list[Any]) -> None:
    agents = thoughts.Agents()
    for player in ("main-0123456789ab", "main-0123456789ab", "main-0123456789cd"):
        assert "error" not in agents.answer(_question(root, step=None, player=player))
    assert [choice.player for choice, _ in loads] == ["main-0123456789ab", "main-0123456789cd"]


def test_failures_are_answers(root: pathlib.Path, loads: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    agents = thoughts.Agents()
    assert "ZeroDivisionError: a network's mistake" in agents.answer(_question(root, 5))["error"]
    (root / "a" / "records" / "episode-000001.npz").write_bytes(b"none")
    damaged = _question(root, record=str(root / "a" / "records" / "episode-000001.npz"))
    assert "not a whole record" in agents.answer(damaged)["error"]
    assert "cannot be read" in agents.answer(_question(root, record=str(root / "gone.npz")))["error"]


def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MAX_CHOICES": 1, "MAX_LINES": 1, "MAX_NODES": 2, "MAX_LETTERS": 3}.items():
        monkeypatch.setattr(thoughts, name, value)
    third = search_traces.Node(2, 1, 0, "deep", 0.5, 1, 0.0, 1.0, 0.0, 2, position="letters")
    second = search_traces.Node(1, 0, 1, "b", 0.5, 2, 0.0, 1.0, 0.0, 1, (third,), position="letters")
    other = search_traces.Node(3, 0, 0, "a", 0.5, 1, 0.0, 1.0, 0.0, 1, position="letters")
    root = search_traces.Node(0, None, None, "", 1.0, 4, 0.0, 1.0, 0.0, 0, (second, other), position="letters")
    choices = tuple(search_traces.Choice(number, "ab"[number], True, 0.5, number / 2, number) for number in range(2))
    found = search_traces.Thought("x", "muzero", 1, 1, "b", choices, 0.0, 0.0, 3, root)
    answer = thoughts.shown(found.to_json(), {})
    assert [node["number"] for node in answer["nodes"]] == [0, 1] and answer["num_nodes"] == 4
    assert [node["children"] for node in answer["nodes"]] == [[1], []]
    assert [node["position"] for node in answer["nodes"]] == ["let", "let"]
    assert [line["nodes"] for line in answer["lines"]] == [[1]] and len(answer["lines"][0]["text"]) == 3
    assert [choice["name"] for choice in answer["choices"]] == ["b"] and answer["num_choices"] == 2


@pytest.mark.thorough
def test_the_process_answers_lines_and_ends_with_its_input(tmp_path: pathlib.Path) -> None:
    question = json.dumps(_question(tmp_path)).encode() + b"\n"
    done = subprocess.run(
        [sys.executable, "-m", "seedzero.interfaces.page"],
        input=2 * question,
        capture_output=True,
        timeout=600,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(thoughts.MARK)]
    assert len(lines) == 2 and "cannot be read" in json.loads(lines[0][1:])["error"]
