"""Trees of OpenSpiel's games in sequence form."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.acting.equilibria import game_tree
from seedzero.core import errors

pyspiel = pytest.importorskip("pyspiel")


def test_kuhn_poker_has_its_known_size_and_order() -> None:
    tree = game_tree.build(pyspiel.load_game("kuhn_poker"))
    assert (tree.text, tree.num_histories) == ("kuhn_poker()", 58) and tree.has_own_strings
    for seat in tree.seats:
        assert len(seat.names) == 6 and seat.num_sequences == 13
        places = np.searchsorted(seat.begins, seat.parents, side="right") - 1
        assert all(place < own for own, place in enumerate(places))  # earlier states first
    first, _ = tree.seats
    later = first.names.index("0pb")
    assert first.parents[later] == first.begins[first.names.index("0")]  # behind the pass


def test_limits_are_told_with_the_number_of_histories() -> None:
    game = pyspiel.load_game("kuhn_poker")
    assert game_tree.build(game, max_histories=58).num_histories == 58
    with pytest.raises(errors.UsageError, match=r"more than 57 histories.* at most 57; .*large_games\.py"):
        game_tree.build(game, max_histories=57)


@pytest.mark.parametrize(
    ("name", "number"), [("kuhn_poker", 58), ("leduc_poker", 9_457), ("liars_dice", 294_883), ("phantom_ttt", 2e10)]
)
def test_the_number_of_histories_is_estimated_at_once(name: str, number: float) -> None:
    """The last one by dynamic programming over stones and known cells: 19,934,533,171."""
    assert number / 2 < game_tree.estimated_histories(pyspiel.load_game(name)) < 2 * number


def test_a_game_that_is_much_too_large_is_refused_before_a_walk() -> None:
    game = pyspiel.load_game("phantom_ttt")
    assert not game_tree.is_small(game) and game_tree.is_small(pyspiel.load_game("liars_dice"))
    with pytest.raises(errors.UsageError, match=r"too large .*about 1\.\de\+10.*large_games.py"):
        game_tree.build(game)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("spiel:leduc_poker", True),
        ("spiel:matrix_pd", True),
        ("spiel:phantom_ttt", False),  # too large
        ("spiel:pig", False),  # without strings of information states
        ("spiel:mine:poker", False),  # not imported
        ("spiel:tic_tac_toe", False),
        ("spiel:kuhn_poker(players=3)", False),
        ("python:mine:make", False),
        ("catch", False),
    ],
)
def test_environments_in_which_the_judge_works_are_known_without_users_code(env: str, expected: bool) -> None:
    assert game_tree.can_judge(env) is expected


def test_states_of_simultaneous_games_are_the_environment_s_own() -> None:
    tree = game_tree.build(pyspiel.load_game("matrix_brps"))
    for number, seat in enumerate(tree.seats):
        assert seat.names == (f"Current player: {number}\nObserving player: {number}. Non-terminal",)
        assert seat.actions == ((0, 1, 2),) and seat.states[0].is_simultaneous_node()
    rock, paper, scissors = (0.0, -25.0, 50.0), (25.0, 0.0, -5.0), (-50.0, 5.0, 0.0)
    np.testing.assert_array_equal(tree.payoff.toarray()[1:, 1:], [rock, paper, scissors])


def test_rewards_on_the_way_are_each_seat_s_own() -> None:
    """Rock against paper: the first seat loses 1, which it receives at its second turn."""
    tree = game_tree.build(pyspiel.load_game("repeated_game(stage_game=matrix_rps(),num_repetitions=2)"))
    for seat, reward in zip(tree.seats, (-1.0, 1.0), strict=True):
        place = next(index for index, name in enumerate(seat.names) if "Rock Paper" in name)
        assert (seat.rewards[0], seat.rewards[place]) == (0.0, reward)


def test_strings_that_forget_actions_stand_for_several_states() -> None:
    """In goofspiel with open hands, seat 0 bid 1 then 2, or 2 then 1: the strings are equal, its memories are not."""
    assert not game_tree.build(pyspiel.load_game("goofspiel(num_cards=4)")).has_own_strings
    assert game_tree.build(pyspiel.load_game("goofspiel(num_cards=4,imp_info=true)")).has_own_strings


def test_tables_and_policies_are_the_same() -> None:
    tree = game_tree.build(pyspiel.load_game("kuhn_poker"))
    policy = np.random.default_rng(0).random(13)
    table = game_tree.to_table(tree.seats[0], policy)
    begin = tree.seats[0].begins[tree.seats[0].names.index("0pb")]
    assert len(table) == 6 and table["0pb"] == {0: policy[begin], 1: policy[begin + 1]}
    assert [value for row in table.values() for value in row.values()] == policy[1:].tolist()
