"""OpenSpiel's bots for repeated rock-paper-scissors: in evaluations, in leagues, and each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyspiel
import pytest

from seedzero.config import sections
from seedzero.core import errors, opponents, types
from seedzero.envs import bots, registry, seats, spiel_seats

GAME = "repeated_game(stage_game=matrix_rps(),num_repetitions=40,recall=3)"
ROCK, PAPER, SCISSORS = range(3)


def _made(num_envs: int, against: str, role: types.Role = types.Role.EVALUATE) -> seats.SeatGames:
    settings = sections.EnvConfig(id=f"spiel:{GAME}", opponents=against)
    made = registry.make(settings.id, settings, num_envs, role=role)
    assert isinstance(made, seats.SeatGames)
    return made


def test_the_bots_are_openspiel_s() -> None:
    assert sorted(opponents.ROSHAMBO_BOTS) == sorted(pyspiel.roshambo_bot_names())


def test_a_seat_sees_its_own_throws_before_the_other_s() -> None:
    game = spiel_seats.SpielSeats(GAME)
    state = game.initial(np.random.default_rng(0))
    for throws in ({0: ROCK, 1: PAPER}, {0: SCISSORS, 1: PAPER}):
        state = game.apply(state, throws, np.random.default_rng(0))
    rock, paper, scissors, none = [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]
    # The newest first: own throw, then the other's.
    assert game.observe(state, 0).reshape(-1, 3).tolist() == [scissors, paper, rock, paper, none, none]
    assert game.observe(state, 1).reshape(-1, 3).tolist() == [paper, scissors, paper, rock, none, none]


def _throws(name: str, others: Sequence[str], *, seed: int, number: int = 0) -> list[int]:
    """Returns a bot's throws against paper three times of four; other bots play beside it, throw by throw."""
    game = pyspiel.load_game(GAME)
    tables = [(one, bots.Members(seed + place), game.new_initial_state()) for place, one in enumerate((name, *others))]
    for _, members, _ in tables:
        members.begin(number)
    for move in range(40):
        for one, members, state in tables:
            state.apply_actions([members.move(one, state, 0), ROCK if move % 4 == 3 else PAPER])
    return [int(throw) for throw in tables[0][2].history()[::2]]


@pytest.mark.parametrize("name", ["roshambo:iocainebot", "roshambo:predbot", "roshambo:randbot", "roshambo:greenberg"])
def test_matches_of_a_bot_at_the_same_time_do_not_disturb_each_other(name: str) -> None:
    alone = _throws(name, [], seed=3)
    assert _throws(name, [name, "roshambo:sunNervebot", name], seed=3) == alone
    if name == "roshambo:randbot":  # all throws of which are drawn
        assert _throws(name, [], seed=4) != alone != _throws(name, [], seed=3, number=1)


def test_evaluations_play_both_seats_against_each_bot_equally_often() -> None:
    env = _made(3, "roshambo:rockbot,random,roshambo:rotatebot")
    assert env.spec.tasks[:2] == ("roshambo:rockbot/first", "roshambo:rockbot/second") and len(env.spec.tasks) == 6
    step, played = env.reset((0, 1, 2)), []
    for _ in range(2 * 41):
        ends = step.terminated
        played += [int(task) for task in step.tasks[ends]]
        step = env.step(np.full(3, PAPER))
    assert sorted(played) == [0, 1, 2, 3, 4, 5]


def test_paper_beats_the_rock_in_either_seat() -> None:
    env = _made(2, "roshambo:rockbot")
    step, returns = env.reset((0, 1)), np.zeros(2)
    for _ in range(40):
        step = env.step(np.full(2, PAPER))
        returns += step.reward
    assert step.terminated.all() and returns.tolist() == [40, 40] and step.tasks.tolist() == [0, 1]


def test_random_opponents_alone_are_no_tasks() -> None:
    assert _made(2, "random").spec == _made(2, "roshambo:pibot", types.Role.TRAIN).spec
    assert _made(2, "random").spec.tasks == ("first", "second")


def test_a_league_s_bot_throws_in_its_seat() -> None:
    env = _made(2, "random", types.Role.TRAIN)
    env.reset((0, 1))
    for _ in range(5):
        actions = env.with_bots(np.full(2, SCISSORS), ["", "roshambo:rockbot"])
        assert actions.tolist() == [SCISSORS, ROCK]
        env.step(actions)


@pytest.mark.parametrize(
    ("env_id", "against", "told"),
    [
        ("spiel:kuhn_poker", "roshambo:pibot", r"only repeated rock-paper-scissors, .* is kuhn_poker\(\)"),
        (f"spiel:{GAME}", "mcts-9", "are seats, .*--env.opponents=random"),
        ("spiel:tic_tac_toe", "roshambo:pibot", "only repeated rock-paper-scissors, .* spiel:repeated_game"),
    ],
)
def test_opponents_that_do_not_play_a_game_are_named(env_id: str, against: str, told: str) -> None:
    settings = sections.EnvConfig(id=env_id, opponents=against)
    with pytest.raises(errors.EnvironmentFailure, match=f"{against}.*{told}"):
        registry.make(env_id, settings, 2, role=types.Role.EVALUATE).reset((0, 1))


def test_a_league_of_another_game_refuses_the_bots() -> None:
    registry.check_bots(f"spiel:{GAME}", ("roshambo:pibot",))
    for game in ("kuhn_poker", "repeated_game(stage_game=matrix_pd(),num_repetitions=9)"):
        with pytest.raises(errors.ConfigError, match="roshambo:pibot"):
            registry.check_bots(f"spiel:{game}", ("roshambo:pibot",))


def _spec(tasks: tuple[str, ...]) -> Any:
    return types.EnvSpec((1,), "float32", 3, tasks=tasks, seats=opponents.SIDES)


def test_tasks_of_seats_are_the_seats_or_opponents() -> None:
    assert _spec(opponents.tasks(("random", "roshambo:pibot"))).num_tasks == 4
    for wrong in ((), ("a", "b"), ("random/first", "b")):
        with pytest.raises(errors.SpecMismatch, match="seats"):
            _spec(wrong)
