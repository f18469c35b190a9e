"""Rows of metrics as columns: numbers alone, 8 bytes each; x never falls, across resumes too."""

from __future__ import annotations

import array
import bisect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from seedzero.monitoring import metrics_log, rows
from seedzero.page import thinning

MAX_NAMES = 4096
"""Metrics of a run; later metrics are left out."""
MAX_NAME_LETTERS = 200
EPISODES = "episodes"
"""The metric with the number of episodes behind a row's returns."""
FEW_EPISODES = 20
_RESTART_SECONDS = 1.0
"""A fall of `seconds` by more is a resume, whose process counts from 0."""

_FIRST_KEYS = frozenset(metrics_log.FIRST_KEYS)
_BATCH = 2000
"""Lines that are read at once."""
_NOT_FINITE = ("nan", "inf", "-inf")
"""Numbers without a form in JSON."""

Numbers = dict[str, Any]


class Columns:
    """The rows of a run by metric; for one thread at a time."""

    def __init__(self) -> None:
        self._x = {name: array.array("d") for name in metrics_log.FIRST_KEYS}
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

    def append(self, content: bytes) -> None:
        """Adds whole lines of metrics.jsonl; damaged lines are counted and left out."""
        lines = content.split(b"\n")[:-1]
        for at in range(0, len(lines), _BATCH):
            self._append_batch(lines[at : at + _BATCH])

    def _append_batch(self, lines: Sequence[bytes]) -> None:
        found = list(filter(None, map(_parsed, lines)))
        self.num_damaged += len(lines) - len(found)
        groups: dict[tuple[str, ...], tuple[list[int], list[Any]]] = {}  # places and values of rows with the same keys
        for place, row in enumerate(found):
            of_group, values = groups.setdefault(tuple(row), ([], []))
            of_group.append(place)
            values.append(row.values())
        first, parts = np.zeros((len(self._x), len(found))), dict[str, list[tuple[np.ndarray, np.ndarray]]]()
        for names, (of_group, values) in groups.items():
            places = np.array(of_group)
            for name, column in zip(names, zip(*values, strict=True), strict=True):
                is_number, numbers = _numbers(column)
                if name in self._x:
                    first[metrics_log.FIRST_KEYS.index(name), places] = numbers
                else:
                    parts.setdefault(name, []).append((places[is_number], numbers[is_number]))
        begin = len(self)
        self._append_x(first)
        for name, pieces in parts.items():
            places, numbers = pieces[0] if len(pieces) == 1 else map(np.concatenate, zip(*pieces, strict=True))
            order = np.argsort(places) if len(pieces) > 1 else slice(None)
            self._append(name, (begin + places[order]).astype(np.int32), numbers[order])

    def _append_x(self, first: np.ndarray) -> None:
        """Adds updates, steps and seconds [3, T] float64; seconds count on through the processes of a run."""
        number = np.maximum.accumulate(np.where(np.isfinite(first[2]), np.arange(1, first.shape[1] + 1), 0))
        seconds = np.concatenate([[self._last_seconds], first[2]])[np.concatenate([[0], number])]
        is_resume = seconds[1:] < seconds[:-1] - _RESTART_SECONDS
        earlier = self._earlier_seconds + np.cumsum(np.where(is_resume, seconds[:-1], 0.0))
        for name, values in zip(metrics_log.FIRST_KEYS, (first[0], first[1], earlier + seconds[1:]), strict=True):
            column = self._x[name]
            low = column[-1] if column else 0.0
            clean = np.where(np.isfinite(values), values, low)
            column.frombytes(np.maximum(np.maximum.accumulate(clean), low).tobytes())
        if len(earlier):
            self._earlier_seconds, self._last_seconds = float(earlier[-1]), float(seconds[-1])

    def _append(self, name: str, places: np.ndarray, values: np.ndarray) -> None:
        """Adds the numbers of a metric in new rows."""
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
        """Returns a metric over `x` within [low, high], thinned: x and y as equally long lists.

        Where rows were left out, "means" has the mean of all rows in each bucket: x of its newest row, y, and rows.
        """
        rows, values = np.array(self._rows.get(name, ()), np.int64), np.array(self._values.get(name, ()), np.float64)
        places = np.array(self._x[x])[rows]
        inside = thinning.window(places, low, high)
        places, values = places[inside], values[inside]
        kept, size = thinning.thin(values, num_buckets), thinning.bucket_size(len(values), num_buckets)
        found: Numbers = {"x": thinning.shown(places[kept]), "y": thinning.shown(values[kept])}
        if size > 1:
            ends = np.minimum(np.arange(size, len(values) + size, size), len(values))
            y = thinning.shown(thinning.means(values, size))
            counts = np.diff(ends, prepend=0).tolist()
            found["means"] = {"x": thinning.shown(places[ends - 1]), "y": y, "rows": counts}
        return found

    def few_until(self, x: str) -> float | None:
        """Returns the `x` of the row with the `FEW_EPISODES`th episode, or of the last row; None: it is the first."""
        rows = self._rows.get(EPISODES, ())
        enough = np.flatnonzero(np.cumsum(np.nan_to_num(np.array(self._values.get(EPISODES, ())))) >= FEW_EPISODES)
        if not len(rows) or (len(enough) and not enough[0]):
            return None
        return self._x[x][rows[int(enough[0]) if len(enough) else -1]]

    def since(self, start: int) -> Numbers:
        """Returns the rows from number `start` on: x by name, and of each metric its numbers and places in x."""
        found = {}
        for name, places in self._rows.items():
            first = bisect.bisect_left(places, start)
            if first < len(places):
                values = thinning.shown(np.array(self._values[name][first:], np.float64))
                found[name] = {"rows": [row - start for row in places[first:]], "values": values}
        return {"x": {name: list(column[start:]) for name, column in self._x.items()}, "metrics": found}


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Returns a row; None: the line is damaged."""
    try:
        row = rows.parse(line)
    except ValueError:
        return None
    return row if row.keys() >= _FIRST_KEYS else None


def _numbers(column: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mask of numbers [T] and the values [T] float64; other values are NaN."""
    try:
        values = np.array(column)
        if values.ndim == 1 and values.dtype.kind in "fiub":
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
