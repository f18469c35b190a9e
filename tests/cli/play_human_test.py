"""`seedzero play --human` by a pipe: moves, commands, mistakes, records, and both ways to leave."""

from __future__ import annotations

import io
import json
import pathlib
import sys
from typing import Any

import play_runs
import pytest

from seedzero.acting.tables import records
from seedzero.cli import main as commands


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory with a run of tic-tac-toe and one of Kuhn poker."""
    root = tmp_path_factory.mktemp("runs")
    play_runs.make(root / "ttt", "spiel:tic_tac_toe")
    play_runs.make(root / "kuhn", "spiel:kuhn_poker")
    return root


def _plays(
    run: pathlib.Path, lines: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *flags: str
) -> tuple[dict[str, Any], str]:
    """Returns the result and the other output of a session with these lines."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert commands.main(["play", str(run), *(flags or ("--human",))]) == 0
    output = capfd.readouterr()
    return json.loads(output.out.splitlines()[-1]), output.err


@pytest.mark.thorough
def test_games_are_played_by_numbers_and_names(
    runs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = "x(1,1)\nundo\n4\nhint\nthink\nnonsense\nresign\nsides\nresign\nquit\n"
    found, text = _plays(runs / "ttt", lines, monkeypatch, capfd)
    assert (found["losses"], found["wins"], found["draws"]) == (2, 0, 0) and found["step"] == 90
    assert text.count("moves: x(1,1), o") == 2 and "the agent would play x(" in text
    assert "spiel:tic_tac_toe, muzero of update 90: action x(" in text and "'nonsense' is neither a legal move" in text
    assert "You have the seat second." in text and "you have lost" in text
    kept = [records.read_record(path) for path in found["records"]]
    assert [(record.num_steps, record.header["human"]) for record in kept] == [(2, "first"), (1, "second")]
    assert [pathlib.Path(path).name for path in found["records"]] == ["human-1.npz", "human-2.npz"]


def test_the_whole_view_of_a_seat_of_poker(
    runs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found, text = _plays(runs / "kuhn", "undo\nBet\nquit\n", monkeypatch, capfd, "--human=second", "--seed=3")
    assert len(found["records"]) == 1
    lines = text.splitlines()
    assert any("seat second of first, second" in line for line in lines)
    assert any("undo, hint, think, resign, new, sides, help, quit" in line for line in lines)
    assert "your moves: 0 Pass, 1 Bet" in lines and "2b" in lines and "2bb" in lines
    assert any("something is hidden" in line for line in lines) and any(
        "with a return of 2;" in line for line in lines
    )


@pytest.mark.thorough
def test_the_inputs_end_leaves_the_game_and_keeps_its_record(
    runs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found, _ = _plays(runs / "ttt", "0\n", monkeypatch, capfd)
    assert [found[name] for name in ("wins", "draws", "losses")] == [0, 0, 0]
    record = records.read_record(found["records"][0])
    assert record.header["ended"] == "left" and record.header["cut_off"] and record.num_steps == 2
    assert _plays(runs / "ttt", "", monkeypatch, capfd)[0]["records"] == []


@pytest.mark.thorough
def test_ctrl_c_leaves_the_game_and_keeps_its_record(
    runs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(io.StringIO):
        def readline(self, *size: Any) -> str:
            if line := super().readline():
                return line
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted("8\n"))
    assert commands.main(["play", str(runs / "ttt"), "--human"]) == 0
    found = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert records.read_record(found["records"][0]).header["ended"] == "left"


@pytest.mark.thorough
def test_games_are_played_and_counted_where_nothing_can_be_recorded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    play_runs.make(tmp_path / "ttt", "spiel:tic_tac_toe")
    (tmp_path / "ttt" / "records").write_text("no folder")
    found, text = _plays(tmp_path / "ttt", "4\nresign\nnew\n4\nquit\n", monkeypatch, capfd)
    assert (found["losses"], found["records"]) == (1, [])
    assert text.count("cannot be written") == 2 and text.count("You have the seat first.") == 1


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--human", "--video=a.gif"], "--video is for an episode without you"),
        (["--human", "--max_episode_steps=5"], "--max_episode_steps is for an episode without you"),
        (["--human=third"], "--human=third: expected one of the seats first, second, or its number"),
    ],
)
def test_mistakes_are_named(
    flags: list[str], part: str, runs: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["play", str(runs / "ttt"), *flags]) == 2
    text = capsys.readouterr().err
    assert part in text
