"""A look ahead by the rules, in a game whose numbers are worked out by hand."""

from __future__ import annotations

import lookahead  # see conftest.py
import numpy as np
import pytest


class _Game:
    """A state is (place, score): action 0 earns 1 and stays at place 0, action 1 earns 10 or 20; 2 is the end."""

    num_actions = 2

    def initial(self, generator: np.random.Generator) -> tuple[int, float]:
        del generator
        return 0, 0.0

    def legal_mask(self, state: tuple[int, float]) -> np.ndarray:
        return np.array([state[0] < 1, True])

    def apply(self, state: tuple[int, float], action: int, generator: np.random.Generator) -> tuple[int, float]:
        place, score = state
        return (place, score + 1) if action == 0 else (place + 1, score + 10 * (1 + generator.integers(2)))

    def observe(self, state: tuple[int, float]) -> np.ndarray:
        return np.eye(3)[state[0]]

    def is_terminal(self, state: tuple[int, float]) -> bool:
        return state[0] == 2

    def returns(self, state: tuple[int, float]) -> tuple[float]:
        return (state[1],)


def test_every_legal_move_is_tried_with_several_outcomes() -> None:
    tried = lookahead.try_all(_Game(), [(0, 5.0), (1, 7.0)], 200, np.random.default_rng(0))
    assert np.bincount(2 * tried.place + tried.action).tolist() == [200, 200, 0, 200]
    stays = (tried.place == 0) & (tried.action == 0)
    assert set(tried.reward[stays]) == {1.0} and set(tried.reward[~stays]) == {10.0, 20.0}
    assert tried.over.tolist() == (tried.place == 1).tolist()
    assert tried.after.shape == (600, 3)


def test_values_count_where_the_game_goes_on() -> None:
    tried = lookahead.Tried(
        place=np.array([0, 0, 0, 1]),
        action=np.array([1, 1, 0, 1]),
        reward=np.array([1.0, 3.0, 5.0, 7.0]),
        after=np.zeros((4, 3)),
        over=np.array([False, False, False, True]),
    )
    found = lookahead.q_by_rules(tried, np.array([10.0, 30.0, 2.0, 99.0]), 0.5, (2, 2))
    assert found.tolist() == [[6.0, 12.0], [-np.inf, 7.0]]


def test_games_are_played_by_the_highest_legal_number() -> None:
    def choose(states: list[tuple[int, float]]) -> np.ndarray:
        return np.array([[9.0, 0.0] if score < 3 else [8.0, 9.0 if place == 0 else 7.0] for place, score in states])

    scores, seen = lookahead.play(_Game(), choose, 4, np.random.default_rng(0))
    assert len(scores) == 4 and set(scores) <= {23.0, 33.0, 43.0}
    assert len(seen) == 4 * 5 and (0, 3.0) in seen


def test_the_explained_share_is_one_at_best() -> None:
    real = np.array([0.0, 2.0, 4.0])
    assert lookahead.explained(real, real) == 1.0
    assert lookahead.explained(np.full(3, 2.0), real) == 0.0
    assert lookahead.explained(real + 2.0, real) == pytest.approx(1 - 4 / (8 / 3))
