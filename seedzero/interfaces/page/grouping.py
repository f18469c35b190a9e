"""Runs grouped over seeds as `seedzero plot` groups them: for the table of runs, and as means with intervals."""

from __future__ import annotations

import functools
import pathlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from starlette import requests

from seedzero.api import run_groups
from seedzero.core import errors, printable
from seedzero.interfaces.page import catalogue, columns, history, summaries
from seedzero.monitoring import series
from seedzero.storage.checkpoints import run_dirs

# Keeps the histories of the most recently requested runs in memory.
MAX_BYTES = 1 << 30


class Library:
    """Histories by run directory. Thread-safe."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        """max_bytes: memory for all histories; the most recently requested one is always kept."""
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._histories: dict[pathlib.Path, history.History] = {}  # the least recently requested first

    def of(self, run_dir: pathlib.Path) -> history.History:
        """Returns the history of a run directory, with the rows read so far."""
        with self._lock:
            found = self._histories.pop(run_dir, None) or history.History(run_dir)
            self._histories[run_dir] = found
            while (
                len(self._histories) > 1 and sum(one.num_bytes for one in self._histories.values()) > self._max_bytes
            ):
                del self._histories[next(iter(self._histories))]
            return found


MAX_RUNS = 64
"""Runs of one answer with curves."""
MAX_LINES = 10
"""Most runs of a group that are drawn beside their mean."""
MAX_COLUMNS = 16
"""Settings of one request."""
MAX_SMOOTH = 1000
FILE = run_dirs.CONFIG_FILE
_NO_SERIES = series.Series(np.zeros((0, 3)), np.zeros((0, 1)))


class Grouped(NamedTuple):
    """Groups of runs. differing: settings in which the runs differ. left_out: the reason by run."""

    groups: list[run_groups.RunGroup]
    differing: list[str]
    left_out: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Returns the groups for the table. quantiles: Student's, of a group with as many runs as their place."""
        most = max([2, *(len(group.runs) for group in self.groups)])
        quantiles = [None, None, *map(series.quantile, range(2, most + 1))]
        return {"groups": [_facts(group) for group in self.groups], "quantiles": quantiles, "left_out": self.left_out}


def group(paths: Mapping[str, pathlib.Path], by: Sequence[str] = ()) -> Grouped:
    """Returns the groups of runs; paths: by the run's name. by: the settings that count; none: as `plot`."""
    return _group(tuple((name, path, catalogue.stamp(path / FILE)) for name, path in paths.items()), tuple(by))


def curves(root: pathlib.Path, histories: Library, request: requests.Request) -> dict[str, Any]:
    """Returns a metric's mean curve of each group; before the histories are read, the share so far.

    smooth: rows of a moving mean of each run.
    """
    names = catalogue.query_list(request, "run", MAX_RUNS, least=1)
    paths = {name: catalogue.locate(root, name) for name in names}
    metric, x = request.query_params.get("metric", ""), catalogue.query_axis(request)
    smooth = catalogue.query_count(request, "smooth", 1, MAX_SMOOTH, least=1)
    low, high = catalogue.query_number(request, "low"), catalogue.query_number(request, "high")
    by = catalogue.query_list(request, "by", MAX_COLUMNS)
    found = dict[str, series.Curve]()
    for number, (name, path) in enumerate(paths.items()):
        history = histories.of(path)
        share = history.refresh()
        if share < 1:
            return {"read": (number + share) / len(paths)}
        curve = _curve(*history.curve(metric, x), smooth, low, high)
        if len(curve.x):
            found[name] = curve
    left_out = {name: f"it has no {metric} here" for name in paths if name not in found}
    grouped = group({name: paths[name] for name in found}, by)
    drawn = [(one, series.band([found[run.place] for run in one.runs])) for one in grouped.groups]
    apart = [run.place for one, band in drawn if not band for run in one.runs]
    left_out |= {**grouped.left_out, **dict.fromkeys(apart, f"it has no {x} in common with its group")}
    shown = [
        {**_facts(one), "label": one.label, **_band(band, [found[run.place] for run in one.runs])}
        for one, band in drawn
        if band
    ]
    return {"read": 1.0, "curves": shown, "left_out": left_out}


@functools.lru_cache(maxsize=4)  # a page asks for the same groups every few seconds
def _group(found: tuple[tuple[str, pathlib.Path, tuple[int, int]], ...], by: tuple[str, ...]) -> Grouped:
    runs, left_out = list[run_groups.RunRecord](), dict[str, str]()
    for name, path, _ in found:
        try:
            saved = run_dirs.parse_saved(summaries.read_object(path / FILE))
        except (KeyError, TypeError, AttributeError, ValueError, errors.ConfigError) as error:
            left_out[name] = printable.escape(f"its {FILE} does not fit this version of seedzero: {error}"[:300])
        else:
            runs.append(run_groups.RunRecord(name, saved, _NO_SERIES, 1, run_groups.UNKNOWN))
    try:
        names = run_groups.read_names(",".join(by), runs) if by else None
    except errors.UsageError as error:
        raise catalogue.BadQuery(str(error)) from None
    differing = run_groups.different([run_groups.values(run) for run in runs])
    return Grouped(run_groups.group(runs, names), differing, left_out)


def _curve(x: np.ndarray, y: np.ndarray, smooth: int, low: float | None, high: float | None) -> series.Curve:
    whole = series.curve(x[np.isfinite(y)], y[np.isfinite(y)], smooth)
    inside = columns.window(whole.x, low, high)
    return series.Curve(whole.x[inside], whole.y[inside])


def _facts(group: run_groups.RunGroup) -> dict[str, Any]:
    settings = {run_groups.short(name): value for name, value in group.settings.items()}
    return {"settings": settings, "hidden": list(group.hidden), "runs": [run.place for run in group.runs]}


def _band(band: series.Band, runs: Sequence[series.Curve]) -> dict[str, Any]:
    lines = [columns.shown(np.interp(band.x, run.x, run.y)) for run in runs] if 2 <= len(runs) <= MAX_LINES else None
    arrays = {"x": band.x, "y": band.mean, "low": band.low, "high": band.high}
    found = {name: None if array is None else columns.shown(array) for name, array in arrays.items()}
    return {**found, "lines": lines, "longest": columns.shown(np.array([band.longest]))[0]}
