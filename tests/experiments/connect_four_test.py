"""The exact solver of connect four on 6x7 in C, against the general one, and the measure of a player by it."""

from __future__ import annotations

import importlib
import pathlib
import shutil
from typing import Any

import numpy as np
import pytest

from seedzero.acting.tables import scoring
from seedzero.envs import spiel


@pytest.fixture
def connect_four() -> Any:
    pytest.importorskip("pyspiel")
    if not shutil.which("gcc"):
        pytest.skip("the solver needs gcc")
    return importlib.import_module("connect_four")


def _late(game: spiel.Game, number: int, generator: np.random.Generator) -> spiel.State:
    """Returns a position after so many random moves, none of which ended the game."""
    state = game.initial()
    while state.move_number() < number:
        quiet = [move for move in state.legal_actions() if not state.child(move).is_terminal()]
        state = state.child(int(generator.choice(quiet))) if quiet else game.initial()
    return state


def test_results_are_those_of_the_general_solver(connect_four: Any) -> None:
    game, generator = spiel.Game("connect_four"), np.random.default_rng(0)
    solver, general = connect_four.Solver(table_bits=18), importlib.import_module("solver").Solver(game)
    seen = set[int]()
    for number in [*range(30, 42)] * 6:
        state = _late(game, number, generator)
        values = solver.action_values(state.history())
        assert values == general.action_values(state)
        mirrored = solver.action_values([6 - move for move in state.history()])
        assert mirrored == {6 - column: value for column, value in values.items()}
        seen |= set(values.values())
    assert seen == {-1, 0, 1}


def test_the_measure_counts_optimal_moves_of_its_own_positions(
    connect_four: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    game, solver = spiel.Game("connect_four"), connect_four.Solver(table_bits=20)

    def middle(states: list[spiel.State]) -> np.ndarray:
        """Takes the legal column nearest to the middle; late in the game the best of them."""
        near = [sorted(state.legal_actions(), key=lambda move: abs(move - 3)) for state in states]
        late = [state.move_number() >= 30 for state in states]
        values = [
            solver.action_values(s.history()) if is_late else {} for s, is_late in zip(states, late, strict=True)
        ]
        found = [max(m, key=lambda move: v.get(move, 0)) for m, v in zip(near, values, strict=True)]
        return np.array(found)

    monkeypatch.setattr(connect_four, "FEWEST_STONES", 30)
    monkeypatch.setattr(connect_four, "EARLY", 34)
    monkeypatch.setattr(scoring, "engine", lambda *args, **options: (game, middle))
    found = connect_four.measure(tmp_path, None, 40, 0, 10**7)
    assert (found["positions"], found["early"], found["unsolved"]) == (40, 20, 0)
    assert found["share"] == found["decisive_share"] == 1.0 > found["random_share"]
    assert (found["first_move"], found["first_result"]) == (3, 1)
