"""Opponents of games: random moves, and a bot that searches."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.envs import bots, spiel

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
