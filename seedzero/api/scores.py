"""Scores runs by their evaluations during training, and groups of seeds; finds the settings in which groups differ."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.api import run_groups, run_places
from seedzero.config import options
from seedzero.monitoring import bands, series

METRICS = (series.EVALUATION, "evaluation_std_return", "evaluation_episodes")
"""The metrics that are read of a run."""


class SavedScore(NamedTuple):
    """An evaluation of a run during training. stderr: standard error over episodes, None with one episode."""

    mean: float
    stderr: float | None
    episodes: int
    update: int
    env_steps: int


class Difference(NamedTuple):
    """A setting in which runs differ.

    values: one for each group, as on a command line; None if its agent does not read the setting. given: whether a
    command line of the group's runs named it.
    """

    name: str
    values: tuple[str | None, ...]
    given: tuple[bool, ...]


def last(run: run_places.RunRecord) -> SavedScore | None:
    """Returns the last whole evaluation, or None if there is none yet."""
    return _score(run, -1) if len(run.series.values) else None


def best(run: run_places.RunRecord) -> SavedScore | None:
    """Returns the first evaluation with the highest mean return, ignoring the baseline, which is a run's first one."""
    means = run.series.values[:, 0]
    return _score(run, 1 + int(np.argmax(means[1:]))) if len(means) > 1 else None


def _score(run: run_places.RunRecord, index: int) -> SavedScore:
    place = series.RowPlace(*run.series.places[index])
    mean, std, episodes = run.series.values[index]
    number = int(episodes) if math.isfinite(episodes) else 0
    stderr = float(std) / math.sqrt(number - 1) if number > 1 and math.isfinite(std) else None
    return SavedScore(float(mean), stderr, number, int(place.update), int(place.env_steps))


def of_run(run: run_places.RunRecord) -> dict[str, Any]:
    """Returns a run's totals and scores as JSON."""
    place, found = run.series.last, {"last": last(run), "best": best(run)}
    return {
        "run_dir": run.place,
        "seed": run.saved.config.run.seed,
        "state": run.state,
        "finished": run.finished or None,
        "env_steps": int(place.env_steps),
        "updates": int(place.update),
        "seconds": round(place.seconds, 1),
        "env_steps_per_second": place.env_steps / place.seconds if place.seconds else None,
        **{name: score._asdict() if score else None for name, score in found.items()},
    }


def of_group(group: run_groups.RunGroup) -> dict[str, Any]:
    """Returns a group's scores as JSON: the mean over its runs with a 95 % interval, and the median."""
    scores = {"last": [last(run) for run in group.runs], "best": [best(run) for run in group.runs]}
    return {
        "settings": dict(group.settings),
        "runs": [run.place for run in group.runs],
        **{name: _over([score.mean for score in found if score]) for name, found in scores.items()},
    }


def _over(means: Sequence[float]) -> dict[str, Any] | None:
    """Returns statistics over runs, or None if no run has a score."""
    if not means:
        return None
    return {"runs": len(means), **bands.interval(means)._asdict(), "median": statistics.median(means)}


def differences(groups: Sequence[run_groups.RunGroup]) -> list[Difference]:
    """Returns the settings in which the runs differ, except the seed."""
    known = [[run_groups.values(run) for run in group.runs] for group in groups]
    names = run_groups.different([each for members in known for each in members])
    return [_difference(name, groups, known) for name in names if name != run_groups.SEED]


def _difference(
    name: str, groups: Sequence[run_groups.RunGroup], known: Sequence[Sequence[run_groups.Values]]
) -> Difference:
    values, given = [], []
    for group, members in zip(groups, known, strict=True):
        shown = dict.fromkeys(options.shown(each[name]) for each in members if name in each)
        values.append(" | ".join(shown) or None)
        given.append(any(name in run.saved.given for run in group.runs))
    return Difference(run_groups.short(name), tuple(values), tuple(given))
