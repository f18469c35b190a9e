"""The history of a league."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from seedzero.monitoring import league_log
from seedzero.monitoring.metrics import counts

NAME = "main-0123456789ab"


def _log(path: pathlib.Path) -> tuple[league_log.LeagueLog, list[str]]:
    reports: list[str] = []
    return league_log.LeagueLog(path, reports.append), reports


def _rows(path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "league.jsonl").read_text().splitlines()]


def _freeze(log: league_log.LeagueLog) -> None:
    log.note({"event": "freeze", "player": NAME, "parent": "main", "version": 5, "env_steps": 100})


def test_a_decision_and_an_interval_are_a_line_each(tmp_path: pathlib.Path) -> None:
    log, reports = _log(tmp_path)
    log.count({"self_play": 3, "void": 0}, update=4, env_steps=80)
    _freeze(log)
    log.count({"self_play": 5, "past": 2, "void": 1}, update=9, env_steps=160)
    assert _rows(tmp_path) == [
        {
            "event": "matches",
            "since_update": 0,
            "update": 4,
            "env_steps": 80,
            "types": {"self_play": 3, "void": 0},
        },
        {"event": "freeze", "player": NAME, "parent": "main", "version": 5, "env_steps": 100},
        {
            "event": "matches",
            "since_update": 4,
            "update": 9,
            "env_steps": 160,
            "types": {"self_play": 2, "past": 2, "void": 1},
        },
    ]
    assert reports == []


def test_the_history_is_read_without_damaged_lines(tmp_path: pathlib.Path) -> None:
    assert league_log.read(tmp_path) == []
    log, _ = _log(tmp_path)
    _freeze(log)
    with (tmp_path / "league.jsonl").open("ab") as file:
        file.write(b'7\n\xff\n{"event": "fre')
    assert league_log.read(tmp_path) == _rows_of(NAME)


def _rows_of(name: str) -> list[dict[str, Any]]:
    return [{"event": "freeze", "player": name, "parent": "main", "version": 5, "env_steps": 100}]


def test_without_matches_or_a_league_nothing_is_written(tmp_path: pathlib.Path) -> None:
    log, _ = _log(tmp_path)
    log.count({}, update=1, env_steps=1)
    log.count({"self_play": 0}, update=1, env_steps=1)
    assert log.size_bytes() == 0
    log.truncate(0)
    assert list(tmp_path.iterdir()) == []


def test_a_resume_cuts_back_and_counts_on(tmp_path: pathlib.Path) -> None:
    """Matches of the checkpoint that stood in no line by then stand in the next one: sums of lines are the counts."""
    log, _ = _log(tmp_path)
    log.count({"self_play": 3}, update=4, env_steps=80)
    _freeze(log)
    size_bytes, saved = log.size_bytes(), {"self_play": 4}
    log.count({"self_play": 9}, update=8, env_steps=200)
    again, _ = _log(tmp_path)
    again.truncate(size_bytes)
    assert [row["event"] for row in _rows(tmp_path)] == ["matches", "freeze"]
    again.count({**saved, "past": 2}, update=6, env_steps=150)
    newest = _rows(tmp_path)[-1]
    assert (newest["since_update"], newest["types"]) == (4, {"self_play": 1, "past": 2})
    fresh, _ = _log(tmp_path)
    fresh.truncate(0)
    assert (tmp_path / "league.jsonl").read_bytes() == b""
    fresh.count({"self_play": 1}, update=1, env_steps=9)
    assert _rows(tmp_path)[0]["since_update"] == 0


@pytest.mark.parametrize(
    "rest",
    [
        '{"event": "mat',
        "[]\n",
        '{"event": "matches"}\n',
        '{"event": "matches", "types": 3}\n',
        '{"event": "matches", "update": 1e999}\n',
    ],
)
def test_damaged_lines_do_not_keep_a_run_from_its_resume(rest: str, tmp_path: pathlib.Path) -> None:
    log, _ = _log(tmp_path)
    log.count({"self_play": 3}, update=4, env_steps=80)
    with (tmp_path / "league.jsonl").open("a") as file:
        file.write(rest)
    again, _ = _log(tmp_path)
    again.truncate(1_000)
    again.count({"self_play": 4}, update=5, env_steps=90)
    last = (tmp_path / "league.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["types"] == {"self_play": 1}


def test_lines_wait_for_a_disk_that_takes_none(tmp_path: pathlib.Path) -> None:
    log, reports = _log(tmp_path / "run")
    _freeze(log)
    log.count({"past": 1}, update=9, env_steps=120)
    assert len(reports) == 1 and str(tmp_path) in reports[0]
    (tmp_path / "run").mkdir()
    log.count({"past": 2}, update=10, env_steps=130)
    assert [row["event"] for row in _rows(tmp_path / "run")] == ["freeze", "matches", "matches"]
    lost, written = reports
    assert "run/league.jsonl: No such file or directory; training continues" in lost and "written again" in written


def test_a_link_in_place_of_the_history_is_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "mine").write_text("mine\n")
    (tmp_path / "league.jsonl").symlink_to(tmp_path / "mine")
    log, reports = _log(tmp_path)
    _freeze(log)
    with pytest.raises(OSError, match="symbolic links"):
        log.truncate(0)
    assert (tmp_path / "mine").read_text() == "mine\n" and len(reports) == 1


def _snapshot(num_matches: int, num_frozen: int = 0, win_rate: float | None = None) -> counts.Snapshot:
    matches = {"self_play": num_matches, "past": 0, "void": 3}
    return counts.Snapshot(matches=matches, num_frozen=num_frozen, win_rate=win_rate)


def test_without_a_league_nothing_is_told() -> None:
    line = league_log.LeagueLine()
    assert [line.observe(now, counts.Snapshot()) for now in (0.0, 100.0)] == ["", ""]


def test_it_comes_once_a_minute_and_soon_after_a_new_frozen_player() -> None:
    line = league_log.LeagueLine()
    seen = [
        (0.0, 0, 0),
        (1.0, 5, 0),
        (60.0, 9, 0),
        (61.0, 9, 0),
        (62.0, 9, 1),
        (71.0, 9, 1),
        (75.0, 9, 2),
        (81.0, 9, 2),
    ]
    told = [now for now, matches, frozen in seen if line.observe(now, _snapshot(matches, frozen))]
    assert told == [1.0, 61.0, 71.0, 81.0]


def test_a_league_that_stands_still_is_told_once() -> None:
    line = league_log.LeagueLine()
    assert [bool(line.observe(now, _snapshot(5))) for now in (0.0, 60.0, 120.0)] == [True, False, False]


@pytest.mark.parametrize(("matches", "frozen", "rate"), [(0, 0, None), (1_234, 1, 0.5), (12, 3, 0.714)])
def test_it_has_players_matches_and_win_rate(matches: int, frozen: int, rate: float | None) -> None:
    text = league_log.line_of(_snapshot(matches, frozen, rate))
    assert f"{frozen} frozen player" in text and ("win rate" in text) == (rate is not None)
    told = {None: "none yet", 0.5: "1,234 self_play", 0.714: "12 self_play"}[rate]
    assert f"matches: {told} (3 not counted)" in text and (rate is None or f"win rate {rate:.2f} " in text)
