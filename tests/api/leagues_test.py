"""The league of a run, as a checkpoint has it."""

from __future__ import annotations

import pathlib
import shutil

import golden
import pytest
import saved_league

from seedzero.api import leagues
from seedzero.core import errors


def _read(path: pathlib.Path) -> leagues.SavedLeague:
    return leagues.read(path, "runs/mine")


def test_it_is_that_of_the_newest_whole_checkpoint(tmp_path: pathlib.Path) -> None:
    path = saved_league.make(tmp_path / "run")
    steps = path / "checkpoints" / "steps"
    shutil.copytree(steps / f"{90:012d}", steps / f"{91:012d}")
    (steps / f"{91:012d}" / "manifest.json").unlink()
    league = _read(path)
    assert (league.update, league.env_steps, league.num_void) == (90, 2_500, 2)
    assert [(one.name, one.version, one.env_steps) for one in league.pool.members] == [
        ("main", 90, 2_500),  # as of the checkpoint
        (saved_league.OLD, 30, 1_000),
        (saved_league.NEW, 60, 2_000),
    ]


def test_shares_are_those_of_the_next_draws(tmp_path: pathlib.Path) -> None:
    rows = _read(saved_league.make(tmp_path / "run")).opponents()
    assert [(row["opponent"], row["active"]) for row in rows] == [
        ("main", 1),
        (saved_league.OLD, 1),
        (saved_league.NEW, 2),
    ]
    old, new = (3 + 0.5) / 4, (0.5 + 0.5) / 5  # with the prior of one match
    assert [row["recent_win_rate"] for row in rows] == [None, pytest.approx(old), pytest.approx(new)]
    assert sum(row["share"] for row in rows) == pytest.approx(1.0) and rows[0]["share"] == pytest.approx(0.35)
    assert rows[2]["share"] / rows[1]["share"] == pytest.approx((1 - new) ** 2 / (1 - old) ** 2)


def test_without_frozen_players_all_draws_are_self_play(tmp_path: pathlib.Path) -> None:
    host = saved_league.counters()
    host["league"]["pool"]["members"] = host["league"]["pool"]["members"][:1]
    (row,) = _read(saved_league.make(tmp_path / "run", host)).opponents()
    assert (row["opponent"], row["share"]) == ("main", 1.0)


def test_the_oldest_frozen_player_has_the_rating_0(tmp_path: pathlib.Path) -> None:
    ratings, games = _read(saved_league.make(tmp_path / "run")).ratings()
    assert ratings[saved_league.OLD] == 0.0 < ratings["main"] < ratings[saved_league.NEW]
    assert games == {"main": 7, saved_league.OLD: 3, saved_league.NEW: 4}  # not self-play


def test_a_run_without_league_or_checkpoint_is_refused(tmp_path: pathlib.Path, said: golden.Said) -> None:
    with pytest.raises(errors.UsageError, match=r"runs/mine .*--preset=league-tictactoe") as raised:
        _read(saved_league.make(tmp_path / "alone", {}, "tictactoe"))
    said(raised.value, "alone")
    with pytest.raises(errors.CheckpointError, match=r"runs/mine .*--checkpoint\.every_seconds=120") as failed:
        _read(saved_league.make(tmp_path / "new", {}))
    said(failed.value, "new")


def test_damaged_counters_are_named_with_their_checkpoint(tmp_path: pathlib.Path, said: golden.Said) -> None:
    host = saved_league.counters()
    host["league"]["payoff"]["rows"].pop()
    with pytest.raises(errors.CheckpointError, match=r"checkpoint 90 of runs/mine .*expected equal games") as raised:
        _read(saved_league.make(tmp_path / "run", host))
    said(raised.value)
