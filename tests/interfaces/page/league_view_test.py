"""The league's parts for the page, by hand and from a saved run."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import page_runs
import pytest
import saved_league

from seedzero.api import leagues
from seedzero.config import league_config
from seedzero.core import errors
from seedzero.interfaces.page import league_view
from seedzero.league import members, payoffs

LINES: list[dict[str, Any]] = [
    {"event": "freeze", "player": "main-a", "version": 3, "env_steps": 10},
    {"event": "matches", "since_update": 0, "update": 5, "env_steps": 20, "types": {"past": 3, "void": 0}},
    {"event": "judged", "env_steps": 20, "nash_conv": 0.5},
    {"event": "matches", "since_update": 5, "update": 9, "env_steps": 40, "types": {"past": 1, "self_play": 2}},
    {"event": "judged", "env_steps": 40, "nash_conv": 0.1, "mixtures": {"equilibrium": 0.1, "last": 0.7}},
    {"event": "judged", "env_steps": "x", "nash_conv": 0.1},
]


def test_lines_are_sorted_by_their_kind() -> None:
    assert league_view.decisions(LINES) == LINES[:1]
    assert league_view.judged(LINES) == {
        "NashConv": [[20], [0.5]],
        "equilibrium": [[40], [0.1]],
        "last": [[40], [0.7]],
    }
    assert league_view.matches(LINES) == {"x": [20, 40], "past": [3, 1], "self_play": [0, 2]}


def test_a_large_table_keeps_learners_and_frozen_players_of_equal_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(league_view, "MAX_PLAYERS", 4)
    names = ["a", "b", "main", "c", "d", "e"]
    assert league_view.chosen(names, ["main"]) == ["main", "a", "c", "e"]
    monkeypatch.setattr(league_view, "MAX_PLAYERS", 6)
    assert league_view.chosen(names, ["main"]) == ["main", "a", "b", "c", "d", "e"]
    monkeypatch.setattr(league_view, "MAX_PLAYERS", 1)
    assert league_view.chosen(names, ["main", "a"]) == ["a"]


def test_four_times_the_players_take_four_times_the_work() -> None:
    few, many = (_num_calls(_league_of(number)) for number in (200, 800))
    assert many < 6 * few


def test_mean_returns_are_shown_where_they_are_the_scores_of_matches() -> None:
    league = _league_of(2)
    assert "shares" not in league_view.view(league)["win_rates"]
    found = league_view.view(league._replace(settings=league_config.LeagueConfig(score="return")))["win_rates"]
    assert found["returns"][0] == [None, 0.0, 0.0] and found["shares"] == [
        [None, 0.5, 0.5],
        [0.5, None, None],
        [0.5, None, None],
    ]


def _league_of(number: int) -> leagues.SavedLeague:
    """Returns a league in which main met each of many frozen players."""
    frozen = [members.Member(f"main-{place:x}", "frozen", False, parent="main") for place in range(number)]
    rows = {payoffs.Key("past", "main", one.name, 0): payoffs.Tally(wins=1) for one in frozen}
    rows |= {payoffs.Key("past", key.opponent, "main", 1): payoffs.Tally(losses=1) for key, row in rows.items()}
    pool = members.Pool((*members.Pool().members, *frozen), number)
    return leagues.SavedLeague(1, 1, league_config.LeagueConfig(), pool, payoffs.Payoff(rows), {}, 0)


def _num_calls(league: leagues.SavedLeague) -> int:
    """Returns the number of calls of Python's functions that a view takes."""
    league_view.view(league)  # imports
    number = 0

    def count(*_: object) -> None:
        nonlocal number
        number += 1

    sys.setprofile(count)
    try:
        found = league_view.view(league)
    finally:
        sys.setprofile(None)
    assert len(found["ratings"]) == len(league.pool.members)
    assert len(found["win_rates"]["rates"]) == league_view.MAX_PLAYERS
    return number


@pytest.mark.parametrize(
    "content",
    [{}, {"mixtures": []}, {"mixtures": {"last": "x"}, "update": 3}, {"mixtures": {"last": 1.5}, "update": "x"}],
)
def test_a_judgement_of_another_hand_is_none(content: dict[str, Any]) -> None:
    assert league_view.nash(content) is None


def test_the_judges_numbers_are_shown_beside_the_ratings(tmp_path: pathlib.Path) -> None:
    path = saved_league.make(tmp_path / "run")
    found = league_view.read(path, "run")
    assert found["nash"] is None and not found["has_seats"]
    (path / "nash.json").write_text(
        '{"update": 30, "env_steps": 9, "mixtures": {"equilibrium": 0.25, "league": null}}'
    )
    (path / "spec.json").write_text('{"seats": ["one", "two"]}')
    found = league_view.read(path, "run")
    assert found["nash"] == {"update": 30, "mixtures": {"equilibrium": 0.25}} and found["has_seats"]


def test_a_saved_league_is_read(tmp_path: pathlib.Path) -> None:
    path = saved_league.make(tmp_path / "run")
    (path / "league.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES) + '{"event": "fre')
    found = league_view.read(path, "run")
    assert found["win_rates"]["names"] == ["main", saved_league.OLD, saved_league.NEW]
    assert found["win_rates"]["games"][0] == [0, 3, 4] and found["win_rates"]["rates"][0][1:] == [1.0, 0.125]
    assert found["ratings"].keys() == found["games"].keys() == {"main", saved_league.OLD, saved_league.NEW}
    assert [event["player"] for event in found["lineage"][0]["events"]] == [saved_league.OLD, saved_league.NEW]
    assert (found["update"], found["env_steps"], found["decisions"]) == (90, 2_500, LINES[:1])


def test_without_a_checkpoint_the_history_remains(tmp_path: pathlib.Path) -> None:
    path = saved_league.make(tmp_path / "run", {})
    (path / "league.jsonl").write_text(json.dumps(LINES[0]) + "\n")
    found = league_view.read(path, "run")
    assert "no checkpoint" in found["error"] and found["decisions"] == LINES[:1]


def test_other_runs_and_links_are_refused(tmp_path: pathlib.Path) -> None:
    path = page_runs.write(tmp_path / "one")
    with pytest.raises(errors.UsageError):
        league_view.read(path, "one")
    (tmp_path / "secret").write_text('{"event": "secret"}\n')
    (path / "league.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(errors.ResumeError, match=r"league\.jsonl"):
        league_view.read(path, "one")
