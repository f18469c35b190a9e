"""Collects causes that end a run, ends a learner whose call is stuck, and describes how training ended."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
import threading
import time
from collections.abc import Callable

from seedzero.config import configs
from seedzero.core import errors
from seedzero.device import patience
from seedzero.monitoring.metrics import counts


# Describes how a training ended, for its caller.
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


def read_result(checkpoints: pathlib.Path, run_dir: str, *, finished: str) -> Result:
    """Returns the result of a training. finished: why it ended, or "" for a stop.

    Raises CheckpointError if a manifest cannot be read.
    """
    from seedzero.storage.checkpoints import saved_files  # loads JAX, which callers that only wait do without

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
    """Returns whether the budget of steps ends before the first update; each of several hosts has a share of it."""
    share = -(-config.run.max_env_steps // config.cluster.num_hosts)
    return config.agent.SAMPLES and 0 < share < config.replay.min_steps


def without_updates(config: configs.Config) -> str:
    """Explains why training ends before the first update."""
    if lacks_steps(config):
        shared = f", shared by {config.cluster.num_hosts} hosts," if config.cluster.num_hosts > 1 else ""
        return (
            f"--max_env_steps={config.run.max_env_steps}{shared} is less than "
            f"--replay.min_steps={config.replay.min_steps}{' of each' if shared else ''}, which come before the first "
            "update"
        )
    return "compilation and a first batch come before the first update"


# Ends a learner that runs out of time in a stuck call, which nothing can interrupt.
GRACE_SECONDS = 10.0
"""How long one call may last after the end of the budget."""
_LOOK_SECONDS = 0.5


@dataclasses.dataclass(eq=False)
class Deadline:
    """Leaves once a call has taken `GRACE_SECONDS` since the budget's end; if calls return, others may follow."""

    seconds_left: Callable[[], float]  # returns what is left of the budget; negative if it is over
    # returns a value that changes with every call that returns; None if no call is in flight
    pulse: Callable[[], object | None]
    leave: Callable[[], None]  # ends the process

    def __post_init__(self) -> None:
        self._last: object | None = None
        self._since = 0.0  # what was left of the budget when the pulse changed, at most 0

    def watched(self) -> contextlib.AbstractContextManager[None]:
        """Watches from a separate thread while entered, because the main thread may wait for a call, too."""

        def watch(over: threading.Event) -> None:
            while not over.wait(_LOOK_SECONDS):
                self.look()

        return patience.beside("deadline", watch)

    def look(self) -> None:
        """Leaves if it is time."""
        left, pulse = self.seconds_left(), self.pulse()
        if pulse is None or pulse != self._last or left > 0:
            self._last, self._since = pulse, min(left, 0.0)
        elif left <= self._since - GRACE_SECONDS:
            self.leave()


class Ending:
    """Wakes the main thread."""

    def __init__(self) -> None:
        self.interrupted_at = math.inf  # of time.monotonic(): when the user or the machine first asked for a stop
        self.failure: errors.TrainingFailure | None = None  # of a worker or the bucket; training cannot continue
        self._wake = threading.Event()

    @property
    def is_interrupted(self) -> bool:
        """Whether the user or the machine asked for a stop."""
        return self.interrupted_at < math.inf

    def interrupt(self) -> None:
        """Any thread: asks for a stop."""
        self.interrupted_at = min(self.interrupted_at, time.monotonic())
        self._wake.set()

    def fail(self, reason: str) -> None:
        """Any thread: reports a fatal error of training."""
        self.failure = errors.TrainingFailure(reason)
        self._wake.set()

    def notify(self) -> None:
        """Any thread: wakes the main thread."""
        self._wake.set()

    def wait(self, seconds: float) -> None:
        """Main thread: waits until something has happened, or until a timeout."""
        self._wake.wait(min(seconds, threading.TIMEOUT_MAX))
        self._wake.clear()

    def check(self) -> None:
        """Raises the failure if there is one."""
        if self.failure is not None:
            raise self.failure
