"""Boards read from the texts of games, with the actions of their cells."""

from __future__ import annotations

import pytest

from seedzero.acting.tables import boards
from seedzero.envs import spiel


@pytest.mark.parametrize("name", ["tic_tac_toe", "connect_four", "hex(board_size=4)", "go(board_size=5)"])
def test_a_legal_cell_s_action_puts_a_stone_there(name: str) -> None:
    game = spiel.Game(name)
    state = game.initial()
    for number in range(4):
        board = boards.of(f"spiel:{name}", str(state), state.legal_actions())
        assert board is not None and sum(stone > 0 for row in board["stones"] for stone in row) == number
        cells = [
            (y, x, action)
            for y, row in enumerate(board["actions"])
            for x, action in enumerate(row)
            if action is not None and not board["stones"][y][x]
        ]
        y, x, action = cells[(3 * number + 1) % len(cells)]
        state = game.apply(state, action)
        after = boards.of(f"spiel:{name}", str(state), state.legal_actions())
        assert after is not None
        if name == "connect_four":  # a stone falls
            y = max(row for row in range(6) if not board["stones"][row][x])
        assert after["stones"][y][x] == 1 + number % 2


def test_a_board_of_pgx_and_other_games() -> None:
    text = " 3  X . O\n 2   . X .\n 1    . . .\n      a b c"
    board = boards.of("pgx:hex(size=3)", text, [1, 3, 9])
    assert board == {
        "kind": "hex",
        "stones": [[1, 0, 2], [0, 1, 0], [0, 0, 0]],
        "actions": [[None, 1, None], [3, None, None], [None, None, None]],
    }
    assert boards.of("spiel:kuhn_poker", "0pb", [0, 1]) is None
    assert boards.of("spiel:tic_tac_toe", "nothing", []) is None
