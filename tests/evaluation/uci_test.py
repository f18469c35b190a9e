"""UCI's commands and answers, and names of moves in both libraries' chess, with a player of the first legal action."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.core import errors
from seedzero.envs import bots, pgx_games, spiel
from seedzero.evaluation import uci


def session(name: str, choose=lambda state: state.legal_actions()[0]) -> uci.UciSession:
    is_of_pgx = name == "pgx"
    game = pgx_games.PgxGame("chess") if is_of_pgx else spiel.Game("chess")
    return uci.UciSession(game, lambda states: np.array(list(map(choose, states))), is_of_pgx=is_of_pgx)


@pytest.mark.parametrize("name", ["spiel", "pgx"])
def test_games_are_followed_by_the_names_of_their_moves(name: str) -> None:
    playing, lines = session(name), list[str]()
    said = ["uci", "isready", "setoption name Hash value 1", "ucinewgame", "position startpos", "go wtime 100", "quit"]
    uci.serve(playing, said, lines.append)
    assert lines == ["id name seedzero\n", "id author the seedzero developers\n", "uciok\n", "readyok\n", lines[-1]]
    assert lines[-1] == "bestmove a2a3\n"
    playing.answer("position startpos moves e2e4 e7e5 g1f3 b8c6 f1b5 a7a6 e1g1")  # castled
    assert playing.answer("go") == [playing.answer("go infinite")[0]]
    mate = "position startpos moves f2f3 e7e5 g2g4 d8h4"
    assert playing.answer(mate) == [] and playing.answer("go") == ["bestmove 0000"]


def test_promotions_and_castling_have_their_names() -> None:
    playing = session("spiel", lambda state: state.legal_actions()[-1])
    assert playing.answer("position fen 8/P6k/8/8/8/8/7p/K7 w - - 0 1") == []
    assert playing.answer("go") == ["bestmove a7a8q"]
    castling = session("pgx", lambda state: 2367 if 2367 in state.legal_actions() else state.legal_actions()[0])
    castling.answer("position startpos moves e2e4 e7e5 g1f3 b8c6 f1b5 a7a6")
    assert castling.answer("go") == ["bestmove e1g1"]


@pytest.mark.parametrize("words", ["", "fen nonsense", "startpos moves e2e5", "elsewhere", "startpos moves e2e4 e2e4"])
def test_positions_that_do_not_exist_are_told_and_change_nothing(words: str) -> None:
    playing = session("spiel")
    (told,) = playing.answer(f"position {words}")
    assert told.startswith("info string ") and playing.answer("go") == ["bestmove a2a3"]
    assert (
        session("pgx").answer("position fen 8/P6k/8/8/8/8/7p/K7 w - - 0 1")[0].startswith("info string position fen")
    )


def test_a_game_that_has_ended_in_one_library_refuses_further_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    playing = session("pgx")

    def ended(*args: object) -> None:
        raise errors.EnvironmentFailure("game 'chess' refuses action 3")

    monkeypatch.setattr(pgx_games.PgxGame, "apply", ended)
    assert playing.answer("position startpos moves e2e4") == ["info string game 'chess' refuses action 3"]
    assert playing.answer("isready") == ["readyok"]


def test_both_libraries_have_the_same_moves_but_for_the_numbers_of_castling() -> None:
    ours, theirs, generator, castled = pgx_games.PgxGame("chess"), spiel.load("chess"), np.random.default_rng(1), 0
    opening = ["g1f3", "b8c6", "e2e4", "d7d5", "f1b5", "c8g4", "e1g1", "d8d6", "h2h3", "e8c8"]
    state, other = ours.initial(), theirs.new_initial_state()
    for number in range(60):
        assert not state.is_terminal()
        assert state.legal_actions() == sorted(uci._CASTLING.get(each, each) for each in other.legal_actions())
        named = {uci.UciSession._name(other, action): action for action in other.legal_actions()}
        action = named[opening[number]] if number < len(opening) else bots.random_move(other, generator)
        castled += action in uci._CASTLING
        state, other = ours.apply(state, uci._CASTLING.get(action, action)), other.child(action)
    assert castled == 2
