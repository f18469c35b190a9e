"""Reads metrics as series over the course of a run, from metrics.jsonl, and averages them over seeds."""

from __future__ import annotations

import dataclasses
import datetime
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seedzero.core import json_object
from seedzero.monitoring import metrics_log, rows

# Averages curves over seeds: a mean and its confidence interval on a common grid. Pure functions.
#
# The interval is Student's, for the mean of a few independent runs: mean +- t(0.975, R - 1) s / sqrt(R), with the
# standard deviation s of R runs (R - 1 below the root).
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


EVALUATION, TRAINING = "evaluation_mean_return", "episode_return"
"""Mean returns of an evaluation, and of the training episodes in a row."""
_OUT_OF_ORDER_SECONDS = 1.0
"""A row may be older than the one before by this much, because two threads write rows."""
_FIRST_ROW_SECONDS = 600.0
"""A resumed process has its first row before this; after it, no suspended machine is taken for a resume."""


class RowPlace(NamedTuple):
    """A place on a run's axes. seconds: counted over all its processes."""

    update: float = 0.0
    env_steps: float = 0.0
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Series:
    """Values of metrics at places of a run, in order.

    Attributes:
      places: [N, 3] as `RowPlace`.
      values: [N, M], nan where a row lacks the metric.
      names: metrics of all rows, sorted.
      last: the farthest place of any row.
      num_damaged: unreadable lines, except for an unfinished last one.
    """

    places: np.ndarray
    values: np.ndarray
    names: tuple[str, ...] = ()
    last: RowPlace = RowPlace()  # noqa: RUF009  it is immutable
    num_damaged: int = 0


def read(path: pathlib.Path, wanted: Sequence[str]) -> Series:
    """Returns those rows of a run directory's metrics.jsonl that have a number for the first of the wanted metrics.

    Raises ResumeError if the file cannot be read.
    """
    return fold(metrics_log.read(path), wanted)


def fold(found: rows.RowReader, wanted: Sequence[str]) -> Series:
    """Returns the series from rows, see `read`.

    Skips updates that later rows repeat, and evaluations that were cut short (`evaluation_unfinished`).
    """
    kept: list[tuple[RowPlace, list[float]]] = []
    names: set[str] = set()
    last, total = RowPlace(), TotalSeconds()
    for row in found:
        try:
            place = RowPlace(*(_number(row.get(key, 0)) for key in metrics_log.FIRST_KEYS))
            numbers = [_number(row.get(name)) for name in wanted]
        except OverflowError:
            found.num_damaged += 1
            continue
        place = place._replace(seconds=total.at(row))
        last = RowPlace(*map(max, last, place))
        names |= {name for name, value in row.items() if isinstance(value, (int, float))}
        if not math.isfinite(numbers[0]) or (wanted[0].startswith("evaluation_") and metrics_log.UNFINISHED in row):
            continue
        while kept and (kept[-1][0].update > place.update or kept[-1][0].env_steps > place.env_steps):
            kept.pop()
        kept.append((place, numbers))
    places = np.array([place for place, _ in kept], float).reshape(-1, len(RowPlace._fields))
    values = np.array([numbers for _, numbers in kept], float).reshape(-1, len(wanted))
    return Series(places, values, tuple(sorted(names)), last, found.num_damaged)


class TotalSeconds:
    """Counts the seconds of a run over all its processes; each row has those of its own process."""

    def __init__(self) -> None:
        # of earlier processes; of the newest row in its process; when that process began, in seconds since the epoch
        self._before, self._newest, self._began = 0.0, 0.0, math.nan

    def at(self, row: Mapping[str, metrics_log.Value]) -> float:
        """Returns the total at the next row of the run; for one without a number that of the row before."""
        seconds = json_object.number(row.get("seconds", 0))
        if seconds is not None:
            start = _start(row, seconds)
            # times are whole seconds, so two rows of a process differ in its start
            is_after = start - self._began > max(self._newest - _OUT_OF_ORDER_SECONDS, 2 * _OUT_OF_ORDER_SECONDS)
            if seconds < self._newest - _OUT_OF_ORDER_SECONDS or (is_after and self._newest < _FIRST_ROW_SECONDS):
                self._before += self._newest
            self._newest, self._began = seconds, start
        return self._before + self._newest


def _start(row: Mapping[str, metrics_log.Value], seconds: float) -> float:
    """Returns when the process that wrote a row began to count seconds, in seconds since the epoch; nan if unknown."""
    try:
        return datetime.datetime.fromisoformat(str(row.get("time"))).timestamp() - seconds
    except (ValueError, OverflowError):
        return math.nan


def _number(value: metrics_log.Value) -> float:
    """Returns a row's value as a number; nan for other values, such as the texts of infinite numbers."""
    return float(value) if isinstance(value, (int, float)) else math.nan
