"""Evaluates during training: whole episodes with a frozen copy of the parameters, in separate environments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.agents import base
from seedzero.config import sections
from seedzero.core import json_object
from seedzero.device import batches
from seedzero.learner.loop import phase, rosters, seatings
from seedzero.monitoring.metrics import counts, episodes


class Running(NamedTuple):
    """A running evaluation: its environments, frozen parameters, and the episodes so far."""

    session: rosters.Session
    update: int  # the run's, when it began
    env_steps: int  # likewise
    params: Mapping[str, base.Params]  # one for each acting player, by name
    played: episodes.Played
    began: float  # in seconds
    measured: np.ndarray  # [B] slots whose episodes count
    policies: Sequence[str]  # [S] the policy of each agent of a game, all of which play; () in other evaluations


class Ended(NamedTuple):
    """A finished evaluation.

    Its score is the mean return; with several tasks that have published scores, human_normalized. Where the returns of
    a game's agents cancel out there is none, so it is neither best nor record.
    """

    running: Running
    result: episodes.Scores
    human_normalized: float | None  # score by `episodes.human_score_of`; None if there is none
    is_best: bool  # its score is the highest, not counting the baseline's
    is_record: bool  # its score is higher than all before, of which there is at least one, counting the baseline's
    cut_short: bool  # some episodes were not played until they ended: the score means little, and it is neither
    best_score: float | None = None  # the highest score of all so far, counting the baseline's


PAUSES = 4.0
"""Least time before an evaluation that time makes due, as a multiple of how long the last one took. Training has about
half its speed beside an evaluation, so it loses at most a tenth."""


class Evaluator:
    """Decides when an evaluation is due, follows its episodes, and remembers the best. For the loop's thread.

    One is due after `every_updates` or `every_seconds`, whichever comes first, because agents differ in their updates
    per second by a factor of a thousand. The first one begins before the first period is over; it is a baseline and
    never the best. It may take two periods, because untrained agents may play forever. One more is due when a budget
    ends the run; it is cut at a bound.
    """

    def __init__(
        self,
        config: sections.EvaluationConfig,
        env_id: str = "",
        *,
        now: float = 0.0,
        policies_of: Callable[[Sequence[str]], Sequence[str]] = tuple,
    ) -> None:
        """policies_of: returns the policy of each agent of a game, or () if one policy plays for all."""
        self._config, self._env_id, self._policies_of = config, env_id, policies_of
        self.running: Running | None = None
        self.last: Mapping[str, Any] | None = None  # the last result, as JSON
        self.last_step = 0.0  # time of the newest step, or of the start
        self._due, self._due_at = 0, _time_after(now, now, config.every_seconds)  # by updates, and by the clock
        self._best_return = self._highest = -math.inf  # of all but the baseline, and of all

    def is_due(self, num_updates: int, now: float, *, is_last: bool = False) -> bool:
        """Returns whether the next evaluation is due in a run that ends (is_last) or continues. now: in seconds."""
        if self._config.every_updates == 0 or num_updates == 0:
            return False
        is_known = self.last is not None and self.last["update"] == num_updates
        return num_updates >= self._due or ((is_last or now >= self._due_at) and not is_known)

    @property
    def pause_until(self) -> float:
        """The time until which training waits for an evaluation's environments; minus infinity if it does not wait."""
        waits = self._config.pauses_training and self.running is not None
        return self.last_step + phase.SILENCE_SECONDS if waits else -math.inf

    def begin(
        self,
        session: rosters.Session,
        num_updates: int,
        params: Mapping[str, base.Params],
        *,
        now: float,
        env_steps: int = 0,
        sides: Sequence[int] = (),
    ) -> None:
        """Starts an evaluation in the environments of a session. The parameters, by player, are copies.

        env_steps: training steps stored so far. sides: as in `Seating`.
        """
        self.last_step = now
        limit, num_seats, wanted = self._config.max_episode_steps, session.num_seats, self._config.episodes
        slots = seatings.measured(sides, session.all_slots)
        if sides:  # each place of its own plays as many episodes
            num_seats, wanted = 0, -(-wanted // len(session.all_slots)) * len(slots)
        agents = session.tasks if num_seats else ()
        policies = (agents and self._policies_of(agents)) or agents
        played = episodes.Played(slots, wanted, session.tasks, max_steps=limit, num_seats=num_seats)
        self.running = Running(session, num_updates, env_steps, params, played, now, slots, policies)

    def record(
        self, messages: Sequence[batches.Message], num_updates: int, now: float, *, is_last: bool = False
    ) -> Ended | None:
        """Adds observations after a number of updates, and returns an evaluation once complete.

        is_last: it ends the run.
        """
        running = self.running
        assert running is not None
        self.last_step = now
        is_late = not is_last and 0 < 2 * self._config.every_seconds <= now - running.began
        is_late |= num_updates >= 2 * self._config.every_updates
        in_a_hurry = self._is_baseline(running) and is_late
        if in_a_hurry:
            running.played.hurry()
        for message in messages:
            slots, step, first = message.slots, message.request.step, message.request.first
            if not (counts := np.isin(slots, running.measured)).all():
                slots, step, first = slots[counts], step.those(counts), first[counts]
            running.played.record(slots, step, first)
        return self._end(running, now, in_a_hurry) if running.played.done else None

    def abandon(self) -> None:
        """Ends the running evaluation, if any, without a result."""
        self.running = None

    def cut(self) -> Ended | None:
        """Ends the evaluation with its finished episodes; returns None, without ending it, if there are none."""
        running = self.running
        if running is None or not running.played.num_finished:
            return None
        return self._end(running, self.last_step, in_a_hurry=False)

    def _is_baseline(self, running: Running) -> bool:
        return self.last is None and running.update < self._config.every_updates

    def _end(self, running: Running, now: float, in_a_hurry: bool) -> Ended:
        result = running.played.result()
        normalized = episodes.human_score_of(self._env_id, result)
        # With several tasks that have published scores, the best is the one with the highest capped mean of these.
        score = result.mean_return if normalized is None or not result.task_returns else normalized
        cut_short = result.unfinished > 0 or (in_a_hurry and result.cut_off > 0)
        # Of rewards up to 0, returns of 0 are the best; they say something after a negative score.
        says_nothing = bool(running.policies) and not -math.inf < self._highest < 0
        says_nothing &= episodes.cancel_out(running.played.finished, running.measured, running.policies or ("",))
        has_score = not (cut_short or says_nothing)
        is_best = has_score and not self._is_baseline(running) and score > self._best_return
        is_record = has_score and score > self._highest > -math.inf
        if is_best:
            self._best_return = score
        if has_score:
            self._highest = max(self._highest, score)
        shown: dict[str, Any] = {} if normalized is None else {"human_normalized": normalized}
        shown |= {counts.CUT_SHORT: True} if cut_short else {}
        self.last = {"update": running.update, **result.to_json(), **shown}
        self._due = _due_after(running.update, self._config.every_updates)
        self._due_at = _time_after(running.began, now, self._config.every_seconds)
        self.running = None
        return Ended(running, result, normalized, is_best, is_record, cut_short, json_object.number(self._highest))

    def to_json(self) -> dict[str, Any]:
        """Returns the part of a checkpoint's counters."""
        return {
            "last_evaluation": self.last,
            "evaluation_due": self._due,
            "best_return": json_object.number(self._best_return),
            "highest_return": json_object.number(self._highest),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restores a checkpoint's counters; a period that the resume changed begins at the last evaluation."""
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
    """Returns the time at which the next evaluation is due; infinity: never by time."""
    return ended + max(every_seconds, PAUSES * (ended - began)) if every_seconds else math.inf
