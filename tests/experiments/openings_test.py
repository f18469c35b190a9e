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
