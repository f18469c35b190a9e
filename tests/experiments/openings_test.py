"""The judge of tic-tac-toe: openings, and games against a perfect player."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import openings
import pytest
import solver

from seedzero.envs import spiel

pytest.importorskip("pyspiel")


@functools.cache
def _game() -> spiel.Game:
    return spiel.Game("tic_tac_toe")


@functools.cache
def _exact() -> solver.Solver:
    return solver.Solver(_game())


class Table:
    """A player that knows the state of each observation; choose: +1 the best moves' first, -1 the worst's."""

    def __init__(self, sign: int) -> None:
        self.sign = sign
        self.num_asked = 0
        states = [_game().initial()]
        self._states: dict[bytes, Any] = {}
        while states:
            state = states.pop()
            key = _game().observe(state).tobytes()
            if not state.is_terminal() and key not in self._states:
                self._states[key] = state
                states += [_game().apply(state, action) for action in state.legal_actions()]

    def __call__(self, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
        self.num_asked += len(observations)
        values = [_exact().action_values(self._states[observation.tobytes()]) for observation in observations]
        return np.array([max(found, key=lambda action: self.sign * found[action]) for found in values])


def test_there_are_72_openings_and_48_are_won_for_the_first_mover() -> None:
    values = [_exact().value(state) for state in openings.openings(_game())]
    assert len(values) == 72 and values.count(1.0) == 48 and values.count(0.0) == 24


def test_a_perfect_player_loses_no_game_that_its_opening_has_not_lost() -> None:
    table = Table(1)
    verdict = openings.judge(_game(), table)
    assert verdict == openings.Verdict(144, 96, 0.0, 0, table.num_asked)
    assert verdict.share == 0.0 and verdict.positions > 100


def test_a_player_of_bad_moves_loses_nearly_all() -> None:
    verdict = openings.judge(_game(), Table(-1))
    assert verdict.counted == 96 and 0.9 < verdict.share <= verdict.beatable / 96 <= 1.0


def _first(observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
    return masks.argmax(axis=1)


def test_shares_are_those_of_every_game_played_by_hand() -> None:
    """Recursion over every line of moves of a player that takes the first free cell."""

    def lost(state: Any, side: int) -> float:
        if state.is_terminal():
            return float(state.returns()[side] < 0)
        if _game().mover(state) == side:
            return lost(_game().apply(state, state.legal_actions()[0]), side)
        values = _exact().action_values(state)
        best = [action for action in values if values[action] == max(values.values())]
        return sum(lost(_game().apply(state, action), side) for action in best) / len(best)

    begun = openings.openings(_game())
    counted = [(state, 0) for state in begun] + [(state, 1) for state in begun if _exact().value(state) == 0]
    expected = [lost(state, side) for state, side in counted]
    found = openings.judge(_game(), _first)
    assert found.counted == len(counted) and 0 < found.share < 1
    assert found.lost == pytest.approx(sum(expected)) and found.beatable == sum(chance > 0 for chance in expected)


def test_games_of_three_moves_are_another_board_s_too() -> None:
    game = spiel.Game("connect_four(rows=3,columns=3,x_in_row=3)")
    found = openings.judge(game, _first, num_moves=3)
    assert found.games == 2 * len(openings.openings(game, 3)) and 0 < found.counted <= found.games


def test_an_illegal_move_is_refused() -> None:
    with pytest.raises(ValueError, match=r"moves 0, .* not legal"):
        openings.judge(_game(), lambda observations, masks: np.zeros(len(masks), int))
