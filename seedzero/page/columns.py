"""Rows of metrics as columns: numbers alone, 8 bytes each; x never falls, across resumes too."""

from __future__ import annotations

import array
import bisect
import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.core import json_object
from seedzero.monitoring import metrics
from seedzero.page import thinning

MAX_NAMES = 4096
"""Metrics of a run; later ones are left out."""
MAX_NAME_LETTERS = 200
_RESTART_SECONDS = 1.0
"""A fall of `seconds` by more is a resume, whose process counts from 0."""

Numbers = dict[str, Any]


class Columns:
    """The rows of a run by metric; for one thread at a time."""

    def __init__(self) -> None:
        self._x = {name: array.array("d") for name in metrics.FIRST_KEYS}
        self._rows: dict[str, array.array[int]] = {}
        self._values: dict[str, array.array[float]] = {}
        self._earlier_seconds = self._last_seconds = 0.0  # of the processes before a resume; of the newest row
        self.num_damaged = 0

    def __len__(self) -> int:
        return len(self._x["seconds"])

    @property
    def num_bytes(self) -> int:
        """Memory of the numbers."""
        return 8 * (3 * len(self) + sum(map(len, self._rows.values())))

    @property
    def names(self) -> list[str]:
        """Metrics with numbers, sorted."""
        return sorted(self._rows)

    def append(self, lines: Iterable[bytes]) -> None:
        """Adds lines of metrics.jsonl; damaged ones are counted and left out."""
        shapes: dict[tuple[str, ...], tuple[list[int], list[tuple[Any, ...]]]] = {}
        number, first = len(self), []
        for line in lines:
            try:
                row = json_object.parse(line)
                first.append([_number(row[name]) for name in metrics.FIRST_KEYS])
            except (ValueError, KeyError):
                self.num_damaged += 1
                continue
            numbers, values = shapes.setdefault(tuple(row), ([], []))
            numbers.append(number)
            values.append(tuple(row.values()))
            number += 1
        self._append_x(np.array(first, np.float64).reshape(-1, len(metrics.FIRST_KEYS)))
        for names, (numbers, values) in shapes.items():
            for name, column in zip(names, zip(*values, strict=True), strict=True):
                if name not in self._x:
                    self._append(name, np.array(numbers, np.int32), column)

    def _append_x(self, first: np.ndarray) -> None:
        """Adds rows of updates, steps and seconds [T, 3]."""
        seconds = [self._elapsed(value) for value in first[:, 2].tolist()]
        for name, values in zip(metrics.FIRST_KEYS, (first[:, 0], first[:, 1], np.array(seconds)), strict=True):
            column = self._x[name]
            low = column[-1] if column else -math.inf
            clean = np.where(np.isfinite(values), values, low)
            rising = np.maximum(np.maximum.accumulate(clean), low) if len(clean) else clean
            column.frombytes(np.where(np.isfinite(rising), rising, 0.0).astype(np.float64).tobytes())

    def _elapsed(self, seconds: float) -> float:
        """Returns the seconds of all processes of the run."""
        if seconds < self._last_seconds - _RESTART_SECONDS:
            self._earlier_seconds += self._last_seconds
        if math.isfinite(seconds):
            self._last_seconds = seconds
        return self._earlier_seconds + self._last_seconds

    def _append(self, name: str, numbers: np.ndarray, column: Sequence[Any]) -> None:
        try:
            values = np.array(column, np.float64)
        except (ValueError, TypeError, OverflowError):  # texts, or an object of another hand
            values = np.array([_number(value) for value in column], np.float64)
            is_number = [_is_number(value) for value in column]
            numbers, values = numbers[is_number], values[is_number]
        if values.ndim != 1 or not len(values):
            return
        if name not in self._rows:
            if len(self._rows) >= MAX_NAMES or len(name) > MAX_NAME_LETTERS:
                return
            self._rows[name], self._values[name] = array.array("i"), array.array("f")
        self._rows[name].frombytes(numbers.tobytes())
        with np.errstate(over="ignore"):
            self._values[name].frombytes(values.astype(np.float32).tobytes())

    def series(
        self, name: str, x: str, num_buckets: int, low: float | None = None, high: float | None = None
    ) -> Numbers:
        """Returns a metric over `x` within [low, high], thinned: x and y as equally long lists."""
        rows, values = np.array(self._rows.get(name, ()), np.int64), np.array(self._values.get(name, ()), np.float64)
        places = np.array(self._x[x])[rows]
        inside = thinning.window(places, low, high)
        kept = thinning.thin(values[inside], num_buckets)
        return {"x": thinning.shown(places[inside][kept]), "y": thinning.shown(values[inside][kept])}

    def since(self, start: int) -> Numbers:
        """Returns the rows from number `start` on: x by name, and of each metric its numbers and places in x."""
        found = {}
        for name, rows in self._rows.items():
            first = bisect.bisect_left(rows, start)
            if first < len(rows):
                values = thinning.shown(np.array(self._values[name][first:], np.float64))
                found[name] = {"rows": [row - start for row in rows[first:]], "values": values}
        return {"x": {name: list(column[start:]) for name, column in self._x.items()}, "metrics": found}

    def last(self, names: Iterable[str]) -> Mapping[str, float]:
        """Returns the newest values of metrics, where there are any."""
        return {name: self._values[name][-1] for name in names if name in self._values}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or value in ("nan", "inf", "-inf")


def _number(value: Any) -> float:
    """Returns a value of a row as a number, NaN for anything else."""
    if _is_number(value):
        with contextlib.suppress(OverflowError):
            return float(value)
    return math.nan
