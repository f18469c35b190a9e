"""Statistics over many tasks, with numbers worked out by hand."""

from __future__ import annotations

import aggregates  # see conftest.py
import pytest


def test_random_play_is_0_and_the_best_is_1_also_below_zero() -> None:
    assert aggregates.normalized(3.0, random=1.0, best=9.0) == 0.25
    assert aggregates.normalized(-150.0, random=-200.0, best=-100.0) == 0.5
    assert aggregates.normalized(-250.0, random=-200.0, best=-100.0) == -0.5


def test_mean_and_median_are_over_the_means_of_tasks() -> None:
    scores = [[0.0, 2.0], [4.0, 6.0], [90.0]]  # means: 1, 5, 90
    assert aggregates.mean(scores) == 32.0
    assert aggregates.median(scores) == 5.0


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


def test_an_interval_draws_runs_within_each_task() -> None:
    # Drawn from all four runs at once, the mean would vary.
    assert aggregates.interval(aggregates.mean, [[0.0, 0.0], [1.0, 1.0]]) == (0.5, 0.5)


def test_an_interval_spans_the_outcomes_that_are_not_rare() -> None:
    # One task of two runs: the mean of two draws is 0, 0.5 or 1 with probabilities 1/4, 1/2, 1/4.
    assert aggregates.interval(aggregates.mean, [[0.0, 1.0]]) == (0.0, 1.0)
    # Six tasks: a mean of 0 or 1 has probability 4^-6. The sum of 12 coins lies within 3..9 with 96 %.
    low, high = aggregates.interval(aggregates.mean, [[0.0, 1.0]] * 6)
    assert (low, high) == (pytest.approx(3 / 12), pytest.approx(9 / 12))


def test_an_interval_is_the_same_every_time_and_needs_two_runs() -> None:
    scores = [[0.1, 0.4, 0.35], [0.9, 0.2, 0.6]]
    assert aggregates.interval(aggregates.iqm, scores) == aggregates.interval(aggregates.iqm, scores)
    assert aggregates.interval(aggregates.iqm, [[0.1], [0.9]]) is None
    assert aggregates.text([[0.0], [1.0]]) == "mean 0.500, median 0.500, IQM 0.500"
    assert aggregates.text([[0.0, 0.0], [1.0, 1.0]]).startswith("mean 0.500 [0.500, 0.500], median")
