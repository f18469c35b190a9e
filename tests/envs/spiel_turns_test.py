"""Games by turns in which a player may move several times in a row, and games of chance."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import registry, spiel, spiel_seats

pytest.importorskip("pyspiel")
BY_TURNS = dataclasses.replace(sections.EnvConfig(), by_turns=True)
PIG = "spiel:pig(winscore=20)"
ROLL, HOLD = 0, 1


def _actions(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_games_say_whether_a_player_may_move_again_and_whether_chance_decides() -> None:
    facts = {"dots_and_boxes": (True, False), "checkers": (True, False), "tic_tac_toe": (False, False)}
    facts |= {"pig(winscore=20)": (True, True), "2048(max_tile=65536)": (False, True)}
    for name, expected in facts.items():
        spec = spiel.Game(name).spec
        assert (spec.moves_again, spec.has_chance) == expected, name


def test_who_closes_a_box_moves_again_and_the_last_number_is_the_mover() -> None:
    env = spiel.Games(spiel.Game("dots_and_boxes(num_rows=1,num_cols=2)"), 1)
    step, movers = env.reset([0]), list[int]()
    for move in (0, 2, 4, 5, 1, 3, 6):  # the fourth move closes the left box
        movers.append(int(env.spec.movers(step.observation)[0]))
        assert np.all(step.observation[0, ..., -1] == movers[-1])
        step = env.step(_actions(move))
    assert movers == [0, 1, 0, 1, 1, 0, 1] and step.terminated[0]
    assert step.reward[0] == 1.0  # the last mover closed both boxes


def test_chance_follows_the_seeds_and_rewards_are_the_mover_s() -> None:
    def play(seeds: list[int]) -> list[types.EnvStep]:
        env = registry.make(PIG, BY_TURNS, 4)
        steps = [env.reset(seeds)]
        for number in range(300):  # they roll while they may; the last one holds each third time
            mask = steps[-1].action_mask
            assert mask is not None
            holds = ~mask[:, ROLL] | (mask[:, HOLD] & [False, False, False, number % 3 == 2])
            steps.append(env.step(np.where(holds, HOLD, ROLL).astype(np.int32)))
        return steps

    steps = play([1, 2, 3, 4])
    shown = np.stack([step.observation for step in steps])
    np.testing.assert_array_equal(shown, np.stack([step.observation for step in play([1, 2, 3, 4])]))
    assert np.any(shown[:, 0] != shown[:, 1])
    rewards = np.stack([step.reward for step in steps])
    ended = np.stack([step.terminated for step in steps])
    assert ended.sum() > 5 and np.all(rewards[ended] == 1) and not rewards[~ended].any()  # who reaches 20 has moved
    mover = shown[..., -1]
    assert 0 < np.mean(mover[1:] == mover[:-1]) < 1


@pytest.mark.parametrize("name", ["pig(winscore=20)", "backgammon", "dots_and_boxes(num_rows=1,num_cols=2)"])
def test_against_an_opponent_the_agent_sees_its_own_turns_alone(name: str) -> None:
    game, random = spiel.Game(name), np.random.default_rng(0)
    env = spiel.Games(game, 2, against=("random",))
    step, sides, total = env.reset([5, 6]), list[set[float]]([set(), set()]), 0.0
    for _ in range(400):
        for index in range(2):
            if step.terminated[index]:
                sides[index] = set()
            else:
                sides[index].add(float(env.spec.movers(step.observation)[index]))
                assert len(sides[index]) == 1
        total += np.abs(step.reward).sum()
        assert not step.reward[~step.terminated].any()
        step = env.step(_actions(*(random.choice(np.flatnonzero(mask)) for mask in step.action_mask)))
    assert total > 0


def test_a_game_of_chance_is_seats_unless_turns_are_asked_for() -> None:
    assert registry.spec(dataclasses.replace(sections.EnvConfig(), id=PIG)).seats
    assert registry.seated_by(dataclasses.replace(sections.EnvConfig(), id=PIG)) == "chance"
    asked = dataclasses.replace(BY_TURNS, id=PIG)
    assert registry.spec(asked).moves_again and not registry.seated_by(asked)
    hidden = dataclasses.replace(BY_TURNS, id="spiel:kuhn_poker")
    assert registry.spec(hidden).seats and registry.seated_by(hidden) == "chance and hidden information"
    assert spiel_seats.has_seats(spiel.load("kuhn_poker"), by_turns=True)


def test_a_game_of_one_player_with_chance_sums_its_rewards() -> None:
    env = registry.make("spiel:2048(max_tile=65536)", sections.EnvConfig(), 3)
    step, random, total = env.reset([1, 2, 3]), np.random.default_rng(0), np.zeros(3)
    assert step.action_mask is not None
    for _ in range(100):
        step = env.step(_actions(*(random.choice(np.flatnonzero(mask)) for mask in step.action_mask)))
        total += step.reward
    assert np.all(total > 100) and env.spec.num_players == 1 and not env.spec.moves_again


def test_chance_is_not_drawn_without_a_generator() -> None:
    with pytest.raises(errors.EnvironmentFailure, match="'pig' has chance"):
        spiel.Game("pig").initial()
