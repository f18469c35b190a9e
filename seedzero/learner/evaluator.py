"""Evaluation beside training: whole episodes with a frozen copy of the parameters, in environments of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.agents import base
from seedzero.config import sections
from seedzero.device import batch as batch_lib
from seedzero.evaluation import evaluation
from seedzero.learner import roster


class Running(NamedTuple):
    """An evaluation under way: its environments, frozen parameters, and the episodes so far."""

    session: roster.Session
    update: int
    params: base.Params
    played: evaluation.Evaluation


class Ended(NamedTuple):
    """A complete evaluation; is_best: its mean return is the highest so far."""

    running: Running
    result: evaluation.Result
    is_best: bool


class Evaluator:
    """Knows when an evaluation is due, follows its episodes, and remembers the best. Used by the loop's thread.

    Whoever sets `running` to None ends the evaluation under way without a result.
    """

    def __init__(self, config: sections.EvaluationConfig) -> None:
        self._config = config
        self.running: Running | None = None
        self.last: Mapping[str, Any] | None = None  # the last result, as JSON
        self.acted_last = False  # the last acting call was an evaluation's
        self._due = 0
        self._best_return = -np.inf

    def is_due(self, num_updates: int) -> bool:
        """Returns whether it is time for the next evaluation."""
        return self._config.every_updates > 0 and num_updates >= self._due and num_updates > 0

    def begin(self, session: roster.Session, num_updates: int, params: base.Params) -> None:
        """Starts an evaluation in the environments of a session; the parameters are a copy."""
        played = evaluation.Evaluation(session.all_slots, self._config.episodes)
        self.running = Running(session, num_updates, params, played)

    def record(self, messages: Sequence[batch_lib.Message]) -> Ended | None:
        """Adds observations; returns the evaluation when they complete it."""
        running = self.running
        assert running is not None
        self.acted_last = True
        for message in messages:
            step = message.request.step
            running.played.record(message.slots, step.reward, message.request.first, step.final)
        if not running.played.done:
            return None
        result = running.played.result()
        is_best = result.mean_return >= self._best_return
        if is_best:
            self._best_return = result.mean_return
        self.last = {"update": running.update, **dataclasses.asdict(result)}
        self._due = (running.update // self._config.every_updates + 1) * self._config.every_updates
        self.running = None
        return Ended(running, result, is_best)

    def to_json(self) -> dict[str, Any]:
        """Returns the part of a checkpoint's counters."""
        return {
            "last_evaluation": self.last,
            "evaluation_due": self._due,
            "best_return": self._best_return if np.isfinite(self._best_return) else None,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continues a checkpoint's counters."""
        self.last = saved["last_evaluation"]
        self._due = saved["evaluation_due"]
        self._best_return = -np.inf if saved["best_return"] is None else saved["best_return"]
