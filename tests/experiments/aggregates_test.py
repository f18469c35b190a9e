"""Statistics over many tasks, with numbers worked out by hand."""

from __future__ import annotations

import aggregates  # see conftest.py
import pytest


@pytest.mark.parametrize(
    "scores, expected",
    [
        ([[9.0, 0.0], [2.0, 1.0]], 1.5),  # 0 | 1 2 | 9
        ([[0.0, 1.0, 2.0], [100.0, 4.0, 3.0]], 2.5),  # six runs, of which a quarter is one: 0 | 1 2 3 4 | 100
        ([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 99.0]], 3.5),  # 0 1 | 2 3 4 5 | 6 99
        ([[7.0], [1.0]], 4.0),  # too few to leave any out
    ],
)
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end_of_all_runs(
    scores: list[list[float]], expected: float
) -> None:
    assert aggregates.iqm(scores) == expected


def test_an_interval_spans_the_outcomes_that_are_not_rare() -> None:
    # One task of two runs: the mean of two draws is 0, 0.5 or 1 with probabilities 1/4, 1/2, 1/4.
    assert aggregates.interval(aggregates.mean, [[0.0, 1.0]]) == (0.0, 1.0)
    # Six tasks: a mean of 0 or 1 has probability 4^-6. The sum of 12 coins lies within 3..9 with 96 %.
    low, high = aggregates.interval(aggregates.mean, [[0.0, 1.0]] * 6)
    assert (low, high) == (pytest.approx(3 / 12), pytest.approx(9 / 12))
