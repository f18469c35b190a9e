"""The approximate judge of a run: its mixtures, refusals and results."""

from __future__ import annotations

import json
import pathlib

import golden
import pytest
import saved_league

from seedzero.api import approximation, exploitability
from seedzero.core import errors
from seedzero.league import members

pytest.importorskip("pyspiel")


def test_it_judges_a_mixture_of_a_game_whose_returns_do_not_sum_to_zero(
    tmp_path: pathlib.Path, said: golden.Said
) -> None:
    path = saved_league.make_seats(tmp_path / "run", "matrix_pd")
    found = approximation.judge(path, "runs/mine", mixture="uniform", num_moves=2_000, num_games=400)
    exact = exploitability.judge(path, "runs/mine").mixtures["uniform"].nash_conv
    assert (found.update, found.mixture) == (90, "uniform") and found.num_moves >= 2_000 and found.own is not None
    assert abs(found.nash_conv - exact) < 4 * found.stderr  # one move: the response is the best one
    shown = json.loads(json.dumps(found.to_json()))
    assert shown["nash_conv_at_least"] == found.nash_conv and shown["own"]["first"]["num_games"] >= 200
    with said.raises(errors.UsageError, "no mixture uniform"):
        counters = {"num_updates": 90, "ledger": {"stored": 2_500}}
        alone = saved_league.make_seats(tmp_path / "alone", counters=counters, league__freeze_every=0)
        approximation.judge(alone, "runs/alone", mixture="uniform")


def test_scripted_members_are_left_out_of_the_mixture_of_a_league(tmp_path: pathlib.Path) -> None:
    counters = saved_league.made_counters()
    counters["league"]["pool"]["members"].append(members.Member("random", members.SCRIPTED, learns=False).to_json())
    path = saved_league.make_seats(tmp_path / "run", "matrix_pd", counters)
    found = approximation.judge(path, "runs/mine", mixture="league", num_moves=4, num_games=4)
    assert found.mixture == "league" and found.num_moves >= 4


def test_a_league_of_scripted_members_alone_has_no_mixture(tmp_path: pathlib.Path) -> None:
    counters = saved_league.made_counters()
    pool = counters["league"]["pool"]
    pool["members"] = [member for member in pool["members"] if member["name"] == members.MAIN]
    pool["members"].append(members.Member("random", members.SCRIPTED, learns=False).to_json())
    path = saved_league.make_seats(tmp_path / "run", "matrix_pd", counters, league__self_play=0.0)
    with pytest.raises(errors.UsageError, match="no mixture league"):
        approximation.judge(path, "runs/mine", mixture="league", num_moves=4, num_games=4)
