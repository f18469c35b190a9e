"""The league of a run, as a checkpoint has it."""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Any

import jax
import numpy as np
import pytest
import saved_league

import seedzero
from seedzero.acting.actors import agent_choice
from seedzero.agents import agent_table
from seedzero.api import leagues, runs
from seedzero.config import configs
from seedzero.core import errors
from seedzero.envs import spiel
from seedzero.league import members, payoffs
from seedzero.storage.checkpoints import player_files, run_dirs


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
    three, four = sum(0.99**age for age in range(3)), sum(0.99**age for age in range(4))
    old, new = (three + 0.5) / (three + 1), (0.99**3 * 0.5 + 0.5) / (four + 1)  # a draw, then three losses
    assert [row["recent_win_rate"] for row in rows] == [None, pytest.approx(old), pytest.approx(new)]
    assert sum(row["share"] for row in rows) == pytest.approx(1.0) and rows[0]["share"] == pytest.approx(0.35)
    assert rows[2]["share"] / rows[1]["share"] == pytest.approx((1 - new) ** 2 / (1 - old) ** 2)


def test_each_learning_player_has_opponents_drawn_for_itself(tmp_path: pathlib.Path) -> None:
    counters, name = saved_league.made_counters(), "main_exploiter_0"
    exploiter = members.Member(name, members.MAIN_EXPLOITER, learns=True, line=members.MAIN_EXPLOITER, number=1)
    counters["league"]["pool"]["members"].insert(1, exploiter.to_json())
    counters["league"]["homes"] = [
        {"name": "main", "active": counters["league"]["active"]},
        {"name": name, "active": ["main"]},
    ]
    league = _read(saved_league.make(tmp_path / "run", counters))
    assert {row["opponent"]: row["active"] for row in league.opponents(name) if row["active"]} == {"main": 1}
    assert sum(row["active"] for row in league.opponents()) == len(league.active["main"]) == 4


def test_without_frozen_players_all_draws_are_self_play(tmp_path: pathlib.Path) -> None:
    counters = saved_league.made_counters()
    counters["league"]["pool"]["members"] = counters["league"]["pool"]["members"][:1]
    (row,) = _read(saved_league.make(tmp_path / "run", counters)).opponents()
    assert (row["opponent"], row["share"]) == ("main", 1.0)


def test_the_oldest_frozen_player_has_the_rating_0(tmp_path: pathlib.Path) -> None:
    ratings, games = _read(saved_league.make(tmp_path / "run")).ratings()
    assert ratings[saved_league.OLD] == 0.0 < ratings["main"] < ratings[saved_league.NEW]
    assert games == {"main": 7, saved_league.OLD: 3, saved_league.NEW: 4}  # not self-play


def test_a_run_without_league_or_checkpoint_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.UsageError, match=r"runs/mine .*--preset=league-tictactoe"):
        _read(saved_league.make(tmp_path / "alone", {}, "tictactoe"))
    with pytest.raises(errors.CheckpointError, match=r"runs/mine .*--checkpoint\.every_seconds=120"):
        _read(saved_league.make(tmp_path / "new", {}))


def test_damaged_counters_are_named_with_their_checkpoint(tmp_path: pathlib.Path) -> None:
    counters = saved_league.made_counters()
    counters["league"]["payoff"]["rows"].pop()
    with pytest.raises(errors.CheckpointError, match=r"checkpoint 90 of runs/mine .*expected equal games"):
        _read(saved_league.make(tmp_path / "run", counters))


def test_a_single_player_on_one_of_several_devices_is_shown_before_others_come(tmp_path: pathlib.Path) -> None:
    counters = {**saved_league.made_counters(), "places": [2, 1], "place": 0}
    assert _read(saved_league.make(tmp_path / "run", counters)).devices == {"main": (0, 1)}


@pytest.fixture(scope="module")
def playable(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run of tic-tac-toe; its frozen player OLD has main's parameters, NEW other ones."""
    game = spiel.Game("tic_tac_toe")

    def params(config: configs.Config, seed: int = 0) -> Any:
        agent, random = agent_table.make(config, game.spec, "cpu"), np.random.default_rng(seed)
        shapes = jax.eval_shape(lambda: agent.acting(agent.init(jax.random.key(0))))
        return jax.tree.map(lambda x: random.normal(size=x.shape).astype(x.dtype), shapes)

    small = dict(network__width=8, network__head_width=8, search__num_simulations=2)
    path = saved_league.make(tmp_path_factory.mktemp("playable") / "run", params=params, **small)
    config = run_dirs.read_saved(path).config
    run_dirs.write_spec(path, game.spec)
    for seed, name in enumerate((saved_league.OLD, saved_league.NEW)):
        player_files.write(path / "checkpoints", name, 30, params(config, seed), {}, time=0.0)
    return path


@pytest.mark.thorough
def test_players_of_the_run_meet_in_matches(playable: pathlib.Path) -> None:
    same = leagues.play(agent_choice.AgentChoice(playable), "runs/mine", ("main", saved_league.OLD), 20)
    assert (same["score"], same["games"], same["versions"]) == (0.5, 20, [90, 30])  # each pair's games are mirrored
    assert same["wins"] == same["losses"] and same["low"] < 0.5 < same["high"]
    one = leagues.play(agent_choice.AgentChoice(playable, seed=1), "runs/mine", (saved_league.NEW, "main"), 20)
    other = leagues.play(agent_choice.AgentChoice(playable, seed=1), "runs/mine", ("main", saved_league.NEW), 20)
    assert one["score"] == pytest.approx(1 - other["score"]) and one["first"]["wins"] == other["second"]["losses"]


@pytest.mark.thorough
def test_players_meet_opponents_that_are_none_of_the_league(playable: pathlib.Path) -> None:
    choice = agent_choice.AgentChoice(playable)
    found = leagues.play(choice, "runs/mine", ("main", "mcts-200"), 20)
    assert found["games"] == 20 and found["score"] < 0.5 and found["versions"] == [90, None]
    again = leagues.play(choice, "runs/mine", ("mcts-200", "main"), 20)
    assert again["score"] > 0.5 and again["versions"] == [None, 90]


def test_a_player_that_the_league_has_not_is_named(playable: pathlib.Path) -> None:
    with pytest.raises(errors.UsageError, match=r"'nobody'; there are main, main-0.*`seedzero league show`"):
        leagues.play(agent_choice.AgentChoice(playable), "runs/mine", ("main", "nobody"), 20)


@pytest.mark.thorough
def test_a_frozen_player_is_loaded_and_scored_by_its_name(playable: pathlib.Path, tmp_path: pathlib.Path) -> None:
    policies = [seedzero.load(playable, player=name) for name in ("main", saved_league.OLD, saved_league.NEW)]
    assert [policy.step for policy in policies] == [90, 30, 30]
    leaves = [jax.tree.leaves(policy._saved.params) for policy in policies]
    assert all(np.array_equal(one, other) for one, other in zip(leaves[0], leaves[1], strict=True))
    assert not all(np.array_equal(one, other) for one, other in zip(leaves[0], leaves[2], strict=True))
    scored = seedzero.evaluate(playable, 4, player=saved_league.NEW)
    assert (scored.player, scored.step, scored.chosen) == (saved_league.NEW, 30, "given")
    assert seedzero.evaluate(playable, 4, player="main").player is None
    exported = seedzero.export(playable, tmp_path / "out", player=saved_league.NEW)
    assert (exported["player"], exported["step"]) == (saved_league.NEW, 30)
    with pytest.raises(errors.CheckpointError, match=rf"main-00 .*{saved_league.OLD}"):
        seedzero.evaluate(playable, 4, player="main-00")


def test_a_step_beside_a_frozen_player_is_refused() -> None:
    assert runs.checked_player("main", "best") is None and runs.checked_player("main-0", None) == "main-0"
    for player, told in (
        ("main-0", "step=7 and player=main-0: .*omit one"),
        ("", "player= is empty; .*seedzero league show"),
    ):
        with pytest.raises(errors.UsageError, match=told):
            runs.checked_player(player, 7)


def test_win_rates_count_both_sides_of_all_matches_between_two_players(tmp_path: pathlib.Path) -> None:
    found = _read(saved_league.make(tmp_path / "run")).win_rates()
    assert found.names == ["main", saved_league.OLD, saved_league.NEW]
    assert found.rates == [[None, 1.0, 0.125], [0.0, None, None], [0.875, None, None]]
    assert found.games == [[0, 3, 4], [3, 0, 0], [4, 0, 0]]
    assert found.returns == [[None, 1.0, -0.75], [-1.0, None, None], [0.75, None, None]]
    assert found.returns == [[None, 1.0, -0.75], [-1.0, None, None], [0.75, None, None]]


def test_all_of_a_league_is_one_object(tmp_path: pathlib.Path) -> None:
    league = _read(saved_league.make(tmp_path / "run"))
    found = json.loads(json.dumps(league.to_json()))
    assert (found["update"], found["env_steps"], found["void"]) == (90, 2_500, 2)
    assert found["settings"]["freeze_every"] == 10_000
    assert [player["name"] for player in found["players"]] == found["win_rates"]["names"]
    assert [event["player"] for event in found["lineage"][0]["events"]] == [saved_league.OLD, saved_league.NEW]
    assert found["opponents"]["main"] == league.opponents() and found["payoff"] == league.payoff.table()
    assert found["ratings"].keys() == found["games"].keys()


def test_a_scripted_member_has_results_and_no_parameters(tmp_path: pathlib.Path) -> None:
    counters = saved_league.made_counters()
    counters["league"]["pool"]["members"].append(members.Member("mcts-50", "scripted", learns=False).to_json())
    match = payoffs.Match("scripted", "main", "mcts-50", 0, payoffs.LOSS, -1.0)
    payoff = payoffs.record(payoffs.Payoff.from_json(counters["league"]["payoff"]), [match] * 8)
    counters["league"]["payoff"] = payoff.to_json()
    path = saved_league.make(tmp_path / "run", counters)
    league = _read(path)
    assert league.ratings()[0]["mcts-50"] > league.ratings()[0]["main"] and league.ratings()[1]["mcts-50"] == 8
    assert league.to_json()["types"]["scripted"] == 8
    assert {row["opponent"]: row["share"] for row in league.opponents()}["mcts-50"] > 0.2
    rated, games = league.rated({"mcts-50": 100.0})
    assert rated["mcts-50"] == (100.0, 0.0) and rated["main"].points < 0 < rated["main"].stderr
    assert games["mcts-50"] == 8
    with pytest.raises(errors.UsageError, match=r"--anchors.*mcts-60.*\b50\b"):
        league.rated({"mcts-60": 0.0})
    counters["league"]["pool"]["members"].append(members.Member("spiel:bot", "scripted", learns=False).to_json())
    with pytest.raises(errors.UsageError, match=r"spiel:bot.*`seedzero league payoff`"):
        other = saved_league.make(tmp_path / "other", counters)
        leagues.play(agent_choice.AgentChoice(other), "runs/mine", ("main", "spiel:bot"), 20)
    with pytest.raises(errors.UsageError, match=r"mcts-50.*`seedzero evaluate --opponent=mcts-100`"):
        seedzero.load(path, player="mcts-50")
