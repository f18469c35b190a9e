"""Thinned curves keep each bucket's smallest and largest value."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.page import thinning

NAN = float("nan")


def test_each_bucket_keeps_its_smallest_and_largest_value() -> None:
    y = np.array([0.0, 5, 1, 2, 2, -7, 3, 3, 4, 9, 8, 1])  # three buckets of four
    assert thinning.thin(y, 3).tolist() == [0, 1, 5, 6, 9, 11]


def test_few_values_stay_whole() -> None:
    assert thinning.thin(np.arange(8.0), 3).tolist() == list(range(8))
    assert thinning.thin(np.zeros(0), 3).tolist() == []


def test_nan_hides_no_peak() -> None:
    y = np.array([NAN, NAN, 1, 2, NAN, -3, NAN, 7, NAN, NAN, NAN, NAN])
    assert thinning.thin(y, 3).tolist() == [0, 2, 3, 5, 7, 8, 11]


@pytest.mark.parametrize("number", [9, 100, 1001])
def test_a_million_rows_would_become_few(number: int) -> None:
    y = np.random.default_rng(number).normal(size=number)
    kept = thinning.thin(y, 4)
    assert len(kept) <= 2 * 4 + 2 and kept[0] == 0 and kept[-1] == number - 1
    assert y[kept].min() == y.min() and y[kept].max() == y.max() and (np.diff(kept) > 0).all()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(None, None, (0, 5)), (2.0, 3.0, (0, 5)), (2.5, 2.6, (2, 4)), (9.0, None, (4, 5)), (None, 0.0, (0, 1))],
)
def test_a_window_has_a_point_beyond_each_side(
    low: float | None, high: float | None, expected: tuple[int, int]
) -> None:
    found = thinning.window(np.array([1.0, 2, 2, 3, 5]), low, high)
    assert (found.start, found.stop) == expected


def test_numbers_are_short_and_finite() -> None:
    assert thinning.shown(np.array([1 / 3, NAN, np.inf, -0.5])) == [0.3333333, None, None, -0.5]
