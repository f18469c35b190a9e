"""Measures of repeated rock-paper-scissors by hand, and tables of bots whose games are known."""

from __future__ import annotations

import pytest
import roshambo  # this script: see conftest.py


def test_measures_of_a_small_table_by_hand() -> None:
    # Against a, b and c: 30 = (0 + 120 - 30) / 3 on average, and c wins 30 from it.
    assert roshambo.measures({"a": 0, "b": 120, "c": -30}) == (30, 30, 0)
    # One that loses to nobody: the bot that it wins least from wins -5.
    assert roshambo.measures({"a": 5, "b": 25}) == (15, -5, 20)


def test_a_cross_table_of_bots_that_draw_nothing() -> None:
    # rockbot throws rock; rotatebot rock, paper and scissors in turn: 3 of 9 throws each way. freqbot2 first throws
    # the answer to scissors, then to the most frequent throw so far.
    game = "repeated_game(stage_game=matrix_rps(),num_repetitions=9,recall=1)"
    table = roshambo.cross_table(("rockbot", "rotatebot", "freqbot2"), 2, game=game)
    assert table["rockbot"] == {"rockbot": 0, "rotatebot": 0, "freqbot2": pytest.approx(-table["freqbot2"]["rockbot"])}
    assert table["freqbot2"]["rockbot"] == 8
