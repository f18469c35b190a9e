"""Rows of metrics as columns: numbers alone, 8 bytes each; x never falls, across resumes too."""

from __future__ import annotations

import array
import bisect
import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.core import json_object
from seedzero.monitoring import metrics
from seedzero.page import thinning

MAX_NAMES = 4096
"""Metrics of a run; later metrics are left out."""
MAX_NAME_LETTERS = 200
_RESTART_SECONDS = 1.0
"""A fall of `seconds` by more is a resume, whose process counts from 0."""

_BATCH = 200
"""Lines that are parsed at once; more would leave the processor's cache."""
_NOT_FINITE = ("nan", "inf", "-inf")
"""Numbers without a form in JSON."""

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

    def append(self, lines: Sequence[bytes]) -> None:
        """Adds lines of metrics.jsonl; damaged lines are counted and left out."""
        for start in range(0, len(lines), _BATCH):
            rows = _rows(lines[start : start + _BATCH])
            self.num_damaged += len(lines[start : start + _BATCH]) - len(rows)
            self._append_rows(rows)

    def _append_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        shapes: dict[tuple[str, ...], tuple[list[int], list[tuple[Any, ...]]]] = {}
        for number, row in enumerate(rows, len(self)):
            numbers, values = shapes.setdefault(tuple(row), ([], []))
            numbers.append(number)
            values.append(tuple(row.values()))
        first = [[row[name] for row in rows] for name in metrics.FIRST_KEYS]
        self._append_x(np.array([_numbers(column)[1] for column in first]))
        for names, (numbers, values) in shapes.items():
            places = np.array(numbers, np.int32)
            for name, column in zip(names, zip(*values, strict=True), strict=True):
                is_text = isinstance(column[0], str) and column[0] not in _NOT_FINITE
                if name not in self._x and not is_text:
                    self._append(name, places, column)

    def _append_x(self, first: np.ndarray) -> None:
        """Adds updates, steps and seconds [3, T] float64."""
        seconds = np.array([self._elapsed(value) for value in first[2].tolist()])
        for name, values in zip(metrics.FIRST_KEYS, (first[0], first[1], seconds), strict=True):
            column = self._x[name]
            low = column[-1] if column else 0.0
            clean = np.where(np.isfinite(values), values, low)
            column.frombytes(np.maximum(np.maximum.accumulate(clean), low).tobytes())

    def _elapsed(self, seconds: float) -> float:
        """Returns the seconds of all processes of the run."""
        if seconds < self._last_seconds - _RESTART_SECONDS:
            self._earlier_seconds += self._last_seconds
        if math.isfinite(seconds):
            self._last_seconds = seconds
        return self._earlier_seconds + self._last_seconds

    def _append(self, name: str, places: np.ndarray, column: Sequence[Any]) -> None:
        """Adds the numbers of a metric; texts and other values are left out."""
        is_number, values = _numbers(column)
        places, values = places[is_number], values[is_number]
        if not len(values):
            return
        if name not in self._rows:
            if len(self._rows) >= MAX_NAMES or len(name) > MAX_NAME_LETTERS:
                return
            self._rows[name], self._values[name] = array.array("i"), array.array("f")
        self._rows[name].frombytes(places.tobytes())
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


def _rows(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Returns the rows in lines of JSON that have all first keys; parsed at once, if none is damaged."""
    try:
        found = json.loads(b"[" + b",".join(lines) + b"]")
        if len(found) == len(lines) and all(map(_is_row, found)):
            return list(found)
    except (ValueError, RecursionError):
        pass
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            if _is_row(row := json_object.parse(line)):
                found.append(row)
    return found


def _is_row(value: Any) -> bool:
    return isinstance(value, dict) and all(name in value for name in metrics.FIRST_KEYS)


def _numbers(column: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mask of numbers [T] and the values [T] float64; other values are NaN."""
    try:
        values = np.array(column)
        if values.dtype.kind in "fiub":
            return np.ones(len(column), bool), values.astype(np.float64)
    except (ValueError, TypeError, OverflowError):  # lists of several lengths, or numbers of hundreds of digits
        pass
    found = [_number(value) for value in column]
    values = np.array([math.nan if value is None else value for value in found], np.float64)
    return np.array([value is not None for value in found]), values


def _number(value: Any) -> float | None:
    """Returns a value of a row as a number; None: it is none."""
    if isinstance(value, (int, float)) or value in _NOT_FINITE:
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return None
