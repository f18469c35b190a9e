"""`seedzero gtp`: answers on standard output, all else on standard error."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest

from seedzero.acting.tables import scoring
from seedzero.api import runs
from seedzero.cli import main as commands
from seedzero.envs import spiel


@pytest.fixture
def play(monkeypatch, capfd):
    def run(game: str, lines: str, *flags: str) -> tuple[int, str, str]:
        """Returns exit code, output and errors for a run of a game, whose player takes the first move."""

        def engine(choice):
            print(f"noise, {choice.simulations} simulations")
            return spiel.Game(game), lambda states: np.array([state.legal_actions()[0] for state in states])

        monkeypatch.setattr(runs, "opened", contextlib.nullcontext)
        monkeypatch.setattr(scoring, "engine", engine)
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        code = commands.main(["gtp", "--run_dir=runs/mine", *flags])
        return code, *capfd.readouterr()

    return run


def test_gtp_answers_on_standard_output_alone(play) -> None:
    code, out, told = play("hex(board_size=3)", "name\ngenmove b\nquit\n", "--simulations=7")
    assert (code, out) == (0, "= seedzero\n\n= A1\n\n=\n\n")
    assert "noise, 7 simulations" in told and "runs/mine plays hex(board_size=3)" in told


def test_games_that_the_protocol_is_not_for_are_refused_by_name(play) -> None:
    code, out, told = play("chess", "")
    assert (code, out) == (2, "")
    assert "game 'chess' " in told.splitlines()[-1] and "for go, othello, hex" in told.splitlines()[-1]
