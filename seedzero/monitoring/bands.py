"""Averages curves over seeds: a mean and its confidence interval on a common grid. Pure functions.

The interval is Student's, for the mean of a few independent runs: mean +- t(0.975, R - 1) s / sqrt(R), with the
standard deviation s of R runs (R - 1 below the root).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MOST_POINTS = 500
"""Of a curve; a longer one is resampled at this many equal steps."""
_UPPER = 0.975
"""Quantile for an interval of 95 %."""


class Curve(NamedTuple):
    """A run's curve: x [N], ascending, and y [N]."""

    x: np.ndarray
    y: np.ndarray


class Band(NamedTuple):
    """The mean [G] of runs at x [G], with its interval low, high [G], or None for a single run.

    longest: the last x of any run. pair: [2, G] of two runs, which say more than an interval; None for other numbers.
    """

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    longest: float
    pair: np.ndarray | None = None


class Interval(NamedTuple):
    """A mean over runs; low, high: its 95 % interval, None for a single run."""

    mean: float
    low: float | None
    high: float | None


def curve(x: np.ndarray, y: np.ndarray, smooth: int = 1) -> Curve:
    """Returns a run's curve with points sorted by x (of several with equal x the last) and y as moving means.

    smooth: number of points in a mean, which ends with its own point; the first points have fewer.
    """
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    is_last = np.append(x[1:] != x[:-1], True)[: len(x)]
    return Curve(x[is_last], moving_mean(y[is_last], smooth))


def moving_mean(values: np.ndarray, number: int) -> np.ndarray:
    """Returns for each value the mean of it and of the `number` - 1 before it, [N]."""
    length = max(1, min(number, len(values)))
    if not len(values):
        return values
    totals = np.convolve(values, np.ones(length))[: len(values)]  # one spike would spoil all later running sums
    return np.asarray(totals / np.minimum(np.arange(1, len(values) + 1), length))


def band(curves: Sequence[Curve]) -> Band | None:
    """Returns the mean over curves where all of them have points, linear between points.

    None if they have no x in common.

    The grid has all x of all curves, or `MOST_POINTS` equal steps.
    """
    start, end = max(found.x[0] for found in curves), min(found.x[-1] for found in curves)
    if start > end:
        return None
    x = np.unique(np.concatenate([found.x for found in curves]))
    x = x[(x >= start) & (x <= end)]
    if len(x) > MOST_POINTS:
        x = np.linspace(start, end, MOST_POINTS)
    values = np.stack([np.interp(x, found.x, found.y) for found in curves])
    mean, half = values.mean(axis=0), half_width(values)
    low, high = (None, None) if half is None else (mean - half, mean + half)
    longest = float(max(found.x[-1] for found in curves))
    return Band(x, mean, low, high, longest, values if len(curves) == 2 else None)


def interval(values: Sequence[float]) -> Interval:
    """Returns the mean of at least one run's numbers, with its 95 % interval."""
    array = np.asarray(values, float)
    mean, half = float(array.mean()), half_width(array)
    return Interval(mean, None, None) if half is None else Interval(mean, mean - float(half), mean + float(half))


def half_width(values: np.ndarray) -> np.ndarray | None:
    """Returns half the width [...] of the 95 % interval of means over runs [R, ...]; None for a single run."""
    number = len(values)
    if number < 2:
        return None
    return np.asarray(quantile(number) * values.std(axis=0, ddof=1) / math.sqrt(number))


def quantile(number: int) -> float:
    """Returns t(0.975, R - 1) for the mean of R runs, at least two."""
    from scipy import special  # type: ignore[import-untyped]  # takes a moment; a dependency of JAX

    return float(special.stdtrit(number - 1, _UPPER))
