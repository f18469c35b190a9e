"""The interval of a median by order statistics."""

from __future__ import annotations

import page_cost
import pytest


@pytest.mark.parametrize(
    ("number", "expected"), [(12, (3.0, 10.0)), (6, (1.0, 6.0)), (5, (1.0, 5.0)), (1, (1.0, 1.0))]
)
def test_the_interval_holds_the_median_in_95_of_100_cases(number: int, expected: tuple[float, float]) -> None:
    values = [float(value) for value in range(1, number + 1)]
    assert page_cost.interval(values[::-1]) == expected
