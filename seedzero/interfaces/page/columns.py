"""Holds rows of metrics as columns of numbers, 8 bytes each, and thins them for a screen."""

from __future__ import annotations

import array
import bisect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from seedzero.core import json_object
from seedzero.monitoring import metrics_log, rows, series


# Thins a curve for a screen: keeps the smallest and the largest value of each bucket of rows, and its mean.
def window(x: np.ndarray, low: float | None, high: float | None) -> slice:
    """Returns the indices of x within [low, high], and one more on each side; x [T] float64 never decreases."""
    first = 0 if low is None else int(np.searchsorted(x, low, side="left")) - 1
    end = len(x) if high is None else int(np.searchsorted(x, high, side="right")) + 1
    return slice(max(0, first), min(len(x), max(end, 0)))


def bucket_size(num_rows: int, num_buckets: int) -> int:
    """Returns the number of rows in a bucket; 1 if there are too few rows to thin."""
    return 1 if num_rows <= 2 * num_buckets + 2 else -(-num_rows // num_buckets)


def means(y: np.ndarray, size: int) -> np.ndarray:
    """Returns the mean of the finite values in each bucket of y [T], NaN if it has none."""
    starts, is_number = np.arange(0, len(y), size), np.isfinite(y)
    counts = np.add.reduceat(is_number.astype(np.float64), starts)
    totals = np.add.reduceat(np.where(is_number, y, 0.0), starts)
    return np.asarray(np.divide(totals, counts, out=np.full(len(starts), np.nan), where=counts > 0))


def thin(y: np.ndarray, num_buckets: int) -> np.ndarray:
    """Returns the indices of y [T] to keep, ascending: the first, the last, and at most 2 per bucket.

    Buckets have equal numbers of rows. NaN is kept only in buckets of nothing but NaN.
    """
    size = bucket_size(len(y), num_buckets)
    if size == 1:
        return np.arange(len(y))
    rest = -len(y) % size
    padded = np.concatenate([y, np.full(rest, np.nan)]).reshape(-1, size)
    starts = np.arange(len(padded)) * size
    lowest = np.where(np.isnan(padded), np.inf, padded).argmin(axis=1) + starts
    highest = np.where(np.isnan(padded), -np.inf, padded).argmax(axis=1) + starts
    return np.unique(np.concatenate([[0], lowest, highest, [len(y) - 1]]))


def shown(values: np.ndarray) -> list[float | None]:
    """Returns numbers for JSON, rounded to 7 digits; None for NaN and infinities."""
    return [json_object.number(value, 7) for value in values.tolist()]


MAX_NAMES = 4096
"""Most metrics of a run; later ones are left out."""
MAX_NAME_LETTERS = 200
EPISODES = "episodes"
"""The metric that counts the episodes behind a row's returns."""
FEW_EPISODES = 20
_FIRST_KEYS = frozenset(metrics_log.FIRST_KEYS)
_BATCH = 2000
"""Number of lines to read at once."""
_NOT_FINITE = ("nan", "inf", "-inf")
"""Numbers that JSON cannot express."""

Numbers = dict[str, Any]


class Columns:
    """The rows of a run, stored by metric. Not thread-safe."""

    def __init__(self) -> None:
        self._x = {name: array.array("d") for name in metrics_log.FIRST_KEYS}
        self._rows: dict[str, array.array[int]] = {}
        self._values: dict[str, array.array[float]] = {}
        self._seconds = series.TotalSeconds()
        self.num_damaged = 0

    def __len__(self) -> int:
        return len(self._x["seconds"])

    @property
    def num_bytes(self) -> int:
        """Memory that the numbers take."""
        return 8 * (3 * len(self) + sum(map(len, self._rows.values())))

    @property
    def seconds(self) -> float | None:
        """Seconds of all processes of the run together up to the newest row; None without rows."""
        return self._x["seconds"][-1] if len(self) else None

    @property
    def names(self) -> list[str]:
        """Names of metrics that have numbers, sorted."""
        return sorted(self._rows)

    def append(self, content: bytes) -> None:
        """Appends whole lines of metrics.jsonl, without evaluations that were cut short; counts damaged lines."""
        lines = content.split(b"\n")[:-1]
        for at in range(0, len(lines), _BATCH):
            self._append_batch(lines[at : at + _BATCH])

    def _append_batch(self, lines: Sequence[bytes]) -> None:
        found = list(filter(None, map(_parsed, lines)))
        self.num_damaged += len(lines) - len(found)
        # indices and values of rows with the same keys
        groups: dict[tuple[str, ...], tuple[list[int], list[Any]]] = {}
        for place, row in enumerate(found):
            of_group, values = groups.setdefault(tuple(row), ([], []))
            of_group.append(place)
            values.append(row.values())
        first, parts = np.zeros((len(self._x), len(found))), dict[str, list[tuple[np.ndarray, np.ndarray]]]()
        for names, (of_group, values) in groups.items():
            places = np.array(of_group)
            is_cut = metrics_log.UNFINISHED in names
            for name, column in zip(names, zip(*values, strict=True), strict=True):
                if is_cut and name.startswith("evaluation_"):
                    continue
                is_number, numbers = _numbers(column)
                if name in self._x:
                    first[metrics_log.FIRST_KEYS.index(name), places] = numbers
                else:
                    parts.setdefault(name, []).append((places[is_number], numbers[is_number]))
        first[2] = [self._seconds.at(row) for row in found]
        begin = len(self)
        self._append_x(first)
        for name, pieces in parts.items():
            places, numbers = pieces[0] if len(pieces) == 1 else map(np.concatenate, zip(*pieces, strict=True))
            order = np.argsort(places) if len(pieces) > 1 else slice(None)
            self._append(name, (begin + places[order]).astype(np.int32), numbers[order])

    def _append_x(self, first: np.ndarray) -> None:
        """Appends updates, steps and seconds [3, T] float64."""
        for name, values in zip(metrics_log.FIRST_KEYS, first, strict=True):
            column = self._x[name]
            column.frombytes(np.where(np.isfinite(values), values, column[-1] if column else 0.0).tobytes())

    def _append(self, name: str, places: np.ndarray, values: np.ndarray) -> None:
        """Appends numbers of a metric in new rows."""
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
        """Returns a metric over `x` within [low, high], thinned: x and y as lists of equal length.

        If rows were left out, "means" describes the buckets: x of the newest row, y as the mean, and the number of
        rows.
        """
        places, values = self.curve(name, x)
        inside = window(places, low, high)
        places, values = places[inside], values[inside]
        kept, size = thin(values, num_buckets), bucket_size(len(values), num_buckets)
        found: Numbers = {"x": shown(places[kept]), "y": shown(values[kept])}
        if size > 1:
            ends = np.minimum(np.arange(size, len(values) + size, size), len(values))
            y = shown(means(values, size))
            counts = np.diff(ends, prepend=0).tolist()
            found["means"] = {"x": shown(places[ends - 1]), "y": y, "rows": counts}
        return found

    def curve(self, name: str, x: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns all `x` [T] of a metric, which never fall, and its values [T], float64 both."""
        rows = np.array(self._rows.get(name, ()), np.int64)
        return np.maximum.accumulate(np.array(self._x[x])[rows]), np.array(self._values.get(name, ()), np.float64)

    def few_until(self, x: str) -> float | None:
        """Returns the `x` up to which returns come from few episodes; None if that is over in the first row.

        That is the row with the `FEW_EPISODES`th episode, or the last row.
        """
        rows = self._rows.get(EPISODES, ())
        enough = np.flatnonzero(np.cumsum(np.nan_to_num(np.array(self._values.get(EPISODES, ())))) >= FEW_EPISODES)
        if not len(rows) or (len(enough) and not enough[0]):
            return None
        return self._x[x][rows[int(enough[0]) if len(enough) else -1]]

    def since(self, start: int) -> Numbers:
        """Returns the rows from number `start` on: x by name, and the numbers of each metric with their rows."""
        found = {}
        for name, places in self._rows.items():
            first = bisect.bisect_left(places, start)
            if first < len(places):
                values = shown(np.array(self._values[name][first:], np.float64))
                found[name] = {"rows": [row - start for row in places[first:]], "values": values}
        return {"x": {name: list(column[start:]) for name, column in self._x.items()}, "metrics": found}


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Returns a row, or None if the line is damaged."""
    try:
        row = rows.parse(line)
    except ValueError:
        return None
    return row if row.keys() >= _FIRST_KEYS else None


def _numbers(column: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns which values are numbers [T], and the values [T] float64 with NaN for the others."""
    try:
        values = np.array(column)
        if values.ndim == 1 and values.dtype.kind in "fiub":
            return np.ones(len(column), bool), values.astype(np.float64)
    except (ValueError, TypeError, OverflowError):  # lists of different lengths, or numbers with hundreds of digits
        pass
    found = [_number(value) for value in column]
    values = np.array([math.nan if value is None else value for value in found], np.float64)
    return np.array([value is not None for value in found]), values


def _number(value: Any) -> float | None:
    """Returns a row's value as a number, or None if it is not a number."""
    if isinstance(value, (int, float)) or value in _NOT_FINITE:
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return None
