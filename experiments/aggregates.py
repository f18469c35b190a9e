"""Summarizes scores of many tasks: Agarwal et al. 2021, "Deep RL at the Edge of the Statistical Precipice".

Scores are normalised and come as a sequence of runs for each task; tasks may differ in their number of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

Scores = Sequence[Sequence[float] | np.ndarray]
"""Task -> run -> normalised score."""

RESAMPLES = 2_000


def normalized(score: float, random: float, best: float) -> float:
    """Normalises a score to 0 for random play and 1 for the best known return."""
    return (score - random) / (best - random)


def mean(scores: Scores) -> float:
    """Returns the mean over tasks of their mean scores."""
    return float(np.mean([np.mean(row) for row in scores]))


def median(scores: Scores) -> float:
    """Returns the median over tasks of their mean scores."""
    return float(np.median([np.mean(row) for row in scores]))


def iqm(scores: Scores) -> float:
    """Returns the interquartile mean: that of all runs of all tasks without the lowest and the highest quarter.

    A quarter is rounded down to whole runs.
    """
    runs = np.sort(np.concatenate([np.asarray(row, float) for row in scores]))
    cut = len(runs) // 4
    return float(runs[cut : len(runs) - cut].mean())


STATISTICS: Mapping[str, Callable[[Scores], float]] = {"mean": mean, "median": median, "IQM": iqm}


def interval(
    statistic: Callable[[Scores], float], scores: Scores, *, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Returns a 95 % interval by the stratified bootstrap, which draws runs with replacement within each task.

    Returns None if no task has two runs. The same scores always give the same interval.
    """
    if all(len(row) < 2 for row in scores):
        return None
    generator = np.random.default_rng(0)
    rows = [np.asarray(row, float) for row in scores]
    found = [statistic([row[generator.integers(len(row), size=len(row))] for row in rows]) for _ in range(resamples)]
    low, high = np.percentile(found, (2.5, 97.5))
    return float(low), float(high)


def text(scores: Scores) -> str:
    """Returns all statistics with their intervals in one sentence."""
    parts = []
    for name, statistic in STATISTICS.items():
        bounds = interval(statistic, scores)
        between = f" [{bounds[0]:.3f}, {bounds[1]:.3f}]" if bounds else ""
        parts.append(f"{name} {statistic(scores):.3f}{between}")
    return ", ".join(parts)
