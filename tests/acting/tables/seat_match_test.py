"""Games of two seats between saved agents: both chairs, drawn moves, memory."""

from __future__ import annotations

import pathlib

import jax
import numpy as np
import pytest
import saved_league

import seedzero
from seedzero.acting.actors import agent_choice, saved_actors, saved_agents
from seedzero.api import exploitability, leagues
from seedzero.core import errors, types
from seedzero.envs import spiel_seats
from seedzero.storage.checkpoints import run_dirs

pytest.importorskip("pyspiel")
LEAST = 0.02
"""Least standard error of a mean return that is compared: exact values need not be hit better."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("game", "lstm_width"),
    [("kuhn_poker", 0), ("matrix_brps", 0), ("kuhn_poker", 4)],
    ids=["chance", "moves at the same time", "memory"],
)
def test_the_mean_return_is_the_exact_one(game: str, lstm_width: int, tmp_path: pathlib.Path) -> None:
    path = saved_league.make_seats(tmp_path / "run", game, network__lstm_width=lstm_width)
    names = (saved_league.OLD, saved_league.NEW)
    found = leagues.play(agent_choice.AgentChoice(path), "runs/mine", names, 1_000)
    judged = exploitability.judge(path, "runs/mine")
    old, new = (judged.names.index(name) for name in names)
    exact = (judged.returns[old, new] - judged.returns[new, old]) / 2  # each sits in the first chair in half of them
    assert abs(found["mean_return"] - exact) < 4 * max(LEAST, found["stderr_return"])
    assert (found["policy"], found["games"], found["versions"]) == ("sample", 1_000, [30, 60])
    assert sum(found["first"].values()) == sum(found["second"].values()) == 500
    one, again = (leagues.play(agent_choice.AgentChoice(path, seed=1), "runs/mine", names, 10) for _ in range(2))
    assert one == again


def test_a_seat_without_a_turn_remembers_what_it_saw(tmp_path: pathlib.Path) -> None:
    path = saved_league.make_seats(tmp_path / "run", network__lstm_width=4)
    spec = spiel_seats.SpielSeats("kuhn_poker").spec
    saved = saved_agents.load(agent_choice.AgentChoice(path, "last"), run_dirs.read_saved(path).config, spec)
    player, none = saved_actors.SavedActor(saved, 2, seed=0), np.zeros(2, bool)
    frames, mask = np.ones((2, *spec.observation_shape), np.float32), np.ones((2, spec.num_actions), bool)
    for shown in ([True, True], [True, False]):
        before = [np.asarray(leaf) for leaf in jax.tree.leaves(player.memory)]
        player.act(types.EnvStep(frames, np.ones(2, np.float32), none, none, mask, shown=np.array(shown)), none)
        changed = [np.asarray(leaf) != old for leaf, old in zip(jax.tree.leaves(player.memory), before, strict=True)]
        assert np.any([leaf.reshape(2, -1).any(axis=1) for leaf in changed], axis=0).tolist() == shown


@pytest.mark.thorough
def test_another_run_of_the_game_and_a_frozen_player_are_opponents(tmp_path: pathlib.Path) -> None:
    mine, other = (saved_league.make_seats(tmp_path / name) for name in ("mine", "other"))
    found = seedzero.evaluate(mine, 30, opponent=other, player=saved_league.NEW).to_json()
    assert (found["player"], found["opponent"], found["policy"]) == (saved_league.NEW, str(other), "sample")
    assert found["wins"] + found["draws"] + found["losses"] == 30 and found["stderr_return"] > 0
    greedy = seedzero.evaluate(mine, 30, opponent=other, policy="greedy").to_json()
    assert "policy" not in greedy and np.isfinite(greedy["mean_return"])
    against_random = [seedzero.evaluate(mine, 30, opponent=given).mean_return for given in (None, "random")]
    assert against_random[0] == against_random[1]
    assert seedzero.evaluate(mine, 5, player=saved_league.NEW).player == saved_league.NEW


@pytest.mark.parametrize("opponent", ["mcts-20", "exhaustive"])
def test_opponents_that_see_everything_are_refused(opponent: str, tmp_path: pathlib.Path) -> None:
    mine = saved_league.make_seats(tmp_path / "mine")
    with pytest.raises(errors.UsageError, match=f"--opponent={opponent}: .*--opponent=RUN_DIR"):
        seedzero.evaluate(mine, 5, opponent=opponent)


def test_only_two_seats_make_a_match(tmp_path: pathlib.Path) -> None:
    mine = saved_league.make_seats(
        tmp_path / "mine", "kuhn_poker(players=3)", worker__envs_per_group=6, league__freeze_every=0
    )
    with pytest.raises(errors.UsageError, match="not trained in a game of two players"):
        seedzero.evaluate(mine, 5, opponent=mine)


def test_a_win_is_the_larger_return_where_they_do_not_sum_to_zero(tmp_path: pathlib.Path) -> None:
    """Nobody loses by the sign of a return in the prisoner's dilemma, which pays from 0 to 10."""
    path = saved_league.make_seats(tmp_path / "run", "matrix_pd")
    found = leagues.play(agent_choice.AgentChoice(path), "runs/mine", ("main", saved_league.OLD), 200)
    assert found["wins"] > 0 and found["losses"] > 0 and found["wins"] + found["draws"] + found["losses"] == 200
    # A win pays 10, a loss 0, a draw 5 or 1.
    assert 10 * found["wins"] + found["draws"] <= 200 * found["mean_return"] <= 10 * found["wins"] + 5 * found["draws"]
