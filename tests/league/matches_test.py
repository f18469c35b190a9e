from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

from seedzero.envs import spiel
from seedzero.league import matches, payoffs

_whole = functools.partial(matches.Boards.empty, has_seats=False)
_seated = functools.partial(matches.Boards.empty, has_seats=True)


def _rows(
    boards: matches.Boards, slots: list[int], **rows: list[float] | list[bool]
) -> tuple[matches.Boards, matches.Moves]:
    no = [False] * len(slots)
    of_seats = {"game": slots, "chair": [0] * len(slots)}
    values = {"reward": [0.0] * len(slots), "first": no, "terminated": no, "truncated": no, **of_seats, **rows}
    return boards.advance(np.array(slots), **{name: np.array(value) for name, value in values.items()})


def test_sides_take_turns_and_neighbours_differ() -> None:
    boards = _whole(4)
    for number in range(3):
        boards, moves = _rows(boards, [0, 1, 2, 3], first=[True] * 4)
        assert moves.side.tolist() == [(slot + number) % 2 for slot in range(4)]
        assert moves.home.tolist() == [side == 0 for side in moves.side]


def test_rows_alternate_between_the_movers_and_the_last_is_the_home_s() -> None:
    boards = _whole(2)
    boards, moves = _rows(boards, [0, 1], first=[True, True])
    assert moves.home.tolist() == [True, False]
    boards, moves = _rows(boards, [0, 1])
    assert moves.home.tolist() == [False, True]
    boards, moves = _rows(boards, [0])  # the other slot's message comes later
    assert moves.home.tolist() == [True]
    boards, moves = _rows(boards, [0, 1], reward=[1.0, -1.0], terminated=[True, True])
    assert moves.home.tolist() == [True, True] and moves.ended.tolist() == [True, True]
    # Slot 0's home made moves 0 and 2, the last one too; slot 1's made move 1, the last one, and lost by it.
    assert moves.outcome.tolist() == [payoffs.WIN, payoffs.LOSS] and moves.total.tolist() == [1.0, -1.0]


def test_rewards_of_the_other_player_count_against_the_home() -> None:
    boards, _ = _rows(_whole(1), [0], first=[True])
    boards, _ = _rows(boards, [0], reward=[0.25])
    boards, moves = _rows(boards, [0], reward=[0.5], terminated=[True])
    assert moves.total.tolist() == [-0.25] and moves.outcome.tolist() == [payoffs.LOSS]


@pytest.mark.parametrize(("terminated", "outcome"), [(False, payoffs.DRAW), (True, payoffs.WIN)])
def test_a_truncated_match_is_a_draw_unless_it_ended_too(terminated: bool, outcome: int) -> None:
    boards, _ = _rows(_whole(1), [0], first=[True])
    _, moves = _rows(boards, [0], reward=[1.0], truncated=[True], terminated=[terminated])
    assert (moves.ended[0], moves.outcome[0], moves.total[0]) == (True, outcome, 1.0)


def test_a_lost_match_is_void_and_the_next_one_begins_anew() -> None:
    boards, _ = _rows(_whole(3), [0, 1], first=[True, True])
    boards, _ = _rows(boards, [0, 1], reward=[5.0, 5.0])
    boards, num_void = boards.lose(np.array([1, 2]))
    assert num_void == 1 and boards.lose(np.array([1]))[1] == 0
    boards, moves = _rows(boards, [0, 1], first=[False, True], terminated=[True, False])
    assert moves.ended.tolist() == [True, False] and moves.void.tolist() == [False, False]
    assert moves.total.tolist() == [5.0, 0.0] and moves.side.tolist() == [0, 0]


def test_a_match_that_begins_over_another_makes_that_void() -> None:
    boards, _ = _rows(_whole(1), [0], first=[True])
    boards, moves = _rows(boards, [0], first=[True])
    assert moves.void.tolist() == [True] and moves.ended.tolist() == [False]
    assert boards.number.tolist() == [2]


def test_rows_without_a_beginning_count_for_nothing() -> None:
    boards, moves = _rows(_whole(2), [0, 1], reward=[1.0, 1.0], terminated=[False, True])
    assert moves.home.tolist() == [True, True] and not moves.ended.any()
    assert boards.lose(np.array([0, 1]))[1] == 0


def test_boards_are_values() -> None:
    boards, _ = _rows(_whole(1), [0], first=[True])
    before = dataclasses.astuple(boards)  # copies
    _rows(boards, [0], reward=[1.0])
    boards.lose(np.array([0]))
    assert all(np.array_equal(a, b) for a, b in zip(before, dataclasses.astuple(boards), strict=True))


def test_whole_games_give_the_returns_that_the_game_has() -> None:
    """The home plays moves of its own; OpenSpiel's own returns are compared, by the player of the home's side."""
    pytest.importorskip("pyspiel")
    game = spiel.Game("tic_tac_toe")
    games = spiel.Games(game, 6, random_opening=3)
    generator, boards = np.random.default_rng(0), _whole(6)
    step, first, num_ended = games.reset(range(6)), np.ones(6, bool), 0
    begun = np.zeros(6, int)
    for _ in range(200):
        boards, moves = boards.advance(
            np.arange(6),
            reward=step.reward,
            first=first,
            terminated=step.terminated,
            truncated=step.truncated,
            game=np.arange(6),
            chair=np.zeros(6, int),
        )
        mover = step.observation.reshape(6, -1)[:, -1].astype(int)
        begun = np.where(first, mover, begun)
        home = np.where(moves.side == 0, begun, 1 - begun)
        assert np.array_equal(moves.home, step.terminated | (mover == home))
        for slot in np.flatnonzero(moves.ended):
            assert moves.total[slot] == game.returns(games.states[slot])[home[slot]]
            num_ended += 1
        actions = np.array([generator.choice(np.flatnonzero(mask)) for mask in step.action_mask])
        first, step = step.final, games.step(actions)
    assert num_ended > 100


def _shown(
    boards: matches.Boards, rows: dict[int, tuple[float, str]], *, chairs: tuple[int, ...]
) -> tuple[matches.Boards, dict[str, list[Any]]]:
    """Shows rows of the games at slots 0 and 2: slot -> reward, and f: first, t: terminated, c: cut off."""
    slots, flags = np.array(list(rows)), [flag for _, flag in rows.values()]
    boards, moves = boards.advance(
        slots,
        reward=np.array([reward for reward, _ in rows.values()]),
        **{name: np.array([flag == name[0] for flag in flags]) for name in ("first", "terminated")},
        truncated=np.array([flag == "c" for flag in flags]),
        game=slots // 2 * 2,
        chair=np.array(chairs)[slots],
    )
    return boards, {name: getattr(moves, name).tolist() for name in moves._fields}


def test_seats_of_a_game_play_a_match() -> None:
    boards = _seated(4)
    # Game 0: the home (slot 0) has the second chair. Game 2: the other never moves.
    boards, moves = _shown(boards, {1: (0, "f"), 2: (0, "f")}, chairs=(1, 0, 0, 1))
    assert moves["home"] == [False, True] and moves["begins"] == [True, True] and not any(moves["ended"])
    boards, moves = _shown(boards, {0: (0, "f"), 2: (3, "t")}, chairs=(1, 0, 0, 1))
    assert moves["begins"] == [False, False] and moves["ended"] == [False, True] and not any(moves["void"])
    assert (moves["side"][1], moves["outcome"][1], moves["total"][1]) == (0, payoffs.WIN, 3.0)
    # Game 0's home ends early, and its match goes on. Game 2 begins anew, with moves at the same time.
    boards, moves = _shown(boards, {0: (-1, "t"), 1: (0, ""), 2: (0, "f"), 3: (0, "f")}, chairs=(1, 0, 1, 0))
    assert moves["begins"] == [False, False, True, False] and not any(moves["ended"])
    boards, moves = _shown(boards, {1: (1, "t"), 2: (0.5, "t"), 3: (-0.5, "c")}, chairs=(1, 0, 1, 0))
    assert moves["ended"] == [True, True, False]
    assert [(moves["side"][row], moves["outcome"][row], moves["total"][row]) for row in (0, 1)] == [
        (1, payoffs.LOSS, -1.0),
        (1, payoffs.DRAW, 0.5),  # cut off
    ]


def test_a_match_in_which_the_home_never_moved_has_the_others_result() -> None:
    boards = _seated(2)
    boards, _ = _shown(boards, {1: (0, "f")}, chairs=(1, 0))
    boards, moves = _shown(boards, {1: (2, "t")}, chairs=(1, 0))
    assert (moves["ended"], moves["side"], moves["outcome"], moves["total"]) == ([True], [1], [payoffs.LOSS], [-2.0])


def test_each_side_has_its_own_rewards_where_they_do_not_sum_to_zero() -> None:
    """In the prisoner's dilemma both may get 5, or one 10 and the other 0."""
    boards, chairs = _seated(4), (0, 1, 0, 1)

    def play(*ends: dict[int, tuple[float, str]]) -> list[tuple[int, float, float]]:
        nonlocal boards
        found = []
        for rows in ends:
            boards, _ = _shown(boards, {slot: (0, "f") for slot in range(4)}, chairs=chairs)
            boards, moves = _shown(boards, rows, chairs=chairs)
            results = zip(moves["outcome"], moves["total"], moves["other"], strict=True)
            found += [result for result, ended in zip(results, moves["ended"], strict=True) if ended]
        return found

    even = {0: (0.1, "t"), 1: (-0.1 + 1e-6, "t"), 2: (5, "c"), 3: (5, "t")}  # rounded; cut off, which proves nothing
    assert play(even) == [(payoffs.WIN, 0.1, -0.1), (payoffs.DRAW, 5.0, -5.0)] and boards.sums_to_zero
    draw, loss = {0: (5, "t"), 1: (5, "t")}, {2: (1, "t"), 3: (10, "t")}
    assert play({**draw, **loss}) == [(payoffs.DRAW, 5.0, 5.0), (payoffs.LOSS, 1.0, 10.0)] and not boards.sums_to_zero
    assert play(even) == [(payoffs.WIN, 0.1, -0.1), (payoffs.DRAW, 5.0, 5.0)]


@pytest.mark.parametrize("sums_to_zero", [True, False])
def test_a_seat_without_a_turn_has_no_result_of_its_own(sums_to_zero: bool) -> None:
    boards = matches.Boards.empty(2, has_seats=True, sums_to_zero=sums_to_zero)
    boards, _ = _shown(boards, {0: (0, "f")}, chairs=(0, 1))
    boards, moves = _shown(boards, {0: (3, "t")}, chairs=(0, 1))
    assert (moves["ended"], moves["void"], moves["other"]) == ([sums_to_zero], [not sums_to_zero], [-3.0])
    _, moves = _shown(boards, {0: (0, "f"), 1: (0, "f")}, chairs=(1, 0))
    assert moves["begins"] == [True, False]


def test_lost_seats_make_their_match_void() -> None:
    boards = _seated(4)
    boards, _ = _shown(boards, {0: (0, "f"), 1: (0, "f"), 2: (0, "f")}, chairs=(0, 1, 0, 1))
    lost, num_void = boards.lose(np.array([0, 1]))
    assert num_void == 1 and boards.live[0].all()  # a value
    lost, moves = _shown(lost, {0: (1, "t"), 1: (-1, "t")}, chairs=(0, 1, 0, 1))
    assert not any(moves["ended"]) and not any(moves["begins"])
    lost, moves = _shown(lost, {0: (0, "f"), 2: (0, "f")}, chairs=(0, 1, 0, 1))  # slot 2: its environments are new
    assert moves["begins"] == [True, True] and moves["void"] == [False, True]


def test_no_match_begins_within_a_void_game_that_goes_on() -> None:
    boards = _seated(2)
    boards, _ = _shown(boards, {1: (0, "f")}, chairs=(1, 0))
    for expected in (1, 0):  # counted once
        boards, num_void = boards.lose(np.array([0]), goes_on=True)
        assert num_void == expected
    for rows in ({0: (0, "f")}, {0: (1, "t"), 1: (-1, "t")}):
        boards, moves = _shown(boards, rows, chairs=(1, 0))
        assert not any(moves["begins"]) and not any(moves["ended"]) and not any(moves["void"])
    for rows in ({0: (0, "f")}, {0: (1, "t")}):
        boards, moves = _shown(boards, rows, chairs=(0, 1))
    assert moves["ended"] == [True]


def _agents(
    boards: matches.Boards, reward: list[float], *, rows: list[int] | None = None, flag: str = ""
) -> tuple[matches.Boards, matches.Moves]:
    """Shows agents of two games of two against two, all if rows is None. flag: first, terminated or truncated."""
    slots = np.array(range(8) if rows is None else rows)
    flags = {name: np.full(len(slots), name == flag) for name in ("first", "terminated", "truncated")}
    return boards.advance(slots, reward=np.array(reward), game=slots // 4 * 4, chair=slots % 4, **flags)


def test_the_home_plays_both_sides_in_turn_and_time_ends_a_match() -> None:
    boards, moves = _agents(matches.Boards.empty(8, has_seats=True, sides=(0, 0, 1, 1)), [0] * 8, flag="first")
    assert moves.home.tolist() == [True, True, False, False, False, False, True, True]
    assert moves.begins.tolist() == [True, False, False, False] * 2
    boards, _ = _agents(boards, [1, 1, -1, -1] * 2)
    boards, moves = _agents(boards, [0.5, 0.5, -0.5, -0.5, 0, 0, 0, 0], flag="truncated")
    # Game 0: the home is on the left, and each of its agents has 1 + 0.5. Game 1: it is on the right, -1.
    at = np.flatnonzero(moves.ended)
    assert at.tolist() == [0, 4] and moves.side[at].tolist() == [0, 1]
    assert moves.total[at].tolist() == [1.5, -1] and moves.other[at].tolist() == [-1.5, 1]
    assert moves.outcome[at].tolist() == [payoffs.WIN, payoffs.LOSS]
    boards, moves = _agents(boards, [0] * 8, flag="first")
    assert moves.side.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert moves.home.tolist() == [False, False, True, True, True, True, False, False]
    # The left counts more here: the home loses on the right by -1 against 3.
    boards, moves = _agents(boards, [3, 3, -1, -1, 2, 2, -2, -2], flag="terminated")
    assert not boards.sums_to_zero and moves.outcome[[0, 4]].tolist() == [payoffs.LOSS, payoffs.WIN]
    assert moves.total[[0, 4]].tolist() == [-1, 2] and moves.other[[0, 4]].tolist() == [3, -2]


@pytest.mark.parametrize(("seen", "counts"), [([0, 1, 2, 3], True), ([0, 1, 2], True), ([0, 2], False)])
def test_a_match_of_agents_needs_the_returns_of_a_whole_side(seen: list[int], counts: bool) -> None:
    boards, moves = _agents(
        matches.Boards.empty(4, has_seats=True, sides=(0, 0, 1, 1)), [0] * len(seen), rows=seen, flag="first"
    )
    boards, moves = _agents(boards, [1.0], rows=seen[:1], flag="terminated")  # it dies early, and the match goes on
    assert not moves.ended.any()
    _, moves = _agents(boards, [1.0 if row < 2 else -1.0 for row in seen[1:]], rows=seen[1:], flag="terminated")
    assert moves.ended.any() == counts and moves.void.any() != counts
    assert not counts or moves.total[0] == 1.0
