"""GTP's commands and answers, with a player that takes the first legal action."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.acting.tables import gtp
from seedzero.envs import bots, pgx_games, spiel


def session(name: str = "hex(board_size=3)") -> gtp.GtpSession:
    game = pgx_games.PgxGame(name.removeprefix("pgx:")) if name.startswith("pgx:") else spiel.Game(name)

    def player(states):
        return np.array([state.legal_actions()[0] for state in states])

    return gtp.GtpSession(game, bots.gtp_board_of(game.initial().get_game()), player)


def answers(lines: str, name: str = "hex(board_size=3)") -> list[str]:
    found: list[str] = []
    gtp.serve(session(name), lines.splitlines(), found.append)
    assert all(answer.endswith("\n\n") and answer.count("\n\n") == 1 for answer in found)
    return [answer.strip() for answer in found]


def test_a_game_is_played_with_undo_and_its_end() -> None:
    lines = """boardsize 3
    clear_board
    play black B2
    genmove white
    undo
    genmove w
    play b A2
    play w b1
    play b c2
    genmove w"""
    # White takes A1, again after the undo; black's row 2 connects nothing: black joins row 1 to row 3.
    assert answers(lines) == ["=", "=", "=", "= A1", "=", "= A1", "=", "=", "=", "= C1"]
    won = "play b a1\nplay w b1\nplay b a2\nplay w b2\nplay b a3\nplay w c3\ngenmove w"
    assert answers(won)[-2:] == ["? the game is over"] * 2


def test_commands_about_the_engine_have_numbers_and_comments() -> None:
    assert answers("1 protocol_version # two\n\n# nothing\n2 name") == ["=1 2", "=2 seedzero"]
    listed = answers("list_commands")[0].removeprefix("= ").splitlines()
    assert {"boardsize", "komi", "clear_board", "play", "genmove", "undo", "quit", "version"} <= set(listed)
    assert answers("known_command genmove\nknown_command dance\nknown_command") == ["= true", "= false", "= false"]
    assert answers("known_command quit\n7 quit # bye\nname") == ["= true", "=7"]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("dance", "? unknown command"),
        ("12", "?12 unknown command"),
        ("3 play white A1", "?3 illegal move: it is the turn of black"),
        ("play black D1", "? 'D1' is not a move on this board; expected one as A1, or swap-pieces"),
        ("play red A1", "? 'red' is not a color; expected black or white"),
        ("play black", "? syntax error: expected a color and a move, as play black A1"),
        ("genmove", "? syntax error: expected a color, as genmove black"),
        ("play black swap-pieces", "? illegal move"),
        ("boardsize 5", "? unacceptable size: the player has learned on a board of size 3"),
        ("boardsize", "? unacceptable size: the player has learned on a board of size 3"),
        ("undo", "? cannot undo"),
    ],
)
def test_mistakes_are_answered_by_errors_and_the_engine_goes_on(line: str, answer: str) -> None:
    assert answers(f"{line}\nboardsize 3 3") == [answer, "="]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["go(board_size=5,komi=6.5)", "pgx:go(size=5, komi=6.5)"])
def test_go_has_komi_and_ends_after_two_passes(name: str) -> None:
    lines = "boardsize 5\nkomi 6.5\nkomi 7\nkomi\nplay b pass\nplay w pass\ngenmove b"
    found = answers(lines, name)
    assert found[:2] == ["=", "="] and found[2].startswith("? unacceptable komi") and found[3].startswith("? unacc")
    assert found[4:] == ["=", "=", "? the game is over"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["othello", "pgx:othello"])
def test_othello_is_played_to_its_end_by_legal_moves_of_both_colors(name: str) -> None:
    playing, number = session(name), 0
    while (answer := playing.answer(f"genmove {'bw'[number % 2]}")).startswith("="):
        number += 1
    assert answer == "? the game is over\n\n" and number >= 50
