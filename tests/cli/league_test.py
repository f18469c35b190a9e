"""What `seedzero league` prints."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import golden
import pytest
import saved_league

from seedzero.cli import main as commands


@pytest.fixture(scope="module")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return saved_league.make(tmp_path_factory.mktemp("league") / "run")


def _json(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert commands.main(["league", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_show_has_players_matches_and_types(run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, "show", f"--run_dir={run_path}")
    assert [player["name"] for player in found["players"]] == ["main", saved_league.OLD, saved_league.NEW]
    assert found["players"][1] == {
        "name": saved_league.OLD,
        "kind": "frozen",
        "learns": False,
        "version": 30,
        "env_steps": 1_000,
        "parent": "main",
    }
    assert (found["matches"], found["types"]) == (10, {"self_play": 3, "past": 7, "evaluation": 0})
    assert (found["void"], found["active"].count(saved_league.NEW)) == (2, 2)


def test_payoff_has_twice_as_many_games_as_matches(run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _json(capsys, "payoff", f"--run_dir={run_path}")["payoff"]
    assert sum(row["games"] for row in rows) == 2 * 10
    (row,) = [x for x in rows if (x["player"], x["opponent"], x["side"]) == ("main", saved_league.NEW, "second")]
    assert (row["games"], row["wins"], row["draws"], row["losses"], row["mean_return"]) == (4, 0, 1, 3, -0.75)
    assert row["low"] < row["win_rate"] == 0.125 < row["high"]


def test_elo_has_ratings_and_games(run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, "elo", f"--run_dir={run_path}")
    assert found["ratings"].keys() == found["games"].keys() == {"main", saved_league.OLD, saved_league.NEW}


@pytest.mark.parametrize("view", ["show", "payoff", "elo"])
def test_tables_are_for_people(
    view: str, run_path: pathlib.Path, capsys: pytest.CaptureFixture[str], said: golden.Said
) -> None:
    assert commands.main(["league", view, f"--run_dir={run_path}"]) == 0
    said(capsys.readouterr().out, view)


def test_a_league_without_matches_yet_is_shown(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = saved_league.counters()
    host["league"]["payoff"] = {"rows": [], "recent": []}
    path = saved_league.make(tmp_path / "run", host)
    for view, shown in (("show", "0 matches"), ("payoff", "no match has ended"), ("elo", "main")):
        assert commands.main(["league", view, f"--run_dir={path}"]) == 0
        assert shown in capsys.readouterr().out


def test_a_word_too_many_is_refused(capsys: pytest.CaptureFixture[str], said: golden.Said) -> None:
    assert commands.main(["league", "show", "main", "--run_dir=r"]) == 2
    err = capsys.readouterr().err
    assert "main" in err
    said(err)
