"""The phase of a run is one value, which only the device loop's thread replaces, by the transitions of one table.

RUNNING --SPENT--> LAST_EVALUATION --EVALUATED, GIVEN_UP, SOLVED--> OVER
   |                      |
SOLVED: OVER           STOPPED: INTERRUPTED, so that a resume plays it again
STOPPED: INTERRUPTED
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from seedzero.config import sections
from seedzero.monitoring.metrics import counts

SILENCE_SECONDS = 60.0
"""If the evaluating environments make no step for this time, a run ends without its last evaluation, because they may
be gone. Training does not wait for such an evaluation either."""
LEAST_SECONDS = 10.0

IN_LAST = "in_last_evaluation"
"""In a checkpoint's counters: it was made during the run's last evaluation, which a resume plays again, or with all
steps or updates of its budget, but before it, as those of a queue's several hosts may be."""
LEFT_OUT = "left_out"
"""In a checkpoint's counters: how many updates an ended run skips after its last step, and replay.min_steps then."""


class Phase(enum.Enum):
    RUNNING = "running"
    # a budget is spent: the newest parameters are evaluated, and nothing else runs
    LAST_EVALUATION = "last evaluation"
    OVER = "over"
    INTERRUPTED = "interrupted"  # ended before the last evaluation


class Event(enum.Enum):
    SPENT = "a budget is spent"
    SOLVED = "an evaluation reached the return that was asked for"
    EVALUATED = "the last evaluation is complete, or cut at its bound"
    GIVEN_UP = "the last evaluation cannot come, or came not in time"
    STOPPED = "a stop was asked for"


TRANSITIONS: Mapping[Phase, Mapping[Event, Phase]] = {
    Phase.RUNNING: {Event.SPENT: Phase.LAST_EVALUATION, Event.SOLVED: Phase.OVER, Event.STOPPED: Phase.INTERRUPTED},
    Phase.LAST_EVALUATION: {
        Event.SOLVED: Phase.OVER,
        Event.EVALUATED: Phase.OVER,
        Event.GIVEN_UP: Phase.OVER,
        Event.STOPPED: Phase.INTERRUPTED,
    },
    Phase.OVER: {},
    Phase.INTERRUPTED: {},
}


class Bound(NamedTuple):
    """The limits of a run's last evaluation."""

    seconds: float = 600.0  # counted from the end of the run's budget
    num_steps: float = math.inf  # by all its environments


def bound(run: sections.RunConfig, config: sections.EvaluationConfig, num_steps: int) -> Bound:
    """Returns the limits of a run's last evaluation, for possibly endless episodes; num_steps: of training.

    It may take a tenth of --max_seconds; without that budget, nobody was promised a time. Deterministic runs read no
    clock: they allow a tenth of the steps, and for short runs at least a tenth of the limit of all episodes.
    """
    if run.deterministic:
        return Bound(math.inf, max(num_steps, config.episodes * config.max_episode_steps) // 10)
    return Bound(max(LEAST_SECONDS, run.max_seconds / 10)) if run.max_seconds else Bound()


@dataclasses.dataclass(frozen=True)
class RunEnd:
    """The facts of a run's end at the time its budget was spent."""

    began: float = -math.inf  # in seconds
    bound: Bound = dataclasses.field(default_factory=Bound)
    expects: bool = False  # environments for the last evaluation are there or expected
    left_out: tuple[int, int] = (0, 0)  # updates skipped, and the min_steps that they lacked
    # counters that the last evaluation does not change
    kept: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class RunPhase:
    """The state of a run's end: its phase and the reason."""

    phase: Phase = Phase.RUNNING
    reason: str = ""  # a message, from the last evaluation on
    end: RunEnd = dataclasses.field(default_factory=RunEnd)

    def after(self, event: Event, reason: str = "", end: RunEnd | None = None) -> RunPhase:
        """Returns the phase after an event of the table. reason, end: None or "" keep the present ones."""
        phase = TRANSITIONS[self.phase].get(event)
        if phase is None:
            raise RuntimeError(f"{event.value}: not in the phase {self.phase.value!r} of a run")
        return RunPhase(phase, reason or self.reason, end or self.end)

    @property
    def ends(self) -> bool:
        """Whether the run plays or waits for its last evaluation."""
        return self.phase is Phase.LAST_EVALUATION

    @property
    def over(self) -> str | None:
        """Why the run is over; None if it continues."""
        return self.reason if self.phase in (Phase.OVER, Phase.INTERRUPTED) else None

    def begun_again(self, now: float) -> RunPhase:
        """Returns the phase of a run whose last evaluation has its time from now on.

        now: in seconds; infinity: it has yet to begin.
        """
        return dataclasses.replace(self, end=dataclasses.replace(self.end, began=now))

    def last_until(self, last_step: float, num_steps: int) -> float:
        """Returns the time in seconds at which the last evaluation is given up, which may have passed.

        last_step: time of the newest step of its environments. num_steps: of them, since the evaluation began.
        """
        if num_steps >= self.end.bound.num_steps:
            return -math.inf
        silent_since = max(last_step, self.end.began)
        return min(silent_since + SILENCE_SECONDS, self.end.began + self.end.bound.seconds)

    def to_json(self, *, is_spent: bool) -> dict[str, Any]:
        """Returns the part of a checkpoint's counters. is_spent: whether the budget's steps or updates are there."""
        has_end = is_spent or self.end != RunEnd()  # also one by time, or by the steps of all hosts
        awaits = has_end and self.phase is not Phase.OVER
        return {IN_LAST: awaits, LEFT_OUT: self.end.left_out, **self.end.kept}


def solved(run: sections.RunConfig, evaluated: Mapping[str, Any] | None) -> str:
    """Returns a message about an evaluation that reached the requested return, or "".

    evaluated: the result of whole episodes, or of those before a cut (`counts.CUT_SHORT`), as JSON, or None.
    """
    if evaluated is None or counts.CUT_SHORT in evaluated or not evaluated["mean_return"] >= run.stop_at_return:
        return ""
    return f"evaluation returned {evaluated['mean_return']:g}, --stop_at_return={run.stop_at_return:g}"
