"""Names of moves in GTP, against OpenSpiel's own names of the same actions."""

from __future__ import annotations

import sys

import pytest

from seedzero.core import errors
from seedzero.envs import gtp_boards, pgx_games, spiel


@pytest.mark.parametrize(
    ("name", "kind", "size", "komi"),
    [("go(board_size=9)", "go", 9, 7.5), ("hex(board_size=5)", "hex", 5, None), ("othello", "othello", 8, None)],
)
def test_places_have_the_names_that_openspiel_gives_them(name: str, kind: str, size: int, komi: float | None) -> None:
    game = spiel.load(name)
    board, state = gtp_boards.of(game), game.new_initial_state()
    assert board == gtp_boards.GtpBoard(kind, size, komi)
    for action in range(size**2):
        assert state.action_to_string(0, action).split()[-1] == board.vertex(action).lower()
        assert board.action(board.vertex(action)) == board.action(board.vertex(action).lower()) == action


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("go(size=5, komi=6.5)", gtp_boards.GtpBoard("go", 5, 6.5)),
        ("go", gtp_boards.GtpBoard("go", 9, 7.5)),
        ("go_19x19", gtp_boards.GtpBoard("go", 19, 7.5)),
        ("hex(size=5)", gtp_boards.GtpBoard("hex", 5, None)),
        ("othello", gtp_boards.GtpBoard("othello", 8, None)),
    ],
)
def test_games_of_pgx_have_the_same_boards_without_openspiel(
    name: str, expected: gtp_boards.GtpBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    board = gtp_boards.of(pgx_games.PgxGame(name))
    assert board == expected
    assert board.action(board.vertex(expected.size**2)) == expected.size**2  # a pass, or a swap


def test_columns_of_go_leave_out_i_and_others_do_not() -> None:
    assert (
        gtp_boards.GtpBoard("go", 9, 7.5).vertex(8) == "J1"
        and gtp_boards.GtpBoard("othello", 9, None).vertex(8) == "I1"
    )
    assert gtp_boards.GtpBoard("hex", 3, None).vertex(9) == "swap-pieces"


@pytest.mark.parametrize("vertex", ["", "A", "A0", "A10", "K1", "I1", "1A", "A1x", "swap-pieces"])
def test_other_texts_are_no_moves(vertex: str) -> None:
    with pytest.raises(ValueError, match="no move on this board"):
        gtp_boards.GtpBoard("go", 9, 7.5).action(vertex)


def test_colors_have_two_names_each() -> None:
    assert [gtp_boards.color(text) for text in ("b", "Black", "W", "white")] == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="no color"):
        gtp_boards.color("red")


def test_games_without_such_a_board_are_refused_by_name() -> None:
    with pytest.raises(errors.EnvironmentFailure, match=r"'chess' .*go, othello, hex"):
        gtp_boards.of(spiel.load("chess"))
    with pytest.raises(errors.EnvironmentFailure, match=r"4x5 .*square"):
        gtp_boards.of(spiel.load("hex(num_cols=5,num_rows=4)"))
