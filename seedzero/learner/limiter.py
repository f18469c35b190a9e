"""What the device does next: pure rules over counters, one for normal runs and one for lock step.

Samples per insert is the number of windows trained on for each stored training step. Its band decides:
below the band only updates run, above it only acting, inside it acting goes first. Evaluation is exempt.

Reanalysing, where it is on, keeps a ratio of its own: positions searched anew for each stored training step. In a
normal run it fills the device where nothing else can run; on a device that is never idle it goes before acting and
before updates inside the band, once it is more than a slack behind. It never goes before the updates that are owed
below the band: they make the parameters that it is to search with. In lock step it runs when a whole call is owed,
after the updates that are owed and before the next acting.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from seedzero.config import config


class Work(enum.Enum):
    """One call on the device, or none."""

    ACT = "act"
    EVALUATE = "evaluate"
    UPDATE = "update"
    REANALYSE = "reanalyse"
    WAIT = "wait"


class Progress(NamedTuple):
    """What the rules look at.

    Attributes:
      num_inserts: training steps stored since the run began, resumes included.
      num_kept: of these, the ones that went into this replay: fewer after a resume without the saved replay.
      num_updates: updates dispatched since the run began, resumes included.
      num_reanalyses: calls that reanalyse, dispatched since the run began, resumes included.
      can_act: training observations are ready (in lock step: of every training environment).
      can_evaluate: evaluation observations are ready and an evaluation is under way.
      can_update: the update is compiled, the replay can be sampled, and no frames are being read for it.
      can_reanalyse: the same of the call that reanalyses.
      evaluating: an evaluation is under way.
      evaluated_last: the last acting call was an evaluation's.
    """

    num_inserts: int
    num_kept: int
    num_updates: int
    num_reanalyses: int
    can_act: bool
    can_evaluate: bool
    can_update: bool
    can_reanalyse: bool
    evaluating: bool
    evaluated_last: bool


class Reanalysis(NamedTuple):
    """The ratio of reanalysed positions.

    Attributes:
      per_insert: positions for each stored training step; 0: none.
      batch_size: positions of one call.
      min_age: updates after which targets are old enough; before the run has had more there is nothing to renew.
      slack: positions that it may be behind before it goes first.
    """

    per_insert: float
    batch_size: int
    min_age: int
    slack: float

    def num_owed(self, progress: Progress) -> float:
        """Returns the positions short of (negative: beyond) the ratio."""
        return self.per_insert * progress.num_inserts - progress.num_reanalyses * self.batch_size

    def is_owed(self, progress: Progress) -> bool:
        """Returns whether a whole call is owed, and may find targets that are old enough."""
        return (
            self.per_insert > 0 and progress.num_updates > self.min_age and self.num_owed(progress) >= self.batch_size
        )


class Limiter(NamedTuple):
    """The samples-per-insert band, and what is reanalysed beside it.

    Attributes:
      samples_per_insert: the ratio to keep.
      batch_size: windows of one update.
      min_steps: training steps before the first update.
      half_width: of the band, in windows.
      reanalysis: its own ratio.
    """

    samples_per_insert: float
    batch_size: int
    min_steps: int
    half_width: float
    reanalysis: Reanalysis

    def surplus(self, progress: Progress) -> float:
        """Returns the windows trained on beyond (negative: short of) the ratio."""
        return progress.num_updates * self.batch_size - self.samples_per_insert * progress.num_inserts


def make(replay: config.ReplayConfig, reanalyse: config.ReanalyseConfig, max_batch: int) -> Limiter:
    """Returns the band of a configuration.

    Args:
      replay: the configured ratio and tolerance.
      reanalyse: the configured ratio of reanalysed positions; the tolerance is the same.
      max_batch: most steps that one acting call inserts; the band is never narrower than one call of either
        kind, or the two sides would stop each other.
    """
    half_width = max(
        replay.tolerance * replay.samples_per_insert * replay.min_steps,
        float(replay.batch_size),
        replay.samples_per_insert * max_batch,
    )
    slack = max(
        replay.tolerance * reanalyse.per_insert * replay.min_steps,
        2.0 * reanalyse.batch_size,
        reanalyse.per_insert * max_batch,
    )
    reanalysis = Reanalysis(reanalyse.per_insert, reanalyse.batch_size, reanalyse.min_age, slack)
    return Limiter(replay.samples_per_insert, replay.batch_size, replay.min_steps, half_width, reanalysis)


def choose(limiter: Limiter, progress: Progress) -> Work:
    """Returns the next call of a normal run."""
    warming_up = progress.num_kept < limiter.min_steps
    surplus = limiter.surplus(progress)
    may_update = progress.can_update and not warming_up and surplus < limiter.half_width
    may_act = progress.can_act and (warming_up or surplus > -limiter.half_width)
    if progress.can_evaluate and not (may_act and progress.evaluated_last):
        return Work.EVALUATE
    reanalysis = limiter.reanalysis
    may_reanalyse = progress.can_reanalyse and not warming_up and reanalysis.is_owed(progress)
    is_below = may_update and surplus <= -limiter.half_width
    if may_reanalyse and reanalysis.num_owed(progress) > reanalysis.slack and not is_below:
        return Work.REANALYSE
    if may_act:
        return Work.ACT
    if may_update:
        return Work.UPDATE
    return Work.REANALYSE if may_reanalyse else Work.WAIT


def choose_lock_step(limiter: Limiter, progress: Progress) -> Work:
    """Returns the next call of a deterministic run: it depends on counters alone, never on arrival times."""
    if progress.evaluating:
        return Work.EVALUATE if progress.can_evaluate else Work.WAIT
    warm = progress.num_kept >= limiter.min_steps
    if warm and limiter.surplus(progress) + limiter.batch_size <= 0:
        return Work.UPDATE if progress.can_update else Work.WAIT
    if warm and limiter.reanalysis.is_owed(progress):
        return Work.REANALYSE if progress.can_reanalyse else Work.WAIT
    return Work.ACT if progress.can_act else Work.WAIT
