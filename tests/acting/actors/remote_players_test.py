"""Matches against a policy server: the games of both agents loaded here, in turn and by seats."""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
from collections.abc import Iterator

import numpy as np
import play_runs
import pytest

import seedzero
from seedzero.acting.actors import agent_choice, remote_players, saved_agents
from seedzero.acting.tables import scoring
from seedzero.api import leagues
from seedzero.cli import main as commands
from seedzero.core import errors, types
from seedzero.transport import security

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "interfaces" / "serving"))

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
        saved[name] = saved_agents.load(choice, *saved_agents.read(choice))
    with (
        policy_world.serving({"main": saved["ttt"]}, num_slots=64) as ttt,
        policy_world.serving({"main": saved["kuhn"]}, num_slots=64) as kuhn,
    ):
        yield {"ttt": ttt, "kuhn": kuhn}


def test_an_actor_without_a_turn_asks_its_server_nothing(
    runs: dict[str, pathlib.Path], served: dict[str, policy_world.World]
) -> None:
    _, spec = saved_agents.read(agent_choice.AgentChoice(runs["kuhn"]))
    with contextlib.closing(
        remote_players.RemotePlayer(remote_players.Served(served["kuhn"].address), spec)
    ) as player:
        step = types.EnvStep.first(np.zeros((3, *spec.observation_shape), np.float32))
        step = step._replace(action_mask=np.ones((3, spec.num_actions), bool), shown=np.zeros(3, bool))
        assert player.actor(3).act(step, np.ones(3, bool)).tolist() == [0, 0, 0]
    assert served["kuhn"].engine.counts.rows == 0


@pytest.mark.thorough
def test_games_with_a_server_are_those_with_the_run(
    runs: dict[str, pathlib.Path], served: dict[str, policy_world.World]
) -> None:
    for name, path in runs.items():
        choice, address = agent_choice.AgentChoice(path, "last", seed=1), f"{served[name].address}/main"
        here = scoring.evaluate(choice, 12, str(path))
        there = scoring.evaluate(choice, 12, remote_players.Served(address))
        assert (here.pop("opponent"), there.pop("opponent")) == (str(path), address)
        assert there == here if name == "ttt" else there["episodes"] == 12 and there["policy"] == "sample"
        assert served[name].engine.counts.rows >= 12 and served[name].server.num_sessions == 0
    assert seedzero.evaluate(runs["ttt"], 2, opponent=served["ttt"].address).opponent == served["ttt"].address
    choice, names = agent_choice.AgentChoice(runs["ttt"], seed=1), ("main", served["ttt"].address)
    here, there = (leagues.play(choice, "RUN", (one, "main"), 12) for one in names)
    assert (here.pop("players"), there.pop("players")) == (["main", "main"], [served["ttt"].address, "main"])
    assert there == here and there["versions"] == [90, 90]


@pytest.mark.thorough
def test_a_token_is_given_to_the_opponent_s_server(
    runs: dict[str, pathlib.Path], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("0123456789abcdef")
    choice = agent_choice.AgentChoice(runs["ttt"], "last")
    saved = saved_agents.load(choice, *saved_agents.read(choice))
    with policy_world.serving({"main": saved}, secured=security.ServerSecurity("0123456789abcdef")) as world:
        flags = ["evaluate", str(runs["ttt"]), "--episodes=2", f"--opponent={world.address}"]
        assert commands.main([*flags, f"--token_file={tmp_path / 'token'}"]) == 0
        assert json.loads(capsys.readouterr().out)["opponent"] == world.address
        assert commands.main(flags) == 1
        assert "this server needs a token" in capsys.readouterr().err


def test_another_game_and_a_stranger_are_refused(
    runs: dict[str, pathlib.Path], served: dict[str, policy_world.World]
) -> None:
    choice = agent_choice.AgentChoice(runs["ttt"])
    address = served["kuhn"].address
    with pytest.raises(errors.SpecMismatch):
        scoring.against_each_other(choice, [None, remote_players.Served(address)], 2)
    secured = security.ServerSecurity("0123456789abcdef")
    saved = policy_world.agent(policy_world.MASKED, run__agent="muzero")
    with policy_world.serving({"main": saved}, secured=secured) as world:
        address = world.address
        with pytest.raises(errors.AccessDenied, match=r"token.*--token_file=FILE"):
            scoring.against_each_other(choice, [None, remote_players.Served(address)], 2)
