"""What the device does next: pure rules over counters, one for normal runs and one for lock step.

Samples per insert is the number of windows trained on for each stored training step. Its band decides:
below the band only updates run, above it only acting, inside it acting goes first. Evaluation is exempt.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from seedzero.core import config


class Work(enum.Enum):
    """One call on the device, or none."""

    ACT = "act"
    EVALUATE = "evaluate"
    UPDATE = "update"
    WAIT = "wait"


class Progress(NamedTuple):
    """What the rules look at.

    Attributes:
      num_inserts: training steps stored since the run began, resumes included.
      num_kept: of these, the ones that went into this replay: fewer after a resume without the saved replay.
      num_updates: updates dispatched since the run began, resumes included.
      can_act: training observations are ready (in lock step: of every training environment).
      can_evaluate: evaluation observations are ready and an evaluation is under way.
      can_update: the update is compiled and the replay can be sampled.
      evaluating: an evaluation is under way.
      evaluated_last: the last acting call was an evaluation's.
    """

    num_inserts: int
    num_kept: int
    num_updates: int
    can_act: bool
    can_evaluate: bool
    can_update: bool
    evaluating: bool
    evaluated_last: bool


class Limiter(NamedTuple):
    """The samples-per-insert band.

    Attributes:
      samples_per_insert: the ratio to keep.
      batch_size: windows of one update.
      min_steps: training steps before the first update.
      half_width: of the band, in windows.
    """

    samples_per_insert: float
    batch_size: int
    min_steps: int
    half_width: float

    def surplus(self, progress: Progress) -> float:
        """Returns the windows trained on beyond (negative: short of) the ratio."""
        return progress.num_updates * self.batch_size - self.samples_per_insert * progress.num_inserts


def make(replay: config.ReplayConfig, max_batch: int) -> Limiter:
    """Returns the band of a configuration.

    Args:
      replay: the configured ratio and tolerance.
      max_batch: most steps that one acting call inserts; the band is never narrower than one call of either
        kind, or the two sides would stop each other.
    """
    half_width = max(
        replay.tolerance * replay.samples_per_insert * replay.min_steps,
        float(replay.batch_size),
        replay.samples_per_insert * max_batch,
    )
    return Limiter(replay.samples_per_insert, replay.batch_size, replay.min_steps, half_width)


def choose(limiter: Limiter, progress: Progress) -> Work:
    """Returns the next call of a normal run."""
    warming_up = progress.num_kept < limiter.min_steps
    surplus = limiter.surplus(progress)
    may_update = progress.can_update and not warming_up and surplus < limiter.half_width
    may_act = progress.can_act and (warming_up or surplus > -limiter.half_width)
    if progress.can_evaluate and not (may_act and progress.evaluated_last):
        return Work.EVALUATE
    if may_act:
        return Work.ACT
    return Work.UPDATE if may_update else Work.WAIT


def choose_lock_step(limiter: Limiter, progress: Progress) -> Work:
    """Returns the next call of a deterministic run: it depends on counters alone, never on arrival times."""
    if progress.evaluating:
        return Work.EVALUATE if progress.can_evaluate else Work.WAIT
    owed = progress.num_kept >= limiter.min_steps and limiter.surplus(progress) + limiter.batch_size <= 0
    if owed:
        return Work.UPDATE if progress.can_update else Work.WAIT
    return Work.ACT if progress.can_act else Work.WAIT
