"""Paces a replay: pure rules over counters give the next device call, in normal runs and in lock step.

Samples per insert is the number of windows trained on for each stored training step. Its band decides: below the band
only updates run, above it only acting, and inside it acting goes first. Evaluation is exempt.

Reanalysing stored targets keeps its own ratio: rows reanalysed for each stored training step. In a normal run it fills
the device when nothing else can run. On a device that is never idle, it goes before acting and before updates inside
the band once it is too far behind. It never goes before updates that are owed below the band, which make its
parameters. In lock step it runs when a whole call is owed, after the updates that are owed and before the next acting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from seedzero.agents import base
from seedzero.config import sections
from seedzero.device import steps
from seedzero.learner.loop import rate_limiting

_TOLERANCE = 0.1
"""Half the width of the band, as a share of the windows that are due when training begins."""


class ReanalyseRatio(NamedTuple):
    """The ratio of reanalysed rows."""

    per_insert: float  # rows for each stored training step; 0 for none
    batch_size: int  # rows of one call
    min_age: int  # updates after which targets are old enough; before that there is nothing to reanalyse
    slack: float  # rows that it may be behind before it goes first

    def num_owed(self, progress: rate_limiting.Progress) -> float:
        """Returns how many rows are missing to the ratio; negative if there are too many."""
        return self.per_insert * progress.num_inserts - progress.num_reanalyses * self.batch_size

    def is_owed(self, progress: rate_limiting.Progress) -> bool:
        """Returns whether a whole call is owed and may find targets that are old enough."""
        return (
            self.per_insert > 0 and progress.num_updates > self.min_age and self.num_owed(progress) >= self.batch_size
        )


class SampleBand(NamedTuple):
    """The samples-per-insert band, together with the reanalyses."""

    samples_per_insert: float  # the ratio to keep
    batch_size: int  # windows of one update
    min_steps: int  # training steps before the first update
    half_width: float  # of the band, in windows
    reanalysing: ReanalyseRatio
    start: tuple[int, int] = (0, 0)  # updates and training steps under another ratio, before a resume changed it
    lock_step: bool = False  # a deterministic run

    def choose(self, progress: rate_limiting.Progress, now: float) -> rate_limiting.Work:
        """Returns the next call."""
        return choose_lock_step(self, progress) if self.lock_step else choose(self, progress)

    @property
    def until(self) -> float:
        """Returns infinity, because the clock changes nothing."""
        return math.inf

    def surplus(self, progress: rate_limiting.Progress) -> float:
        """Returns how many windows training has had beyond the ratio; negative if too few."""
        num_updates, num_inserts = progress.num_updates - self.start[0], progress.num_inserts - self.start[1]
        return num_updates * self.batch_size - self.samples_per_insert * num_inserts

    def debt(self, progress: rate_limiting.Progress) -> float:
        """Returns how many updates or reanalyses are missing, in half widths of the band; 0 before the first."""
        if progress.num_kept < self.min_steps:
            return 0.0
        debt, reanalysing = -self.surplus(progress) / self.half_width, self.reanalysing
        return max(debt, reanalysing.num_owed(progress) / reanalysing.slack) if reanalysing.per_insert else debt

    def num_due(self, progress: rate_limiting.Progress) -> int:
        """Returns how many updates are missing to the ratio; 0 before the first."""
        if progress.num_kept < self.min_steps:
            return 0
        return max(0, math.ceil(-self.surplus(progress) / self.batch_size))


def make_band(
    replay: sections.ReplayConfig, reanalyse: base.Reanalyse | None, max_batch: int, *, lock_step: bool = False
) -> SampleBand:
    """Returns the band of a configuration.

    Args:
      replay: the configured ratio.
      reanalyse: the ratio of reanalysed rows.
      max_batch: most steps that one acting call inserts. The band is at least as wide as one call of either kind;
        otherwise the two sides would block each other.
      lock_step: whether the run is deterministic.
    """

    def width(per_insert: float, least: float) -> float:
        return max(_TOLERANCE * per_insert * replay.min_steps, least, per_insert * max_batch)

    reanalysing = ReanalyseRatio(0.0, 1, 0, 0.0)
    if reanalyse is not None:
        slack = width(reanalyse.per_insert, 2.0 * reanalyse.batch_size)
        reanalysing = ReanalyseRatio(reanalyse.per_insert, reanalyse.batch_size, reanalyse.min_age, slack)
    half_width = width(replay.samples_per_insert, float(replay.batch_size))
    return SampleBand(
        replay.samples_per_insert, replay.batch_size, replay.min_steps, half_width, reanalysing, lock_step=lock_step
    )


def owed_updates(replay: sections.ReplayConfig, num_env_steps: int, start: tuple[int, int]) -> int:
    """Returns the updates due for a run's training steps, with the final ones.

    start: as in `SampleBand`.
    """
    owed = (num_env_steps - start[1]) * replay.samples_per_insert / replay.batch_size
    return start[0] + int(owed) + replay.final_updates


def start_of(replay: sections.ReplayConfig, counters: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the step at which the ratio begins to hold, as in `SampleBand`, for a resumed run.

    A ratio that a resume changes is valid from there on: nothing is owed or saved up for the time before. `counters`:
    the counters of a checkpoint.
    """
    saved = counters["pace"]
    if saved["samples_per_insert"] != replay.samples_per_insert:
        return counters["num_updates"], counters["ledger"]["stored"]
    num_updates, num_steps = saved["since"]
    return num_updates, num_steps


def choose(band: SampleBand, progress: rate_limiting.Progress) -> rate_limiting.Work:
    """Returns the next call of a normal run."""
    warming_up = progress.num_kept < band.min_steps
    surplus = float("-inf") if progress.only_learns else band.surplus(progress)
    may_update = progress.can_update and not warming_up and surplus < band.half_width
    may_act = progress.can_act and (warming_up or surplus > -band.half_width)
    if progress.can_evaluate and not (may_act and progress.evaluated_last):
        return rate_limiting.Work.EVALUATE
    reanalysing = band.reanalysing
    may_reanalyse = progress.can_reanalyse and not warming_up and reanalysing.is_owed(progress)
    is_below = may_update and surplus <= -band.half_width
    if may_reanalyse and reanalysing.num_owed(progress) > reanalysing.slack and not is_below:
        return rate_limiting.Work.REANALYSE
    if may_act:
        return rate_limiting.Work.ACT
    if may_update:
        return rate_limiting.Work.UPDATE
    return rate_limiting.Work.REANALYSE if may_reanalyse else rate_limiting.Work.WAIT


def choose_lock_step(band: SampleBand, progress: rate_limiting.Progress) -> rate_limiting.Work:
    """Returns the next call of a deterministic run, which depends on counters alone and never on arrival times."""
    if progress.evaluating:
        return rate_limiting.Work.EVALUATE if progress.can_evaluate else rate_limiting.Work.WAIT
    warm = progress.num_kept >= band.min_steps
    if warm and (progress.only_learns or band.surplus(progress) + band.batch_size <= 0):
        return rate_limiting.Work.UPDATE if progress.can_update else rate_limiting.Work.WAIT
    if warm and band.reanalysing.is_owed(progress):
        return rate_limiting.Work.REANALYSE if progress.can_reanalyse else rate_limiting.Work.WAIT
    return rate_limiting.Work.ACT if progress.can_act else rate_limiting.Work.WAIT


class ReplayRateLimiter(rate_limiting.RateLimiter):
    """Paces a replay by the samples-per-insert band; in lock step, exactly the updates that are owed run."""

    def __init__(self, band: SampleBand, replay: sections.ReplayConfig) -> None:
        self._band, self._replay = band, replay

    def rate(self) -> SampleBand:
        return self._band

    def feed(self, num_inserts: int, now: float) -> steps.Feed:
        return steps.wrapped(num_inserts)

    def num_samples(self, num_updates: int, num_stored: int) -> int:
        return num_updates * self._band.batch_size

    def owed_updates(self, num_env_steps: int) -> int:
        return owed_updates(self._replay, num_env_steps, self._band.start)

    def restart(self, num_updates: int, num_inserts: int) -> int:
        self._band = self._band._replace(start=(num_updates, num_inserts))
        return 0

    def to_json(self) -> dict[str, Any]:
        return {"pace": {"samples_per_insert": self._replay.samples_per_insert, "since": self._band.start}}

    def restore(self, counters: Mapping[str, Any]) -> None:
        self._band = self._band._replace(start=start_of(self._replay, counters))
