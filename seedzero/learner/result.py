"""Describes how a training ended, for its caller."""

from __future__ import annotations

import dataclasses
import pathlib

from seedzero.config import configs
from seedzero.monitoring.metrics import counts
from seedzero.storage.checkpoints import saved_files


@dataclasses.dataclass(frozen=True)
class Result:
    """How a training ended. The counters are those of the newest checkpoint, or 0 without one.

    Attributes:
      run_dir: absolute directory of the run, or its URL in a bucket.
      is_finished: true if a budget is spent or a return is reached; false if training was stopped, and the same call
        resumes it.
      reason: what ended it, in one phrase.
      num_env_steps: training steps, across resumes.
      num_updates: updates, across resumes.
      best_return: highest mean return of an evaluation, including the first; None if there was none. For several tasks
        with published scores, it is the highest capped mean of these.
      last_return: mean return of the last evaluation, or over the episodes that ended if it was cut; None if there was
        none.
    """

    run_dir: str
    is_finished: bool
    reason: str
    num_env_steps: int = 0
    num_updates: int = 0
    best_return: float | None = None
    last_return: float | None = None


def read(checkpoints: pathlib.Path, run_dir: str, *, finished: str) -> Result:
    """Returns the result of a training. finished: why it ended, or "" for a stop.

    Raises CheckpointError if a manifest cannot be read.
    """
    ended = Result(run_dir, bool(finished), finished or "stopped")
    newest = max(saved_files.manifests(checkpoints), key=lambda found: found.step, default=None)
    if newest is None:
        return ended
    counters, last = newest.counters, newest.counters["last_evaluation"]
    scores = [score for score in (counters["best_return"], counters.get("highest_return")) if score is not None]
    return dataclasses.replace(
        ended,
        num_env_steps=counts.env_steps_of(counters),
        num_updates=counters["num_updates"],
        best_return=max(scores, default=None),
        last_return=None if last is None else last["mean_return"],
    )


def lacks_steps(config: configs.Config) -> bool:
    """Returns whether the budget of steps ends before the first update."""
    return config.agent.SAMPLES and 0 < config.run.max_env_steps < config.replay.min_steps


def without_updates(config: configs.Config) -> str:
    """Explains why training ends before the first update."""
    if lacks_steps(config):
        return (
            f"--max_env_steps={config.run.max_env_steps} is less than --replay.min_steps={config.replay.min_steps}, "
            "which come before the first update"
        )
    return "compilation and a first batch come before the first update"
