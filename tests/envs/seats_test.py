import itertools
from typing import NamedTuple

import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import seats, spiel_seats
from seedzero.transport import sessions

NAMES = ("seat 1", "seat 2", "seat 3")
SPEC = types.EnvSpec((2,), "float32", 4, has_action_mask=True, tasks=NAMES, seats=NAMES)


class Moment(NamedTuple):
    """A state: its number in the game, the movers, the sums of rewards, and the seats that are out."""

    number: int
    movers: tuple
    returns: tuple
    out: tuple = ()


class Script:
    """Games told in advance, one after the other; `applied` has the actions of every move."""

    name, spec, num_seats = "script", SPEC, 3

    def __init__(self, *games):
        self._games = iter(games)
        self.applied = []

    def initial(self, generator):
        return next(self._games)

    def movers(self, state):
        return state[0].movers

    def is_out(self, state, seat):
        return seat in state[0].out

    def observe(self, state, seat):
        return np.array([seat, state[0].number], np.float32)

    def legal_mask(self, state, seat):
        return np.arange(4) > 0

    def apply(self, state, actions, generator):
        self.applied.append(dict(sorted(actions.items())))
        return state[1:]

    def returns(self, state):
        return state[0].returns


# The last seat ends while the others go on; it got 5 before its first row.
ONE_OUT = (
    Moment(0, (0,), (0, 0, 0)),
    Moment(1, (1, 2), (1, 0, 5)),
    Moment(2, (1,), (1, -1, 7), (2,)),
    Moment(3, (0,), (2, -1, 7), (2,)),
    Moment(4, (), (4, -3, 7), (2,)),
)
# The last seat never moves.
ONE_IDLE = (Moment(10, (1,), (0, 0, 0)), Moment(11, (0,), (0, 1, 0)), Moment(12, (), (-1, 1, 3)))


def seated(game, num_envs, role=types.Role.TRAIN):
    """Returns environments, whose every step a learner's session accepts, and their first step."""
    assignment = types.Assignment("id", role, "script", "{}", 1, num_envs, (0,) * num_envs)
    session, numbers = sessions.LearnerSession("worker", assignment, 15.0, 0.0), itertools.count()
    session.begin(game.spec, 0.0)
    env = seats.SeatGames(game, num_envs, role=role)

    def accepted(step):
        session.accept(0, (number := next(numbers)), step)
        session.answer(0, number, b"", 0.0)
        return step

    return accepted(env.reset(range(num_envs))), lambda *actions: accepted(env.step(np.array(actions, np.int32)))


def told(step):
    """Returns a row's moment, reward and end in words; "" for rows that are not shown."""
    shown = np.ones(len(step.reward), bool) if step.shown is None else step.shown
    return [
        f"{row[1]:g}: {reward:g}{' end' if ends else ''}" if is_shown else ""
        for row, reward, ends, is_shown in zip(step.observation, step.reward, step.terminated, shown, strict=True)
    ]


def test_random_actions_are_legal_and_equally_likely():
    generator = np.random.default_rng(0)
    drawn = [seats.random_action(np.array([False, True, False, True]), generator) for _ in range(1000)]
    counts = np.bincount(drawn, minlength=4)
    assert counts[0] == counts[2] == 0 and 440 < counts[1] < 560


# --- training: all seats ---------------------------------------------------------------------------------------------


def test_rows_are_shown_where_they_move_or_end_and_get_all_rewards_since():
    game = Script(ONE_OUT, ONE_IDLE, ONE_OUT, ONE_IDLE)
    step, play = seated(game, 6)
    steps = [step, *(play(*[3, 2, 1] * 2) for _ in range(7))]
    first, second = [step.task[:3].tolist() for step in steps], [step.task[3:].tolist() for step in steps]
    assert first == [[0, 1, 2]] * 5 + [[1, 2, 0]] * 3
    assert second == [[1, 2, 0]] * 3 + [[2, 0, 1]] * 5
    assert [told(step) for step in steps] == [
        ["0: 0", "", "", "10: 0", "", ""],
        ["", "1: 0", "1: 0", "", "", "11: 0"],
        ["", "2: -1", "2: 7 end", "12: 1 end", "", "12: -1 end"],
        ["3: 2", "", "", "", "0: 0", ""],
        ["4: 2 end", "4: -2 end", "", "1: 0", "", "1: 0"],
        ["10: 0", "", "", "2: 7 end", "", "2: -1"],
        ["", "", "11: 0", "", "3: 2", ""],
        ["12: 1 end", "", "12: -1 end", "", "4: 2 end", "4: -2 end"],
    ]
    # A row's actions are its own: 3, 2, 1 in rows 0, 1, 2 and in rows 3, 4, 5.
    of_first = [{0: 3}, {1: 2, 2: 1}, {1: 2}, {0: 3}, {1: 3}, {0: 1}]
    of_second = [{1: 3}, {0: 1}, {0: 2}, {1: 1, 2: 3}, {1: 1}, {0: 2}]
    assert sorted(map(str, game.applied)) == sorted(map(str, of_first + of_second))


def test_what_is_not_shown_is_zeros():
    step, play = seated(Script(ONE_OUT, ONE_IDLE), 3)
    np.testing.assert_array_equal(step.action_mask, [[False, True, True, True], [False] * 4, [False] * 4])
    assert step.observation[1:].tolist() == [[0, 0], [0, 0]]
    steps = [play(1, 1, 1) for _ in range(4)]
    assert steps[-1].action_mask.tolist() == [[True] * 4] * 2 + [[False] * 4]  # at an end all are legal
    for step in steps:
        hidden = ~step.shown
        assert not step.observation[hidden].any() and not step.action_mask[hidden].any()
        assert not step.reward[hidden].any() and not step.terminated[hidden].any()
        assert not step.truncated.any()
        np.testing.assert_array_equal(step.observation[step.shown, 0], step.task[step.shown])


def test_a_row_sits_in_every_chair_in_turn():
    step, play = seated(Script(*[ONE_IDLE] * 8), 6)
    chairs = [step.task.tolist()]
    for _ in range(3):
        chairs += [[play(3, 3, 3, 3, 3, 3) for _ in range(3)][-1].task.tolist()]
    assert chairs == [[0, 1, 2, 1, 2, 0], [1, 2, 0, 2, 0, 1], [2, 0, 1, 0, 1, 2], [0, 1, 2, 1, 2, 0]]


def test_only_actions_of_rows_with_a_turn_matter():
    game = Script(ONE_OUT)
    _, play = seated(game, 3)
    with pytest.raises(errors.InvalidMessage, match=r"action 0 .* environment 0 .*'script'.*\[1, 2, 3\]"):
        play(0, 1, 1)
    play(1, 0, 0)
    assert game.applied == [{0: 1}]


@pytest.mark.parametrize(("num_envs", "sizes"), [(2, "=3$"), (7, "=6 or 9$")])
def test_a_group_of_broken_games_is_refused(num_envs, sizes):
    env = seats.SeatGames(Script(), num_envs)
    assert env.spec == SPEC
    with pytest.raises(errors.EnvironmentFailure, match=f"--worker.envs_per_group{sizes}"):
        env.reset(range(num_envs))


def test_rows_cannot_be_drawn():
    with pytest.raises(errors.EnvironmentFailure, match="'script' cannot be drawn"):
        seats.SeatGames(Script(), 3).render()


# --- evaluation: the other seats move at random ----------------------------------------------------------------------


def test_an_evaluating_row_plays_one_seat_to_its_end():
    game = Script(ONE_OUT, ONE_OUT, ONE_OUT, ONE_OUT, ONE_IDLE)
    step, play = seated(game, 2, types.Role.EVALUATE)
    steps = [step, *(play(3, 2) for _ in range(5))]
    assert all(step.shown is None and step.action_mask.any(axis=1).all() for step in steps)
    assert [told(step) for step in steps] == [
        ["0: 0", "1: 0"],
        ["3: 2", "2: -1"],
        ["4: 2 end", "4: -2 end"],
        ["1: 0", "1: 0"],
        ["2: -1", "2: 7 end"],  # out
        ["4: -2 end", "11: 0"],
    ]
    assert [step.task.tolist() for step in steps] == [[0, 1]] * 3 + [[1, 2]] * 2 + [[1, 0]]
    assert all(action > 0 for actions in game.applied for action in actions.values())


def test_a_game_without_a_turn_counts_with_its_rewards():
    step, play = seated(Script(*[ONE_IDLE] * 6), 3, types.Role.EVALUATE)
    assert told(step) == ["11: 0", "10: 0", "12: 0"] and step.task.tolist() == [0, 1, 2]
    assert step.action_mask.tolist() == [[False, True, True, True]] * 2 + [[True] * 4]
    assert told(play(3, 3, 0)) == ["12: -1 end", "12: 1 end", "12: 3 end"]
    assert told(play(3, 3, 3))[:2] == ["10: 0", "12: 0"]


def test_other_seats_move_by_the_seed():
    def moves(seed):
        game = Script(*[ONE_OUT] * 50)
        env = seats.SeatGames(game, 1, role=types.Role.EVALUATE)
        env.reset([seed])
        for _ in range(40):
            env.step(np.array([3], np.int32))
        return game.applied

    assert moves(1) == moves(1) != moves(2)
    assert {action for actions in moves(1) for action in actions.values()} == {1, 2, 3}


def test_bots_move_for_the_rows_that_have_a_turn():
    game = spiel_seats.make("kuhn_poker", sections.EnvConfig(), 4)
    step, name = game.reset([0, 1, 2, 3]), "spiel:fixed_action_preference(actions=1:0)"
    for _ in range(6):
        ends = step.terminated
        played = game.with_bots(np.zeros(4, np.int32), ["", name, "", name])
        assert step.shown is not None
        assert played.tolist() == [int(row % 2 == 1 and step.shown[row] and not ends[row]) for row in range(4)]
        step = game.step(played)
