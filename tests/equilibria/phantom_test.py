"""Phantom games, against a walk over all histories of small boards, and OpenSpiel's observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seedzero.equilibria import phantom

WIDE = {(0, 1), (1, 2), (3, 4), (4, 5)}
"""Two rows of three cells, of which two neighbours in a row win."""


def _rules(num_cells: int, lines: set[tuple[int, ...]], others: set[tuple[int, ...]]) -> phantom.Board:
    """Returns the rules by the winning lines of each seat."""
    masks = np.arange(1 << num_cells)
    keys = [[sum(1 << cell for cell in line) for line in of_seat] for of_seat in (lines, others)]
    wins = [np.any([(masks & key) == key for key in of_seat], axis=0) for of_seat in keys]
    return phantom.Board(num_cells, np.stack(wins))


RULES = {
    "three cells": _rules(3, {(0, 1), (1, 2)}, {(0, 2)}),
    "two rows": _rules(6, WIDE, WIDE),
    "columns against rows": _rules(6, {(0, 3), (1, 4), (2, 5)}, {(0, 1, 2), (3, 4, 5)}),
}


def _walked(rules: phantom.Board, seat: int, policy: dict[tuple[Any, ...], np.ndarray]) -> float:
    """Returns a best response's return by a walk over all histories; policy: probabilities [C] by tries of the other.

    A key of an information state is the sequence of its tries, each with its success.
    """
    states: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}  # histories of the responding seat's information states
    value = 0.0

    def own(key: tuple[Any, ...]) -> int:
        return sum(1 << cell for cell, success in key if success)

    def tried(key: tuple[Any, ...]) -> set[int]:
        return {cell for cell, _ in key}

    def play(keys: tuple[Any, Any], mover: int, reach: float) -> float:
        """Returns the return of histories that have no choice of the responding seat left; others are kept."""
        stones = (own(keys[0]), own(keys[1]))
        if rules.wins[1 - mover][stones[1 - mover]]:
            return reach * (1.0 if 1 - mover == seat else -1.0)
        if stones[0] | stones[1] == (1 << rules.num_cells) - 1:
            return 0.0
        if mover == seat:
            states.setdefault(keys[seat], []).append((keys, reach))
            return 0.0
        return sum(
            move(keys, mover, cell, reach * policy[keys[mover]][cell])
            for cell in range(rules.num_cells)
            if cell not in tried(keys[mover])
        )

    def move(keys: tuple[Any, Any], mover: int, cell: int, reach: float) -> float:
        success = not own(keys[1 - mover]) >> cell & 1
        mine = (*keys[mover], (cell, success))
        after = (mine, keys[1]) if mover == 0 else (keys[0], mine)
        return play(after, 1 - mover if success else mover, reach)

    def best(key: tuple[Any, ...]) -> float:
        """Returns the value of an information state, all of whose histories are known."""
        histories, found = states.pop(key), []
        for cell in set(range(rules.num_cells)) - tried(key):
            total = sum(move(keys, seat, cell, reach) for keys, reach in histories)
            found.append(
                total
                + sum(
                    best((*key, (cell, success))) if (*key, (cell, success)) in states else 0.0
                    for success in (True, False)
                )
            )
        return max(found)

    value = play(((), ()), 0, 1.0)
    return value + best(())


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seat", [0, 1])
def test_a_best_response_is_that_of_a_walk_over_all_histories(name: str, seat: int) -> None:
    rules, random = RULES[name], np.random.default_rng(0)
    both = (phantom.nodes(rules, 0), phantom.nodes(rules, 1))
    fixed = both[1 - seat]
    legal = ((fixed.own | fixed.known)[:, None] >> np.arange(rules.num_cells) & 1) == 0
    policy = random.dirichlet(np.ones(rules.num_cells), len(fixed.own)) * legal
    policy /= policy.sum(axis=1, keepdims=True)
    table = {}
    for row in range(len(fixed.own)):
        tries = [int(cell) for cell in fixed.tries[row] if cell >= 0]
        table[tuple((cell, bool(fixed.own[row] >> cell & 1)) for cell in tries)] = policy[row]
    assert phantom.best_response(rules, seat, both, policy) == pytest.approx(_walked(rules, seat, table), abs=1e-12)


def test_nodes_and_their_observations_are_those_of_open_spiel() -> None:
    pyspiel = pytest.importorskip("pyspiel")
    game, random, most = pyspiel.load_game("phantom_ttt"), np.random.default_rng(0), 4
    rules = phantom.rules_of(game)
    assert rules is not None and phantom.rules_of(pyspiel.load_game("phantom_ttt(gameversion=abrupt)")) is None
    assert phantom.rules_of(pyspiel.load_game("dark_hex(board_size=3)")) is None
    both = [phantom.nodes(rules, seat, most_tries=most) for seat in (0, 1)]
    num_compared = 0
    for _ in range(200):
        state, sequences, num_tries = game.new_initial_state(), [-1, -1], [0, 0]
        while not state.is_terminal() and max(num_tries) < most:
            seat = state.current_player()
            found = both[seat]
            node = 0 if sequences[seat] == -1 else int(found.placed.reshape(-1)[sequences[seat]])
            while state.current_player() == seat and not state.is_terminal() and num_tries[seat] < most:
                rows = np.array([node])
                shown = phantom.observations(rules, found, rows, seat)[0]
                assert shown.tolist() == state.information_state_tensor(seat)
                legal = np.flatnonzero(((found.own[node] | found.known[node]) >> np.arange(9) & 1) == 0)
                assert legal.tolist() == state.legal_actions()
                cell = int(random.choice(legal))
                state.apply_action(cell)
                num_compared, sequences[seat], num_tries[seat] = num_compared + 1, 9 * node + cell, num_tries[seat] + 1
                if state.current_player() == seat:  # it failed, unless the game is over
                    node = int(found.failed[node, cell])
                    assert node > 0
    assert num_compared > 1_000
