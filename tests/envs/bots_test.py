"""Opponents of games: random moves, and a bot that searches."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from seedzero.core import errors
from seedzero.envs import bots, registry, spiel

GAME = spiel.Game("tic_tac_toe")


def _after(*actions: int) -> spiel.State:
    state = GAME.initial()
    for action in actions:
        state = GAME.apply(state, action)
    return state


def _moves(name: str, state: spiel.State, *, seed: int = 0, number: int = 40) -> list[int]:
    bot = bots.make(name, np.random.default_rng(seed))
    return [bot(state) for _ in range(number)]


def test_random_moves_are_all_the_legal_ones() -> None:
    assert set(_moves("random", _after(0, 4, 8))) == {1, 2, 3, 5, 6, 7}


@pytest.mark.parametrize(
    ("actions", "best"),
    [((0, 3, 1, 4), 2), ((0, 4, 1), 2)],  # its own line of three, and the other's
)
def test_a_bot_sees_a_line_of_three(actions: tuple[int, ...], best: int) -> None:
    assert set(_moves("mcts-200", _after(*actions))) == {best}


@pytest.mark.parametrize("num_moves", [0, 1])
def test_a_bot_plays_games_in_python(num_moves: int) -> None:
    game = spiel.Game("python_tic_tac_toe")
    state = game.initial()
    for action in (0, 3, 1, 4)[: 4 * num_moves]:
        state = game.apply(state, action)
    moves = _moves("mcts-60", state, number=3)
    assert moves == _moves("mcts-60", state, number=3) and (not num_moves or set(moves) == {2})


def test_moves_follow_the_seed() -> None:
    assert _moves("mcts-5", _after(0), seed=1) == _moves("mcts-5", _after(0), seed=1)
    assert _moves("mcts-5", _after(0), seed=1) != _moves("mcts-5", _after(0), seed=2)


def test_more_simulations_play_better() -> None:
    """Returns of the stronger bot, which moves second, over 60 games of each pair."""
    totals = []
    for weak, strong in (("random", "mcts-50"), ("mcts-5", "mcts-200")):
        one, other = (bots.make(name, np.random.default_rng(3)) for name in (weak, strong))
        total = 0.0
        for _ in range(60):
            state, movers = GAME.initial(), [one, other]
            while not GAME.is_terminal(state):
                state = GAME.apply(state, movers[GAME.mover(state)](state))
            total += GAME.returns(state)[1]
        totals.append(total / 60)
    assert totals[0] > 0.4 and totals[1] > 0.1


def _play(members: bots.Members, names: tuple[str, str], *, number: int = 0, game: spiel.Game = GAME) -> list[int]:
    """Returns the moves of a match between two bots."""
    members.begin(number)
    state, moves = game.initial(), list[int]()
    while not game.is_terminal(state):
        player = game.mover(state)
        moves.append(members.move(names[player], state, player))
        state = game.apply(state, moves[-1])
    return moves


@pytest.mark.parametrize("name", ["mcts-5", "spiel:uniform_random", "own_bots:clever"])
def test_a_league_s_bot_plays_equal_matches_for_equal_seeds_and_matches(name: str) -> None:
    def first_moves(seed: int) -> list[list[int]]:
        members = bots.Members(seed)
        return [_play(members, (name, name), number=number) for number in range(6)]

    found = first_moves(3)
    assert found == first_moves(3) != first_moves(4)
    assert len(set(map(tuple, found))) > 1, "matches of one game differ"
    assert _play(bots.Members(3), (name, name), number=5) == found[5], "whatever was played before"


def test_a_bot_of_openspiel_takes_its_parameters() -> None:
    name = "spiel:fixed_action_preference(actions=4:0:1:2:3:5:6:7:8)"
    assert _play(bots.Members(0), (name, name))[:3] == [4, 0, 1]


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("own_bots:illegal", r"chose 9; expected a legal action, one of \[0, 1,"),
        ("own_bots:nothing", "chose None"),
        ("own_bots:fails", r"raised: KeyError: 'move' \(envs/own_bots.py, line \d+, in fails\)"),
    ],
)
def test_a_bot_that_fails_is_named(name: str, named: str) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=named):
        bots.Members(0).move(name, GAME.initial(), 0)


def test_a_user_s_bot_cannot_change_the_game() -> None:
    state = GAME.initial()
    bots.Members(0).move("own_bots:moves_on", state, 0)
    assert state.move_number() == 0


def test_modules_of_bots_are_imported_before_the_first_match() -> None:
    bots.check_members(("mcts-5", "own_bots:clever", "spiel:uniform_random"))
    with pytest.raises(errors.EnvironmentFailure, match=r"'own_bots:cleverer'.*'own_bots'.*'cleverer'"):
        bots.check_members(("own_bots:cleverer",))


@pytest.mark.parametrize(
    ("name", "game"),
    [
        ("spiel:nobody", "tic_tac_toe"),
        ("mcts-9", "kuhn_poker"),
        ("mcts-9", "matrix_rps"),
    ],
)
def test_a_bot_that_does_not_play_a_game_is_named_with_a_way_out(name: str, game: str) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=f"{name}.*'{game}'"):
        bots.check_plays(name, spiel.load(game))
    with pytest.raises(errors.EnvironmentFailure):
        bots.Members(0).move(name, spiel.load(game).new_initial_state(), 0)
    with pytest.raises(errors.ConfigError, match=rf"--league\.members: .*{name}"):
        registry.check_bots(f"spiel:{game}", ("own_bots:clever", name))


def test_the_package_of_a_bot_is_asked_for_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.check_bots("pgx:hex", ("mcts-9", "own_bots:clever"))
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    registry.check_bots("pgx:hex", ("own_bots:clever",))
    with pytest.raises(errors.ConfigError, match=r"--league\.members: .*mcts-9.*open_spiel"):
        registry.check_bots("pgx:hex", ("own_bots:clever", "mcts-9"))


@pytest.mark.parametrize(("name", "game"), [("mcts-9", "connect_four"), ("spiel:uniform_random", "matrix_rps")])
def test_other_bots_play(name: str, game: str) -> None:
    registry.check_bots(f"spiel:{game}", (name,))
