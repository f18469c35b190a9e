"""The judge of a run: its players' mixtures, and the file for programs with OpenSpiel alone."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import golden
import numpy as np
import pytest
import saved_league

from seedzero.api import judge as judges
from seedzero.api import leagues
from seedzero.checkpoints import spec_file
from seedzero.core import errors
from seedzero.envs import spiel_seats
from seedzero.evaluation import game_tree

pyspiel = pytest.importorskip("pyspiel")

ALL = ["main", saved_league.OLD, saved_league.NEW]


@pytest.fixture(scope="module")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return saved_league.make_seats(tmp_path_factory.mktemp("judge") / "run")


def _judge(path: pathlib.Path, **given: Any) -> judges.Judgement:
    return judges.judge(path, "runs/mine", **given)


def test_a_league_has_four_mixtures(run_path: pathlib.Path) -> None:
    judged = _judge(run_path)
    found = json.loads(json.dumps(judged.to_json()))
    assert (found["update"], found["env_steps"], found["players"]) == (90, 2_500, ALL)
    assert list(found["mixtures"]) == ["equilibrium", "league", "uniform", "last"]
    assert found["nash_conv"] == found["mixtures"]["equilibrium"] > 0
    assert found["support"] == [len(seat) for seat in found["weights"]] and found["cycles"] == judged.cycles
    assert all(sum(seat.values()) == pytest.approx(1.0) and seat.keys() <= set(ALL) for seat in found["weights"])
    shares = {row["opponent"]: row["share"] for row in leagues.read(run_path, "").opponents()}
    of = {name: mixture.weights[0].tolist() for name, mixture in judged.mixtures.items()}
    assert of["league"] == [shares[name] for name in ALL] and of["league"][0] == pytest.approx(0.35)
    assert (of["uniform"], of["last"]) == ([0.0, 0.5, 0.5], [1.0, 0.0, 0.0])


def test_a_run_without_a_league_is_judged_by_its_last_iterate(tmp_path: pathlib.Path, run_path: pathlib.Path) -> None:
    host = {"num_updates": 90, "ledger": {"stored": 2_500}}
    path = saved_league.make_seats(tmp_path / "run", host=host, league__freeze_every=0)
    found = _judge(path).to_json()
    assert (
        found["nash_conv"] == found["mixtures"]["last"] == pytest.approx(_judge(run_path).mixtures["last"].nash_conv)
    )
    assert [found["mixtures"][name] for name in ("equilibrium", "league", "uniform")] == [None] * 3
    assert (found["players"], found["weights"], found["support"]) == (["main"], [{"main": 1.0}] * 2, [1, 1])
    assert (found["update"], found["env_steps"], found["cycles"]) == (90, 2_500, 0)


def test_a_checkpoint_is_judged_by_its_number(run_path: pathlib.Path) -> None:
    assert _judge(run_path, step=90).to_json() == _judge(run_path).to_json()
    with pytest.raises(errors.CheckpointError, match="no checkpoint 80 "):
        _judge(run_path, step=80)


def test_a_league_without_frozen_players_has_no_uniform_mixture(tmp_path: pathlib.Path) -> None:
    host = saved_league.counters()
    host["league"]["pool"]["members"] = host["league"]["pool"]["members"][:1]
    found = _judge(saved_league.make_seats(tmp_path / "run", host=host)).to_json()
    assert found["mixtures"]["uniform"] is None
    assert found["mixtures"]["league"] == found["mixtures"]["last"] == found["nash_conv"]


def test_the_file_is_judged_alike_by_open_spiel_alone(run_path: pathlib.Path) -> None:
    judged = _judge(run_path)
    _check(json.loads(json.dumps(judged.to_export())), judged.best.nash_conv)


def test_a_simultaneous_game_is_written_in_turn(tmp_path: pathlib.Path) -> None:
    judged = _judge(saved_league.make_seats(tmp_path / "run", "matrix_brps"))
    found = json.loads(json.dumps(judged.to_export()))
    assert found["game"] == "turn_based_simultaneous_game(game=matrix_brps())"
    _check(found, judged.best.nash_conv)


def _check(exported: Mapping[str, Any], expected: float) -> None:
    """Compares the NashConv of the file's mixture by OpenSpiel's aggregator and NashConv."""
    from open_spiel.python import policy as spiel_policies
    from open_spiel.python.algorithms import exploitability, policy_aggregator

    game = pyspiel.load_game(exported["game"])
    assert game.get_type().dynamics == pyspiel.GameType.Dynamics.SEQUENTIAL

    class OfPlayer(spiel_policies.Policy):  # type: ignore[misc]
        def __init__(self, table: Mapping[str, Mapping[str, float]]) -> None:
            super().__init__(game, [0, 1])
            self._table = table

        def action_probabilities(self, state: Any, player_id: int | None = None) -> dict[int, float]:
            seat = state.current_player() if player_id is None else player_id
            return {int(action): p for action, p in self._table[state.information_state_string(seat)].items()}

    names = list(exported["players"])
    players = [OfPlayer(exported["players"][name]) for name in names]
    weights = [[seat.get(name, 0.0) for name in names] for seat in exported["mixture"]]
    mixed = policy_aggregator.PolicyAggregator(game).aggregate([0, 1], [players, players], weights)
    assert names == ALL and exploitability.nash_conv(game, mixed) == pytest.approx(expected, abs=1e-9)


def test_a_game_with_strings_that_forget_actions_is_judged_and_not_written(
    tmp_path: pathlib.Path, said: golden.Said
) -> None:
    path = saved_league.make_seats(tmp_path / "run", "goofspiel(num_cards=4,points_order=descending)")
    judged = _judge(path)
    assert judged.best.nash_conv > 0
    with said.raises(errors.UsageError, r"goofspiel\(.*tell"):
        judged.to_export()


@pytest.mark.parametrize("env", ["catch", "spiel:tic_tac_toe", "spiel:kuhn_poker(players=3)", "spiel:pig"])
def test_games_beyond_the_judge_are_refused(env: str, said: golden.Said) -> None:
    with said.raises(errors.UsageError, "runs/mine", env):
        game_tree.game_of(env, "runs/mine")


def test_an_agent_without_a_policy_is_refused(tmp_path: pathlib.Path, said: golden.Said) -> None:
    changes = {"run__agent": "apex", "network__width": 4}
    path = saved_league.make_seats(tmp_path / "run", host={"num_updates": 90, "ledger": {"stored": 1}}, **changes)
    with said.raises(errors.UsageError, r"runs/mine .*agent apex"):
        _judge(path)


def test_a_run_with_the_spec_of_another_game_is_refused(tmp_path: pathlib.Path) -> None:
    path = saved_league.make_seats(tmp_path / "run")
    spec_file.write(path, spiel_seats.SpielSeats("leduc_poker").spec)
    with pytest.raises(errors.SpecMismatch):
        _judge(path)


def test_files_of_all_players_are_fetched(run_path: pathlib.Path) -> None:
    class Copy:
        path, calls = run_path, list[tuple[Any, ...]]()

        def fetch_params(self, *given: Any) -> None:
            self.calls.append(given)

        fetch_player = fetch_params

    copy: Any = Copy()
    judges.fetching("runs/mine", 90)(copy)
    assert copy.calls == [(90,), (saved_league.OLD, saved_league.NEW)]


def test_mixtures_of_given_players_are_judged() -> None:
    """In the biased game rock alone loses 25 to paper in each seat, and scissors 50 to rock."""
    tree = game_tree.build(pyspiel.load_game("matrix_brps"))
    pure = np.concatenate([np.ones((3, 1)), np.eye(3)], axis=1)
    judged = judges.of_players(tree, ["r", "p", "s"], (pure, pure), {"league": {"r": 1.0}, "last": {"s": 1.0}})
    found = judged.to_json()["mixtures"]
    assert found == {"equilibrium": pytest.approx(0.0, abs=1e-9), "league": 50.0, "uniform": None, "last": 100.0}
    assert judged.weights[0] == pytest.approx({"r": 1 / 16, "p": 10 / 16, "s": 5 / 16}) and judged.cycles == 1


def test_retired_players_are_left_out(tmp_path: pathlib.Path) -> None:
    host = saved_league.counters()
    host["league"]["pool"]["members"][1]["retired"] = True
    found = _judge(saved_league.make_seats(tmp_path / "run", host=host))
    assert found.names == ("main", saved_league.NEW) and found.mixtures["uniform"].weights[0].tolist() == [0.0, 1.0]
