"""Evaluation beside training: whole episodes with a frozen copy of the parameters, in environments of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seedzero.agents import base
from seedzero.config import sections
from seedzero.device import batch as batches
from seedzero.evaluation import evaluation, human_scores
from seedzero.loop import roster as rosters


class Running(NamedTuple):
    """An evaluation under way: its environments, frozen parameters, and the episodes so far."""

    session: rosters.Session
    update: int  # of the run when it began
    env_steps: int  # likewise
    params: base.Params
    played: evaluation.Played
    began: float  # in seconds


class Ended(NamedTuple):
    """A finished evaluation. Its score is the mean return, of several tasks human_normalized."""

    running: Running
    result: evaluation.Scores
    human_normalized: float | None  # score of `human_scores.of`; None where there is none
    is_best: bool  # its score is the highest but the baseline's
    is_record: bool  # its score is higher than those of all before, at least one, the baseline's among them
    cut_short: bool  # its episodes were not all played to their ends: the score says little, and is neither
    best_score: float | None = None  # the highest of all so far, the baseline's among them


class Bound(NamedTuple):
    """The limits of a run's last evaluation."""

    seconds: float = 600.0  # since the end of the run's budget
    num_steps: float = math.inf  # of all its environments


CUT_SHORT = "cut_short"
"""In a last result, as JSON: it is no return of whole episodes, and ends no run."""
IN_LAST = "in_last_evaluation"
"""In a checkpoint's counters: it was made during the run's last evaluation, which a resume plays anew."""
SILENCE_SECONDS = 60.0
"""Time without a step of the evaluating environments after which a run ends without its last evaluation: they may be
gone. Training waits for no evaluation that is so silent."""
LEAST_SECONDS = 10.0
PAUSES = 4.0
"""Least time before an evaluation that time makes due, by the time that the last one took. Beside one training has
about half of its speed, so it loses a tenth at most."""


def bound(run: sections.RunConfig, config: sections.EvaluationConfig, num_steps: int) -> Bound:
    """Returns the limits of a run's last evaluation, for possibly endless episodes; num_steps: of training.

    It is a tenth of --max_seconds. Without that budget nobody was promised a time. Deterministic runs read no clock: a
    tenth of the steps, and for short runs at least a tenth of the limit of all episodes.
    """
    if run.deterministic:
        return Bound(math.inf, max(num_steps, config.episodes * config.max_episode_steps) // 10)
    return Bound(max(LEAST_SECONDS, run.max_seconds / 10)) if run.max_seconds else Bound()


class Evaluator:
    """Knows when an evaluation is due, follows its episodes, and remembers the best. Used by the loop's thread.

    One is due after `every_updates`, or after `every_seconds`, whichever comes first: agents differ in their updates a
    second by a factor of a thousand. The first one, before the first period is over, is a baseline and never the best;
    it has two periods, as agents that know nothing may play without end. One more is due where a budget ends the run;
    it is cut at a bound.
    """

    def __init__(self, config: sections.EvaluationConfig, env_id: str = "", *, now: float = 0.0) -> None:
        self._config = config
        self._env_id = env_id
        self.running: Running | None = None
        self.last: Mapping[str, Any] | None = None  # the last result, as JSON
        self.acted_last = False  # the last acting call was an evaluation's
        self.ends = False  # a budget is spent: the run ends with the next result
        self.is_awaited = False  # the run waits for that, or for the environments that play it
        self._began_to_end = self._last_step = 0.0
        self._bound = Bound()
        self._due, self._due_at = 0, _time_after(now, now, config.every_seconds)  # by updates, and by the clock
        self._best_return = self._highest = -math.inf  # but the baseline's, and of all

    def is_due(self, num_updates: int, now: float) -> bool:
        """Returns whether the next evaluation is due; `now` in seconds, as in all methods."""
        if self._config.every_updates == 0 or num_updates == 0:
            return False
        is_known = self.last is not None and self.last["update"] == num_updates
        return num_updates >= self._due or ((self.ends or now >= self._due_at) and not is_known)

    def end(self, now: float, bound: Bound) -> None:
        """Makes the next evaluation the last one."""
        self.ends, self._bound = True, bound
        self._began_to_end = self._last_step = now

    def seconds_left(self, now: float) -> float | None:
        """Returns the seconds left of the wait for the last evaluation; None: the run goes on."""
        if not self.ends:
            return None
        if self.running is not None and self.running.played.num_steps >= self._bound.num_steps:
            return 0.0
        limit = min(self._last_step + SILENCE_SECONDS, self._began_to_end + self._bound.seconds)
        return max(0.0, limit - now)

    def pause_left(self, now: float) -> float | None:
        """Returns how long training still waits for the environments of an evaluation; None: it waits for none."""
        if not self._config.pauses_training or self.running is None:
            return None
        return max(0.0, self._last_step + SILENCE_SECONDS - now)

    def remaining(self) -> str:
        """Any thread: returns the rest of an ending run's work; "": the run goes on."""
        running = self.running  # another thread may set it to None
        if not self.ends or running is None:
            return ""
        return f"last evaluation: {running.played.state}"

    def begin(
        self,
        session: rosters.Session,
        num_updates: int,
        params: base.Params,
        tasks: Sequence[str] = (),
        *,
        now: float,
        env_steps: int = 0,
    ) -> None:
        """Starts an evaluation in the environments of a session, of these tasks; the parameters are a copy.

        env_steps: training steps stored so far.
        """
        self._last_step = now
        limit = self._config.max_episode_steps
        played = evaluation.Played(session.all_slots, self._config.episodes, tasks, max_steps=limit)
        self.running = Running(session, num_updates, env_steps, params, played, now)

    def record(self, messages: Sequence[batches.Message], num_updates: int, now: float) -> Ended | None:
        """Adds observations, after a number of updates; returns a complete evaluation."""
        running = self.running
        assert running is not None
        self._last_step = now
        self.acted_last = True
        is_late = not self.ends and 0 < 2 * self._config.every_seconds <= now - running.began
        is_late |= num_updates >= 2 * self._config.every_updates
        in_a_hurry = self._is_baseline(running) and is_late
        if in_a_hurry:
            running.played.hurry()
        for message in messages:
            running.played.record(message.slots, message.request.step, message.request.first)
        return self._end(running, now, in_a_hurry) if running.played.done else None

    def abandon(self) -> None:
        """Ends the evaluation under way, if any, without a result."""
        self.running = None

    def wait_for_last(self, now: float, *, can_come: bool = True) -> bool:
        """Returns whether the run still waits for its last evaluation, for checkpoints; can_come: or may."""
        self.is_awaited = can_come and bool(self.seconds_left(now))
        return self.is_awaited

    def cut_last(self, now: float) -> Ended | None:
        """Ends the last evaluation at its limits, with the finished episodes; None: not yet, or no episode."""
        running = self.running
        if running is None or not running.played.num_finished or self.seconds_left(now) != 0.0:
            return None
        return self._end(running, now, in_a_hurry=False)

    def _is_baseline(self, running: Running) -> bool:
        return self.last is None and running.update < self._config.every_updates

    def _end(self, running: Running, now: float, in_a_hurry: bool) -> Ended:
        result = running.played.result()
        normalized = human_scores.of(self._env_id, result)
        # Of several tasks with published scores the capped mean of these is what is best at its highest.
        score = result.mean_return if normalized is None or not result.task_returns else normalized
        cut_short = result.unfinished > 0 or (in_a_hurry and result.cut_off > 0)
        is_best = not (cut_short or self._is_baseline(running)) and score > self._best_return
        is_record = not cut_short and score > self._highest > -math.inf
        if is_best:
            self._best_return = score
        if not cut_short:
            self._highest = max(self._highest, score)
        shown: dict[str, Any] = {} if normalized is None else {"human_normalized": normalized}
        shown |= {CUT_SHORT: True} if cut_short else {}
        self.last = {"update": running.update, **result.to_json(), **shown}
        self._due = _due_after(running.update, self._config.every_updates)
        self._due_at = _time_after(running.began, now, self._config.every_seconds)
        self.running, self.is_awaited = None, False
        return Ended(running, result, normalized, is_best, is_record, cut_short, _or_none(self._highest))

    def to_json(self) -> dict[str, Any]:
        """Returns the part of a checkpoint's counters."""
        return {
            "last_evaluation": self.last,
            "evaluation_due": self._due,
            "best_return": _or_none(self._best_return),
            "highest_return": _or_none(self._highest),
            IN_LAST: self.is_awaited,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continues a checkpoint's counters; a period that the resume changed holds from the last evaluation on."""
        self.last = saved["last_evaluation"]
        self._due = saved["evaluation_due"]
        if self.last is not None and self._config.every_updates:
            self._due = _due_after(self.last["update"], self._config.every_updates)
        best, highest = saved["best_return"], saved["highest_return"]
        self._best_return = -math.inf if best is None else best
        self._highest = self._best_return if highest is None else max(self._best_return, highest)


def _due_after(update: int, every: int) -> int:
    return (update // every + 1) * every


def _time_after(began: float, ended: float, every_seconds: float) -> float:
    """Returns the time that makes the next evaluation due; infinity: none does."""
    return ended + max(every_seconds, PAUSES * (ended - began)) if every_seconds else math.inf


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
