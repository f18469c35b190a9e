"""Folds the rows of a run's metrics.jsonl into the numbers that a diagnosis needs."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping

from seedzero.monitoring import metrics_log, rows

NUM_RECENT = 3
"""Number of newest rows for a diagnosis: half a minute with the default of metrics.every_seconds."""
NUM_EVALUATIONS = 10
"""Number of newest evaluations to average: with few episodes each, an untrained greedy policy varies by half."""
TARGETS = ("value_target_mean", "q_target_mean")
"""Metrics with the mean of an agent's value targets."""


@dataclasses.dataclass(frozen=True)
class LearningCurve:
    """What is known of a run after some rows; `after` adds a row."""

    num_rows: int = 0  # of training, also before the first update
    update: int = 0  # of the newest row of training
    env_steps: int = 0  # of the newest row of training
    recent: tuple[Mapping[str, float], ...] = ()  # the newest rows with updates, at most NUM_RECENT, the newest last
    returns: tuple[float, ...] = ()  # mean returns of training episodes in the newest rows, at most NUM_RECENT
    first_return: float | None = None  # in the first row with episodes, or None
    best_return: float = -math.inf  # largest mean of `returns` so far
    same_return: bool = True  # whether all rows have the same return
    num_episodes: int = 0  # of training
    counts: tuple[int, ...] = ()  # of episodes that `returns` are means of
    largest_return: float = 0.0  # largest absolute mean return of a row
    largest_target: float = 0.0  # largest absolute mean of value targets
    largest_loss: float = 0.0  # largest value loss in a row of training
    # in the first row that has one, where the policy is near uniform, or None
    first_policy_loss: float | None = None
    largest_policy_loss: float = -math.inf  # in a row
    # smallest mean entropy of the policy in a row of training
    least_entropy: float = math.inf
    first_entropy: float | None = None  # mean entropy of the policy in the first row that has one, or None
    first_evaluation: tuple[int, float] | None = None  # update and mean return, or None
    evaluation: tuple[int, float] | None = None  # update and mean return of the newest one
    deviation: tuple[float, int] | None = None  # standard deviation and number of its episodes, or None
    largest_success: float | None = None  # largest mean of `is_success` in a row or an evaluation, or None without any
    evaluations: tuple[float, ...] = ()  # mean returns of the newest ones without the first, at most NUM_EVALUATIONS

    def after(self, row: Mapping[str, metrics_log.Value]) -> LearningCurve:
        numbers = _numbers(row)
        update = int(numbers.get("update", 0))
        if metrics_log.UNFINISHED in numbers:
            return self._after_successes(numbers, "evaluation_info/is_success")
        if "evaluation_mean_return" in numbers:
            newest = update, numbers["evaluation_mean_return"]
            later = () if self.first_evaluation is None else (*self.evaluations, newest[1])[-NUM_EVALUATIONS:]
            first, number = self.first_evaluation or newest, int(numbers.get("evaluation_episodes", 0))
            spread = (numbers["evaluation_std_return"], number) if "evaluation_std_return" in numbers else None
            curve = self._after_successes(numbers, "evaluation_info/is_success")
            return dataclasses.replace(
                curve, first_evaluation=first, evaluation=newest, evaluations=later, deviation=spread
            )
        curve = self._after_episodes(numbers)._after_successes(numbers, "info/is_success")
        policy_loss = numbers.get("loss_policy", -math.inf)
        targets = [abs(numbers[name]) for name in TARGETS if math.isfinite(numbers.get(name, math.nan))]
        return dataclasses.replace(
            curve,
            num_rows=self.num_rows + 1,
            update=update,
            env_steps=int(numbers.get("env_steps", 0)),
            recent=(*self.recent, numbers)[-NUM_RECENT:] if "loss" in numbers else self.recent,
            largest_target=max([self.largest_target, *targets]),
            first_policy_loss=numbers.get("loss_policy") if self.first_policy_loss is None else self.first_policy_loss,
            largest_policy_loss=max(self.largest_policy_loss, policy_loss),
            first_entropy=numbers.get("policy_entropy") if self.first_entropy is None else self.first_entropy,
            least_entropy=min(self.least_entropy, numbers.get("policy_entropy", math.inf)),
            largest_loss=max([self.largest_loss, *([value_loss(numbers)] if "loss" in numbers else [])]),
        )

    def _after_successes(self, numbers: Mapping[str, float], name: str) -> LearningCurve:
        known = [value for value in (self.largest_success, numbers.get(name)) if value is not None]
        return dataclasses.replace(self, largest_success=max(known, default=None))

    def _after_episodes(self, numbers: Mapping[str, float]) -> LearningCurve:
        if "episode_return" not in numbers:
            return self
        newest = numbers["episode_return"]
        first = newest if self.first_return is None else self.first_return
        returns, number = (*self.returns, newest)[-NUM_RECENT:], int(numbers.get("episodes", 1))
        return dataclasses.replace(
            self,
            returns=returns,
            counts=(*self.counts, number)[-NUM_RECENT:],
            first_return=first,
            best_return=max(self.best_return, sum(returns) / len(returns)),
            same_return=self.same_return and newest == first,
            num_episodes=self.num_episodes + number,
            largest_return=max(self.largest_return, abs(newest)),
        )

    def baseline(self, every_updates: int) -> float | None:
        """Returns the mean return of an evaluation that came before the first `evaluation.every_updates`, if any.

        Evaluations scheduled by time may come after any update.
        """
        first = self.first_evaluation
        return first[1] if first is not None and first[0] < every_updates else None

    @property
    def newest_return(self) -> float | None:
        """Mean of the newest rows' returns; None without any."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    def is_risen(self, least: float, first: float | None = None) -> bool:
        """Returns whether the newest return is well above the first one, and closer to the best than to the first.

        least: smallest rise, as a share of the larger of the two sizes. first: used instead of `first_return`.
        """
        first, newest = self.first_return if first is None else first, self.newest_return
        if first is None or newest is None:
            return False
        rise = newest - first
        return rise >= least * max(abs(first), abs(newest)) and rise >= 0.5 * (self.best_return - first)

    def describe_return(self) -> str:
        """Describes how the return developed."""
        if self.first_return is None:
            return "return is unknown"
        return f"return {self.newest_return:.4g}, at first {self.first_return:.4g}, best {self.best_return:.4g}"

    def mean(self, name: str) -> float | None:
        """Returns the mean of a metric over the recent rows; None if a row lacks it, or there are no rows."""
        found = [row[name] for row in self.recent if name in row]
        return sum(found) / len(found) if found and len(found) == len(self.recent) else None


def value_loss(row: Mapping[str, float]) -> float:
    """Returns a row's value loss; agents that learn only values record it as the whole loss."""
    return row.get("loss_value", row["loss"])


def _numbers(row: Mapping[str, metrics_log.Value]) -> dict[str, float]:
    """Returns a row's numbers, including "nan" and "inf", which JSON cannot express as numbers."""
    found = {}
    for name, value in row.items():
        if isinstance(value, (int, float)) or value in ("nan", "inf", "-inf"):
            found[name] = float(value)
    return found


def read(path: pathlib.Path) -> tuple[LearningCurve, int]:
    """Reads the curve from a run directory's metrics.jsonl; also returns the number of unreadable lines.

    Raises ResumeError if the file cannot be read.
    """
    return fold(metrics_log.read(path))


def fold(found: rows.RowReader) -> tuple[LearningCurve, int]:
    """Returns the curve from rows, and the number of unreadable lines."""
    curve = LearningCurve()
    for row in found:
        try:
            curve = curve.after(row)
        except (ValueError, OverflowError):  # infinite counts, and numbers with hundreds of digits
            found.num_damaged += 1
    return curve, found.num_damaged
