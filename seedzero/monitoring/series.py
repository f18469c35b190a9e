"""Reads metrics as series over the course of a run, from metrics.jsonl."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seedzero.monitoring import metrics_log, rows

EVALUATION, TRAINING = "evaluation_mean_return", "episode_return"
"""Mean returns of an evaluation, and of the training episodes in a row."""
_OUT_OF_ORDER_SECONDS = 1.0
"""A row may be older than the one before by this much, because two threads write rows."""
_UNFINISHED = "evaluation_unfinished"


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

    Skips updates that later rows repeat, and evaluations that were cut short (`evaluation_unfinished`). A resumed
    learner counts its seconds from 0; the earlier seconds are added.
    """
    kept: list[tuple[RowPlace, list[float]]] = []
    names: set[str] = set()
    last, before, newest = RowPlace(), 0.0, 0.0
    for row in found:
        try:
            place = RowPlace(*(_number(row.get(key, 0)) for key in metrics_log.FIRST_KEYS))
        except OverflowError:
            found.num_damaged += 1
            continue
        if place.seconds < newest - _OUT_OF_ORDER_SECONDS:
            before += newest
        newest = place.seconds
        place = place._replace(seconds=before + newest)
        last = RowPlace(*map(max, last, place))
        names |= {name for name, value in row.items() if isinstance(value, (int, float))}
        numbers = [_number(row.get(name)) for name in wanted]
        if not math.isfinite(numbers[0]) or (wanted[0].startswith("evaluation_") and _UNFINISHED in row):
            continue
        while kept and (kept[-1][0].update > place.update or kept[-1][0].env_steps > place.env_steps):
            kept.pop()
        kept.append((place, numbers))
    places = np.array([place for place, _ in kept], float).reshape(-1, len(RowPlace._fields))
    values = np.array([numbers for _, numbers in kept], float).reshape(-1, len(wanted))
    return Series(places, values, tuple(sorted(names)), last, found.num_damaged)


def _number(value: metrics_log.Value) -> float:
    """Returns a row's value as a number; nan for other values, such as the texts of infinite numbers."""
    return float(value) if isinstance(value, (int, float)) else math.nan
