"""Exploitability in large games: a learned response against the exact judge, and a phantom game worked by hand."""

from __future__ import annotations

import json
import pathlib

import large_games
import numpy as np
import phantom
import pytest
import saved_league

from seedzero.api import exploitability

pytest.importorskip("pyspiel")


@pytest.mark.thorough
def test_a_learned_response_wins_what_the_exact_one_does(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a game of one move, whose returns do not sum to zero."""
    path = saved_league.make_seats(tmp_path / "run", "matrix_pd")
    words = ["large_games", str(path), "--mixture=uniform", "--moves=2000", "--games=400"]
    monkeypatch.setattr("sys.argv", words)
    large_games.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    exact = exploitability.judge(path, "runs/mine").mixtures["uniform"].nash_conv
    assert (found["update"], found["mixture"]) == (90, "uniform") and found["moves"] >= 2_000
    assert abs(found["nash_conv_at_least"] - exact) < 4 * found["stderr"] and found["own"]["first"]["num_games"] >= 200
    monkeypatch.setattr("sys.argv", [*words, "--phantom"])
    with pytest.raises(SystemExit, match="matrix_pd; --phantom is for one of phantom_ttt"):
        large_games.main()


def test_a_best_response_in_a_phantom_game_is_the_one_worked_by_hand() -> None:
    """Of three cells seat 0 wins by two neighbours, and seat 1, which places one stone, never.

    Seat 0 wins always if it takes the middle. Seat 1 draws if it gets the middle: a uniform opponent begins there in
    one game of three.
    """
    masks = np.arange(8)
    neighbours, ends = np.isin(masks, [0b011, 0b110, 0b111]), np.isin(masks, [0b101, 0b111])
    rules = phantom.Board(3, np.stack([neighbours, ends]))
    both = (phantom.nodes(rules, 0), phantom.nodes(rules, 1))
    legal = [((seat.own | seat.known)[:, None] >> np.arange(3) & 1) == 0 for seat in both]
    uniform = [mask / mask.sum(axis=1, keepdims=True) for mask in legal]
    assert phantom.best_response(rules, 0, both, uniform[1]) == pytest.approx(1.0)
    assert phantom.best_response(rules, 1, both, uniform[0]) == pytest.approx(-1 / 3)
