"""The boards in the texts of games, and texts without one."""

from __future__ import annotations

import pytest

from seedzero.acting.tables import boards
from seedzero.envs import spiel

BACKGAMMON = """+------|------+
|o...x.|x....6|
|o...x.|x....o|
|o...x.|x....o|
|o.....|x....o|
|o.....|x....o|
|      |      |
|x.....|......|
|x.....|o.....|
|x.....|o.....|
|x...o.|o.....|
|x...o.|oxxo..|
+------|------+
Turn: x
"""


@pytest.mark.parametrize("name", ["tic_tac_toe", "connect_four", "hex(board_size=4)", "go(board_size=5)", "othello"])
def test_a_legal_cell_s_action_puts_a_stone_there(name: str) -> None:
    game = spiel.Game(name)
    state = game.initial()
    for number in range(4):
        board = boards.board_of(f"spiel:{name}", str(state), state.legal_actions())
        assert board is not None
        begun = 4 if name == "othello" else 0
        assert sum(stone > 0 for row in board["stones"] for stone in row) == begun + number
        cells = [
            (y, x, action)
            for y, row in enumerate(board["actions"])
            for x, action in enumerate(row)
            if action is not None and not board["stones"][y][x]
        ]
        y, x, action = cells[(3 * number + 1) % len(cells)]
        state = game.apply(state, action)
        after = boards.board_of(f"spiel:{name}", str(state), state.legal_actions())
        assert after is not None
        if name == "connect_four":  # a stone falls
            y = max(row for row in range(6) if not board["stones"][row][x])
        assert after["stones"][y][x] == 1 + number % 2


def test_a_board_of_pgx_and_other_games() -> None:
    text = " 3  X . O\n 2   . X .\n 1    . . .\n      a b c"
    board = boards.board_of("pgx:hex(size=3)", text, [1, 3, 9])
    assert board == {
        "kind": "hex",
        "stones": [[1, 0, 2], [0, 1, 0], [0, 0, 0]],
        "actions": [[None, 1, None], [3, None, None], [None, None, None]],
        "rows": ["3", "2", "1"],
        "columns": ["a", "b", "c"],
    }
    assert boards.board_of("spiel:kuhn_poker", "0pb", [0, 1]) is None
    assert boards.board_of("spiel:tic_tac_toe", "nothing", []) is None


@pytest.mark.parametrize(
    ("name", "rows", "columns", "cell"),
    [
        ("tic_tac_toe", ["0", "1", "2"], ["0", "1", "2"], "x(1,2)"),
        ("hex(board_size=3)", ["1", "2", "3"], ["a", "b", "c"], "c2"),
        ("go(board_size=9)", list("987654321"), list("abcdefghj"), "B c8"),
        ("othello", list("12345678"), list("abcdefgh"), None),
        ("breakthrough(rows=6,columns=6)", list("654321"), list("abcdef"), None),
        ("chess", list("87654321"), list("abcdefgh"), None),
    ],
)
def test_rows_and_columns_have_the_names_of_the_game_s_moves(
    name: str, rows: list[str], columns: list[str], cell: str | None
) -> None:
    state = spiel.Game(name).initial()
    board = boards.board_of(f"spiel:{name}", str(state), state.legal_actions())
    assert board is not None and (board["rows"], board["columns"]) == (rows, columns)
    if cell is not None:
        assert state.action_to_string(0, board["actions"][1][2]) == cell


def test_pieces_of_chess_and_points_of_backgammon() -> None:
    board = boards.board_of("spiel:chess", "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 3")
    assert board is not None and board["pieces"][0] == list("rnbqkbnr")
    assert board["stones"][3] == [0, 0, 0, 0, 2, 0, 0, 0] and board["stones"][7] == [1] * 8
    found = boards.board_of("spiel:backgammon", BACKGAMMON)
    assert found is not None and found["rest"] == ["Turn: x"]
    points = found["points"]
    assert (points[0], points[5], points[12], points[18], points[23]) == (0, -4, -5, 5, -6)
    assert boards.board_of("spiel:chess", "nothing") is boards.board_of("spiel:backgammon", "nothing") is None
