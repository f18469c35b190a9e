"""Measures the link between a worker and the learner, and chooses the groups of environments that hide it.

A worker reports in its heartbeats how long its steps took. The learner knows how long each group was away and how long
it waited for an answer, so the rest is the link's. Messages keep their order, so both count the same steps. Clocks are
passed in; docs/speed.md explains the rule.
"""

from __future__ import annotations

import collections
import math
import statistics
from typing import Any, NamedTuple

WINDOW_SECONDS = 30.0
"""Time of measurements that a decision needs."""
PAUSE_SECONDS = 600.0
"""Shortest time between two decisions about a worker."""
MAX_GROUPS = 64
"""The most groups of environments in one worker."""
_MIN_ENVS = 4  # smaller groups cost more messages than they save time
_SHORT_SECONDS = 0.005  # a shorter round trip is a local one
_LEAST_GAIN = 1.1  # other groups must promise a tenth more steps, because their environments begin again
_ENOUGH = 0.95  # the fewest environments and groups win that promise this share of the most
_DRIFT, _SLACK_SECONDS = 1.05, 0.001  # between the clocks of two machines


class LinkReport(NamedTuple):
    """What a worker has measured since its session's Start: sums over the steps that answered actions."""

    num_steps: int = 0
    step_seconds: float = 0.0  # in which environments stepped
    turn_seconds: float = 0.0  # from the actions' arrival to the step's message, in which other groups step, too

    def plus(self, step_seconds: float, turn_seconds: float) -> LinkReport:
        """Returns the sums with one more step."""
        return LinkReport(self.num_steps + 1, self.step_seconds + step_seconds, self.turn_seconds + turn_seconds)


class WorkerLink(NamedTuple):
    """What was measured of a session: medians over the last half minute, all for one group."""

    num_groups: int
    envs_per_group: int
    step_seconds: float  # in which a group's environments step
    turn_seconds: float  # for which the learner's actions wait in the worker, the step included
    round_trip_seconds: float  # on the way: network, encoding, and waiting to be sent and read
    answer_seconds: float  # for which a step waits for the learner's actions
    bytes_per_second: float  # of messages, both ways
    is_complete: bool = False  # the measurements are long enough for a decision

    @property
    def num_envs(self) -> int:
        return self.num_groups * self.envs_per_group

    @property
    def waits_for(self) -> str:
        """What takes the largest part of a group's time."""
        parts = {"link": self.round_trip_seconds, "learner": self.answer_seconds, "environments": self.turn_seconds}
        return max(parts, key=lambda name: parts[name])

    @property
    def away_seconds(self) -> float:
        """Time from an answer until its step has come, compression included."""
        return self.round_trip_seconds + self.turn_seconds

    @property
    def bound(self) -> float:
        """Steps per second that no grouping of these environments exceeds."""
        return self.num_envs / (self.round_trip_seconds + self.step_seconds)

    @property
    def num_hiding(self) -> int:
        """Environments, in groups of the present size, that keep the worker busy for the whole round trip."""
        wait = self.round_trip_seconds + self.answer_seconds
        return self.envs_per_group * (1 + math.ceil(wait / self.step_seconds))

    @property
    def is_limit(self) -> bool:
        """Whether the link halves the steps, or worse."""
        local = rate(self._replace(round_trip_seconds=0.0), self.num_groups, self.envs_per_group)
        return self.is_complete and self.is_far and self.bound < local / 2

    def to_json(self) -> dict[str, Any]:
        """Returns what the status and pages show."""
        return {
            "round_trip_seconds": round(self.round_trip_seconds, 4),
            "step_seconds": round(self.step_seconds, 5),
            "bytes_per_second": round(self.bytes_per_second),
            "waits_for": self.waits_for,
            **({"environments_needed": self.num_hiding} if self.is_limit else {}),
        }

    @property
    def is_far(self) -> bool:
        """Whether the link is what groups wait for. Behind a busy learner more groups would only wait longer."""
        return self.round_trip_seconds >= max(_SHORT_SECONDS, self.answer_seconds)


def rate(link: WorkerLink, num_groups: int, envs_per_group: int) -> float:
    """Returns the steps per second that groups promise, if a step's time grows with the environments of a group.

    A group comes back after its step, the round trip and the answer; meanwhile each other group steps once.
    """
    step = link.step_seconds * envs_per_group / link.envs_per_group
    cycle = max(num_groups * step, step + link.round_trip_seconds + link.answer_seconds)
    return num_groups * envs_per_group / cycle


def plan(link: WorkerLink, most_envs: int) -> tuple[int, int] | None:
    """Returns the number and the size of groups that hide the link, or None if the present ones do as well.

    Groups are halved, but not below four environments. If that does not suffice, more groups of the present size
    follow. With G groups of step time s the worker is busy if (G - 1) s covers round trip and answer.

    Args:
      most_envs: for which worker and learner have room; fewer than now count as now.
    """
    if not link.is_complete or not link.is_far:
        return None
    size, parts = link.envs_per_group, [1]
    while size % (2 * parts[-1]) == 0 and size // (2 * parts[-1]) >= _MIN_ENVS:
        parts.append(2 * parts[-1])
    smaller = [(link.num_groups * part, size // part) for part in parts]
    more = [(number, size) for number in range(link.num_groups + 1, most_envs // size + 1)]
    found = {groups: rate(link, *groups) for groups in (*smaller, *more) if groups[0] <= MAX_GROUPS}
    best = max(found.values())
    if best < _LEAST_GAIN * rate(link, link.num_groups, link.envs_per_group):
        return None
    enough = [groups for groups, promised in found.items() if promised >= _ENOUGH * best]
    return min(enough, key=lambda groups: (groups[0] * groups[1], groups[0]))


class Meter:
    """Measures a session on the learner's side."""

    def __init__(self, num_groups: int, envs_per_group: int) -> None:
        self._groups = num_groups, envs_per_group
        self.problem = ""  # what the worker cannot have measured, or ""
        self.restart()

    def restart(self) -> None:
        """Forgets all measurements, as after a lost connection."""
        self.link: WorkerLink | None = None  # None without plausible measurements. Any thread may read it
        # Between two reports: both times, means in the order of `WorkerLink`, and bytes per second.
        self._samples: collections.deque[tuple[float, ...]] = collections.deque()
        self._last: tuple[LinkReport, float] | None = None
        self._begin_sample()

    def _begin_sample(self) -> None:
        self._num_away = self._num_answered = self.num_bytes = 0
        self._away_seconds = self._answer_seconds = 0.0

    def stepped(self, seconds: float) -> None:
        """Counts a new step, which came so long after the actions before it."""
        self._num_away += 1
        self._away_seconds += seconds

    def answered(self, seconds: float) -> None:
        """Counts an answer, which went out so long after its step."""
        self._num_answered += 1
        self._answer_seconds += seconds

    def report(self, report: LinkReport, now: float) -> None:
        """Takes a worker's report, which ends a sample. now: in seconds."""
        number, (last, began) = self._num_away, self._last or (report, now)
        if self._last and report.num_steps == last.num_steps and not number:
            return  # slow environments: the sample continues
        if number and self._num_answered and report.num_steps - last.num_steps == number:
            step, turn = ((after - before) / number for before, after in zip(last[1:], report[1:], strict=True))
            away, answer = self._away_seconds / number, self._answer_seconds / self._num_answered
            if not (0 < step <= turn <= away * _DRIFT + _SLACK_SECONDS):  # not for NaN either, which compares as false
                self.problem = self.problem or f"steps of {step:g} s, which came back after {away:.3g} s"
            per_second = self.num_bytes / max(now - began, 1e-9)
            self._samples.append((began, now, step, turn, max(0.0, away - turn), answer, per_second))
            while len(self._samples) > 1 and now - self._samples[1][0] >= WINDOW_SECONDS:
                self._samples.popleft()
            _, _, step, turn, trip, answer, per_second = map(statistics.median, zip(*self._samples, strict=True))
            is_complete = now - self._samples[0][0] >= WINDOW_SECONDS
            link = WorkerLink(*self._groups, step, turn, trip, answer, per_second, is_complete)
            self.link = None if self.problem else link
        self._last = report, now
        self._begin_sample()
