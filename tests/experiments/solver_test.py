"""The exact solver that agents are measured by, and the positions that they are measured on."""

from __future__ import annotations

import importlib
import pathlib
from typing import Any

import numpy as np
import pytest

from seedzero.acting.tables import scoring
from seedzero.envs import spiel


@pytest.fixture
def keeps_value() -> Any:
    pytest.importorskip("pyspiel")
    return importlib.import_module("keeps_value")


def _after(game: spiel.Game, *moves: int) -> spiel.State:
    state = game.initial()
    for move in moves:
        state = game.apply(state, move)
    return state


def test_values_are_those_of_the_player_to_move(keeps_value: Any) -> None:
    game = spiel.Game("tic_tac_toe")
    exact = keeps_value.solver.Solver(game)
    assert exact.value(game.initial()) == 0.0
    # X in a corner: only the middle holds the draw.
    assert exact.action_values(_after(game, 0)) == {action: 0.0 if action == 4 else -1.0 for action in range(1, 9)}
    # X 0, O 1, X 3: O must stop the column at 6, and has lost all the same; elsewhere at once.
    assert set(exact.action_values(_after(game, 0, 1, 3)).values()) == {-1.0}
    # X 0, O 1, X 4: X threatens 8; then, wherever O goes, X wins.
    assert exact.action_values(_after(game, 0, 1, 4, 2))[8] == 1.0


def test_the_share_counts_moves_that_keep_the_value(
    keeps_value: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    game = spiel.Game("tic_tac_toe")
    exact = keeps_value.solver.Solver(game)

    def worst(states: list[spiel.State]) -> np.ndarray:
        return np.array([min(values, key=values.__getitem__) for values in map(exact.action_values, states)])

    monkeypatch.setattr(scoring, "engine", lambda *args, **options: (game, worst))
    found = keeps_value.measure(tmp_path, None, 200, 0)
    assert (found["positions"], found["decisive_share"]) == (200, 0.0)
    assert found["share"] == pytest.approx(1 - found["decisive_positions"] / 200)
