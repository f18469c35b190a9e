"""Matches against a policy server: the games of both agents loaded here, in turn and by seats."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import golden
import play_runs
import pytest

from seedzero.api import leagues
from seedzero.core import errors
from seedzero.evaluation import agent_choice, greedy, remote_players, scoring
from seedzero.transport import security

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "serving"))

import policy_world


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    root = tmp_path_factory.mktemp("runs")
    games = {"ttt": "spiel:tic_tac_toe", "kuhn": "spiel:kuhn_poker"}
    return {name: play_runs.make(root / name, game) for name, game in games.items()}


@pytest.fixture
def served(runs: dict[str, pathlib.Path]) -> Iterator[dict[str, policy_world.World]]:
    """Yields servers of both runs' agents, of which poker's draws its moves."""
    saved = {}
    for name, path in runs.items():
        choice = agent_choice.AgentChoice(path, "last")
        saved[name] = greedy.load(choice, *greedy.read(choice))
    with (
        policy_world.serving({"main": saved["ttt"]}, num_slots=64) as ttt,
        policy_world.serving({"main": saved["kuhn"]}, num_slots=64) as kuhn,
    ):
        yield {"ttt": ttt, "kuhn": kuhn}


def test_games_in_turn_are_those_of_two_agents_here(
    runs: dict[str, pathlib.Path], served: dict[str, policy_world.World]
) -> None:
    choice = agent_choice.AgentChoice(runs["ttt"], seed=1)
    here = scoring.against_each_other(choice, [None, None], 20)
    there = scoring.against_each_other(choice, [None, remote_players.Served(served["ttt"].address + "/main")], 20)
    assert there == here and there["versions"] == [90, 90] and served["ttt"].engine.counts.rows > 20
    found = leagues.play(choice, "RUN", (served["ttt"].address, "main"), 20)
    assert found["players"] == [served["ttt"].address, "main"] and found["wins"] == here["wins"]


def test_games_of_seats_are_played_to_their_ends(
    runs: dict[str, pathlib.Path], served: dict[str, policy_world.World]
) -> None:
    choice = agent_choice.AgentChoice(runs["kuhn"])
    found = scoring.against_each_other(choice, [remote_players.Served(served["kuhn"].address), None], 30)
    assert found["wins"] + found["losses"] == 30 and found["policy"] == "sample" and found["versions"] == [90, 90]
    assert served["kuhn"].server.num_sessions == 0


def test_another_game_and_a_stranger_are_refused(
    runs: dict[str, pathlib.Path], served: dict[str, policy_world.World], said: golden.Said
) -> None:
    choice = agent_choice.AgentChoice(runs["ttt"])
    address = served["kuhn"].address
    with pytest.raises(errors.SpecMismatch):
        scoring.against_each_other(choice, [None, remote_players.Served(address)], 2)
    secured = security.ServerSecurity("0123456789abcdef")
    saved = policy_world.agent(policy_world.MASKED, run__agent="muzero")
    with policy_world.serving({"main": saved}, secured=secured) as world:
        address = world.address
        with said.raises(errors.AccessDenied, "token", replace={address: "ADDRESS"}):
            scoring.against_each_other(choice, [None, remote_players.Served(address)], 2)
