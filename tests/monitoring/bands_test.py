"""Intervals and grids against numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seedzero.monitoring import bands


def _curve(x: list[float], y: list[float]) -> bands.Curve:
    return bands.curve(np.array(x, float), np.array(y, float))


def test_the_interval_of_three_seeds_is_students() -> None:
    # mean 3, s = sqrt((4 + 1 + 9) / 2) = sqrt(7); a t table has 4.303 for 2 degrees of freedom: 4.303 sqrt(7 / 3)
    found = bands.interval([1.0, 2.0, 6.0])
    half = 4.302653 * math.sqrt(7 / 3)
    assert found == pytest.approx((3.0, 3.0 - half, 3.0 + half), abs=1e-5)
    # Of two seeds: 12.706 times half their distance.
    assert bands.interval([0.0, 1.0]).high == pytest.approx(0.5 + 12.7062 / 2, abs=1e-3)
    assert bands.interval([4.0]) == (4.0, None, None)


def test_seeds_meet_on_a_common_grid_that_ends_with_the_shortest() -> None:
    found = bands.band([_curve([0, 10, 20], [0, 1, 2]), _curve([5, 15], [3, 5]), _curve([0, 30], [0, 6])])
    assert found is not None and found.longest == 30
    # x of any curve from 5 to 15; the first is x / 10, the second 2 + x / 5, the third x / 5
    np.testing.assert_allclose(found.x, [5, 10, 15])
    np.testing.assert_allclose(found.mean, [(0.5 + 3 + 1) / 3, (1 + 4 + 2) / 3, (1.5 + 5 + 3) / 3])
    half = 4.302653 * np.std([1.0, 4.0, 2.0], ddof=1) / math.sqrt(3)
    assert found.low is not None and found.high is not None
    assert (found.low[1], found.high[1]) == pytest.approx((7 / 3 - half, 7 / 3 + half), abs=1e-5)


def test_one_run_is_its_curve_alone() -> None:
    found = bands.band([_curve([0, 1, 5], [3, 4, 7])])
    assert found is not None and found.low is None and found.high is None
    assert (found.x.tolist(), found.mean.tolist(), found.longest) == ([0, 1, 5], [3, 4, 7], 5)


def test_runs_without_a_common_place_have_no_band() -> None:
    assert bands.band([_curve([0, 1], [0, 1]), _curve([2, 3], [0, 1])]) is None
    touching = bands.band([_curve([0, 2], [0, 4]), _curve([2, 3], [6, 1])])
    assert touching is not None and (touching.x.tolist(), touching.mean.tolist()) == ([2], [5])


def test_a_long_curve_is_resampled() -> None:
    x = np.arange(10_000.0)
    found = bands.band([bands.curve(x, 2 * x), bands.curve(x, 4 * x)])
    assert found is not None and len(found.x) == bands.MOST_POINTS
    np.testing.assert_allclose(found.mean, 3 * found.x)


def test_of_points_with_one_x_the_last_counts() -> None:
    found = _curve([0, 5, 5, 3], [1, 2, 3, 4])
    assert (found.x.tolist(), found.y.tolist()) == ([0, 3, 5], [1, 4, 3])


def test_a_moving_mean_looks_back() -> None:
    np.testing.assert_allclose(bands.moving_mean(np.array([3.0, 5.0, 10.0, 0.0]), 3), [3, 4, 6, 5])
    np.testing.assert_allclose(bands.moving_mean(np.array([3.0, 5.0]), 1), [3, 5])
    assert bands.moving_mean(np.zeros(0), 3).shape == (0,)


def test_a_spike_changes_the_means_with_it_alone() -> None:
    values = np.array([1.0, 2, 3, 1e20, 5, 6, 7])
    np.testing.assert_array_equal(bands.moving_mean(values, 2), [1, 1.5, 2.5, 5e19, 5e19, 5.5, 6.5])
    assert np.isfinite(bands.moving_mean(np.array([1.0, np.inf, 3, 4]), 2)).tolist() == [True, False, False, True]
