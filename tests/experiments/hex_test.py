"""The exact solver of hex in C, against an exhaustive search in Python, and the measure of a player by it."""

from __future__ import annotations

import functools
import importlib
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

SIZE = 3


@pytest.fixture
def hexes() -> Any:
    if not shutil.which("gcc"):
        pytest.skip("the solver needs gcc")
    return importlib.import_module("hex")


def _is_won(stones: frozenset[int], player: int) -> bool:
    """Returns whether stones connect x = 0 and x = 2 (player 0), or y = 0 and y = 2 (player 1)."""
    places = {(cell // SIZE, cell % SIZE) for cell in stones}
    reached = {place for place in places if place[player] == 0}
    while True:
        near = {
            (x + dx, y + dy) for x, y in reached for dx, dy in ((0, -1), (1, -1), (-1, 0), (1, 0), (-1, 1), (0, 1))
        }
        if not (new := near & places - reached):
            return any(place[player] == SIZE - 1 for place in reached)
        reached |= new


@functools.cache
def _mover_wins(mine: frozenset[int], others: frozenset[int], player: int) -> bool:
    if _is_won(others, 1 - player):
        return False
    free = set(range(SIZE * SIZE)) - mine - others
    return any(not _mover_wins(others, mine | {cell}, 1 - player) for cell in free)


def test_results_are_those_of_an_exhaustive_search(hexes: Any) -> None:
    solver, generator, seen = hexes.Solver(SIZE), np.random.default_rng(0), set[bool]()
    for number in [*range(SIZE * SIZE)] * 40:
        moves = generator.permutation(SIZE * SIZE)[:number].tolist()
        sides = [frozenset(moves[0::2]), frozenset(moves[1::2])]
        if any(_is_won(stones, player) for player, stones in enumerate(sides)):
            continue
        mover = number % 2
        assert solver.mover_wins(moves) == _mover_wins(sides[mover], sides[1 - mover], mover), moves
        seen.add(solver.mover_wins(moves))
    assert seen == {True, False}


@pytest.mark.thorough
def test_a_perfect_player_holds_all_openings_and_a_bad_one_does_not(hexes: Any) -> None:
    pytest.importorskip("pgx")
    from seedzero.envs import pgx_games

    game, solver = pgx_games.PgxGame(f"hex(size={SIZE})"), hexes.Solver(SIZE)
    openings = solver.winning_moves([])

    def perfect(states: Sequence[Any]) -> np.ndarray:
        return np.array([solver.winning_moves(state.history())[0] for state in states])

    def worst(states: Sequence[Any]) -> np.ndarray:
        free = [sorted(set(range(SIZE * SIZE)) - set(state.history())) for state in states]
        wins = [set(solver.winning_moves(state.history())) for state in states]
        return np.array(
            [next((c for c in cells if c not in w), cells[0]) for cells, w in zip(free, wins, strict=True)]
        )

    assert hexes.won_games(game, perfect, solver, openings, np.random.default_rng(0)).all()
    assert hexes.won_games(game, worst, solver, openings, np.random.default_rng(0)).mean() < 0.5
