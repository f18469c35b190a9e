"""Recognizes symptoms of runs that do not learn: pure functions from a run's curve to a description, or "".

The limits are such that the healthy runs of docs/troubleshooting.md never reach them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import NamedTuple

from seedzero.config import agent_settings, configs
from seedzero.core import types
from seedzero.monitoring import learning_curves, link_lines
from seedzero.monitoring.metrics import counts

FEW_STEPS = 300
"""Within this number of optimizer steps, values are still close to their initial ones."""
CLIPPED_SHARE = 0.001
"""Share of clipped targets that deserves a warning."""
GAP, LARGE_GAP = 0.15, 0.3
"""Largest healthy distance of values from their targets, as a share of the largest mean target.

GAP holds while the return has not risen, LARGE_GAP always, because values lag behind when returns rise.
"""
SMALL_TARGET = 0.25
"""Smaller mean targets are those of rare rewards, in any unit; initial errors are as large."""
DECIDED = 0.2
"""Share of the largest entropy below which a policy counts as decided, and should have its best return."""
UNDECIDED, DECIDED_BEFORE, BACK = 0.995, 0.95, 0.98
"""Shares of the largest entropy.

A policy above UNDECIDED prefers nothing. One that was below DECIDED_BEFORE and is above BACK has lost its preferences.
"""
SMALL_WEIGHT = 0.1
"""With a larger entropy bonus, a high entropy is not a symptom."""
MANY_STEPS = 20_000
"""After this number of optimizer steps a policy should prefer some actions."""
RISING_ENV_STEPS, FEW_ENV_STEPS, RISING_STEPS, RISING_SHARE = 50_000, 10_000, 5_000, 0.5
"""When a return should have risen: after RISING_ENV_STEPS, or FEW_ENV_STEPS once RISING_STEPS optimizer steps are
done.

In any case not before RISING_SHARE of the step budget.
"""
SMALLEST_DEVIATION = 0.02
"""A policy counts as decided if its actions deviate less, within bounds of -1 and 1."""
RISE, LARGE_RISE = 0.25, 0.5
"""Changes of a return, as a share of its first or newest size.

RISE is more than chance; after LARGE_RISE a run learns beyond doubt.
"""
LARGEST_ERROR = 30.0
"""Largest healthy mean square of value errors, in squares of the largest mean target or return."""
LARGEST_POLICY_LOSS = 1.25
"""Largest healthy loss of MuZero's policy, in units of the first one, that of a uniform policy."""
LARGEST_NORM = 30.0
"""Largest healthy mean norm of gradients if every update clips them, in units of the limit."""
SUMMED_STEPS = 160
"""Steps in V-trace's update with CartPole's preset; LARGEST_NORM applies to gradients summed over this many."""
LARGEST_KL = 0.1
"""Largest healthy divergence of PPO's new policy from the acting one."""
LARGEST_LAG_ERROR = 0.1
"""Largest healthy distance from 1 of V-trace's mean ratio."""
AT_ONCE = 0.02
"""Rise of the return, as a share of its size, of a run whose first evaluation was at the best already."""
ERRORS = 2.0
"""How many standard errors two means differ by beyond chance."""
DRAWS = ("vtrace", "ppo", "sac")
"""Agents whose training episodes draw actions from the policy, without other noise."""
FAR_BELOW = 5.0
"""How many nats an action dimension's entropy may be below SAC's target; the temperature prevents more."""


class RunCase(NamedTuple):
    """A run's settings, spec, curve, and the mean return of random actions; None means unknown."""

    config: configs.Config
    spec: types.EnvSpec | None
    curve: learning_curves.LearningCurve
    random_return: float | None = None


def num_steps(case: RunCase) -> int:
    """Returns the optimizer steps so far, of PPO for each minibatch of each epoch; the mean of several policies."""
    epochs, parts = (int(agent_settings.value(case.config, key) or 1) for key in ("num_epochs", "num_minibatches"))
    num_policies = sum(name.startswith("update/") for row in case.curve.recent[-1:] for name in row)
    return case.curve.update * epochs * parts // max(1, num_policies)


def _mean(curve: learning_curves.LearningCurve, name: str) -> float:
    return curve.mean(name) or 0.0


def tells_by_return(case: RunCase) -> bool:
    """Returns whether the training return shows progress; in self-play one side's wins are the other's losses."""
    return case.spec is None or (case.spec.num_players == 1 and not case.spec.seats)


def no_update(case: RunCase) -> str:
    """Finds runs without any update."""
    curve = case.curve
    if curve.update or curve.num_rows < learning_curves.NUM_RECENT:
        return ""
    return f"no update in {curve.num_rows} rows, {curve.env_steps:,} steps"


def same_return(case: RunCase) -> str:
    """Finds a constant return."""
    curve = case.curve
    if not curve.same_return or curve.num_episodes < 100 or not tells_by_return(case):
        return ""
    return f"return {curve.first_return:.4g} in all rows, {curve.num_episodes:,} episodes"


def is_early_to_rise(case: RunCase) -> bool:
    """Returns whether it is too early to expect a higher return."""
    env_steps = case.curve.env_steps
    least = RISING_ENV_STEPS if num_steps(case) < RISING_STEPS else FEW_ENV_STEPS
    return env_steps < max(least, RISING_SHARE * case.config.run.max_env_steps)


def not_risen(case: RunCase) -> str:
    """Finds returns of training and evaluation no better than those of random play or the first evaluation."""
    curve, random = case.curve, case.random_return
    baseline = curve.baseline(case.config.evaluation.every_updates)
    begin = (curve.first_return, "the first episodes") if random is None else (random, "random actions")
    firsts = [(value, name) for value, name in (begin, (baseline, "the first evaluation")) if value is not None]
    evaluated = sum(curve.evaluations) / len(curve.evaluations) if curve.evaluations else None
    found = [value for value in (curve.newest_return, evaluated) if value is not None]
    if not firsts or not found:
        return ""
    if curve.largest_success == 0.0:
        return f"info/is_success is 0 in every row, whatever the return: {curve.describe_return()}"
    (first, name), newest = max(firsts), max(found)
    if newest - first >= RISE * max(abs(first), abs(newest)) or _is_solved_at_once(case):
        return ""
    hint = "" if random is not None else "; `seedzero check-env` with the run's settings takes that of random actions"
    return f"return {newest:.4g} after {curve.env_steps:,} steps has not risen above {first:.4g} of {name}{hint}"


def _is_solved_at_once(case: RunCase) -> bool:
    """Returns whether the first evaluation was as good as all since, while training rises or has come up to it."""
    curve, random = case.curve, case.random_return
    baseline = curve.baseline(case.config.evaluation.every_updates)
    newest, first = curve.newest_return, curve.first_return
    if baseline is None or newest is None or first is None:
        return False
    lowest, size = min(curve.evaluations, default=newest), max(abs(newest), abs(first), abs(baseline))
    best, goal = max(newest, lowest), baseline - AT_ONCE * size
    is_better = random is None or best - random >= RISE * max(abs(random), abs(best))
    has_come_up = _is_decided(case) and newest >= max(goal, first + AT_ONCE * size)
    return is_better and lowest >= goal and (curve.is_risen(RISE) or has_come_up)


def _is_decided(case: RunCase) -> bool:
    entropies = [row.get("policy_entropy", math.inf) for row in case.curve.recent]
    return max(entropies, default=math.inf) < _decided_entropy(case)


def clipped_targets(case: RunCase) -> str:
    """Finds targets outside the network's support."""
    share = case.curve.recent[-1][types.TARGETS_CLIPPED]
    if share < CLIPPED_SHARE:
        return ""
    return f"{share:.1%} of the value and reward targets are larger than the network can show, and are clipped"


def far_from(predicted: str, target: str) -> Callable[[RunCase], str]:
    """Returns a function that finds values above, or below, their targets in all recent rows.

    Takes names of metrics.
    """

    def find(case: RunCase) -> str:
        # Two sides return 1 and -1, with means near 0.
        least = 1.0 if case.spec is not None and case.spec.num_players > 1 else SMALL_TARGET
        size = max(case.curve.largest_target, least, _stakes(case))
        gaps = [row[target] - row[predicted] for row in case.curve.recent]
        limit = size * (LARGE_GAP if case.curve.is_risen(RISE) else GAP)
        if not (min(gaps) > limit or max(gaps) < -limit):
            return ""
        newest = case.curve.recent[-1]
        values = f"{predicted} {newest[predicted]:.4g}, {target} {newest[target]:.4g}"
        return f"the values are far from their targets: {values}"

    return find


def value_loss(case: RunCase) -> str:
    """Finds value errors larger than all targets and returns, now or before a return that stayed low."""
    curve, config, size = case.curve, case.config, _size(case)
    newest, most = learning_curves.value_loss(curve.recent[-1]), curve.largest_loss
    # the loss is a sum over these errors
    num_losses = config.r2d2.sequence_length if config.run.agent == "r2d2" else 1
    limit = LARGEST_ERROR * num_losses * size * size
    if newest > limit:
        return f"the values explode: value loss {newest:.3g}, mean target at most {curve.largest_target:.3g}"
    if most > limit and not curve.is_risen(LARGE_RISE):
        return f"the values exploded: value loss {most:.3g}; {curve.describe_return()}"
    return ""


def policy_loss(case: RunCase) -> str:
    """Finds policies worse than a uniform one, now or before a return that stayed low."""
    curve = case.curve
    limit, newest = LARGEST_POLICY_LOSS * (curve.first_policy_loss or math.inf), curve.recent[-1]["loss_policy"]
    if newest > limit:
        return f"predicted policies are worse than equal probabilities: loss_policy {newest:.3g}"
    if curve.largest_policy_loss > limit and tells_by_return(case) and not curve.is_risen(LARGE_RISE):
        return (
            f"predicted policies were worse than equal probabilities: loss_policy {curve.largest_policy_loss:.3g}; "
            f"{curve.describe_return()}"
        )
    return ""


def _size(case: RunCase) -> float:
    """Returns the scale of values: the largest mean target or return, at least 1 for normalized rewards."""
    config, curve = case.config, case.curve
    least = 1.0 if _is_normalized(config) else SMALL_TARGET
    return max(curve.largest_target, config.reward.scale * curve.largest_return, least, _stakes(case))


def _stakes(case: RunCase) -> float:
    """Returns the scale of seats' values, whose means are near 0 whatever the stakes; 0 if rows are not seats.

    Infinity means unknown, without normalized rewards.
    """
    if case.spec is None or not case.spec.seats:
        return 0.0
    return 1.0 if _is_normalized(case.config) else math.inf


def _is_normalized(config: configs.Config) -> bool:
    return bool(agent_settings.value(config, "reward.normalize") or agent_settings.value(config, "popart"))


def _largest_entropy(case: RunCase) -> float | None:
    """Returns the entropy of a uniform policy; None if it is unknown, or unbounded, as for densities."""
    config, spec = case.config, case.spec
    if spec is None or (spec.is_continuous and config.run.agent != "muzero"):
        return None
    if spec.is_continuous:
        return len(spec.action_low) * math.log(config.network.action_bins)
    # Legal actions are not counted; where a masked policy has a choice, it is between at least two.
    return math.log(2 if spec.has_action_mask else spec.num_actions)


def decided(case: RunCase) -> str:
    """Finds a decided policy in the first optimizer steps, or with a low or fallen return."""
    curve, bound = case.curve, _decided_entropy(case)
    entropies = [row["policy_entropy"] for row in curve.recent]
    is_good = _is_good(case, bound)
    is_collapsed = max(entropies) < bound and tells_by_return(case) and not is_good and len(curve.returns) > 1
    if not is_collapsed and (entropies[-1] >= bound or num_steps(case) >= FEW_STEPS):
        return ""
    return f"the policy has collapsed: policy_entropy {entropies[-1]:.3g}; {curve.describe_return()}"


def _is_good(case: RunCase, bound: float) -> bool:
    """Returns whether the return has risen or reached its goal, or else cannot show a rise and has not fallen."""
    curve = case.curve
    baseline = curve.baseline(case.config.evaluation.every_updates)
    # A decided policy in the first row may have learned already, but hardly one in the first evaluation.
    is_unknown = baseline is None and curve.first_entropy is not None and curve.first_entropy < bound
    newest, best = curve.newest_return, curve.best_return
    is_at_best = newest is not None and best - newest < RISE * max(abs(best), abs(newest), sys.float_info.min)
    has_risen = curve.is_risen(RISE) or curve.is_risen(RISE, baseline)
    is_at_goal = newest is not None and newest >= case.config.run.stop_at_return
    return has_risen or is_at_goal or (is_at_best and (is_unknown or _is_solved_at_once(case)))


def _decided_entropy(case: RunCase) -> float:
    """Returns the entropy below which a policy counts as decided; minus infinity if unknown."""
    largest = _largest_entropy(case)
    if largest is not None:
        return DECIDED * largest
    if case.spec is None:
        return -math.inf
    return len(case.spec.action_low) * (0.5 * math.log(2 * math.pi * math.e) + math.log(SMALLEST_DEVIATION))


def far_below(case: RunCase) -> str:
    """Finds an entropy far below SAC's target, now or before a return that stayed low."""
    curve, config = case.curve, case.config
    wanted = len(case.spec.action_low if case.spec else ()) * (config.sac.entropy_per_dimension - FAR_BELOW)
    newest = curve.recent[-1]["policy_entropy"]
    if case.spec is None or curve.least_entropy >= wanted:
        return ""
    if newest < wanted:
        return f"the policy collapses to one action: policy_entropy {newest:.3g}"
    if curve.is_risen(LARGE_RISE):
        return ""
    return f"the policy collapsed: policy_entropy {curve.least_entropy:.3g}; {curve.describe_return()}"


def undecided(case: RunCase) -> str:
    """Finds a policy that still prefers nothing late in training, or again."""
    curve, largest = case.curve, _largest_entropy(case)
    weight = float(agent_settings.value(case.config, "entropy_weight") or 0.0)
    is_masked = case.spec is not None and case.spec.has_action_mask
    is_risen = curve.is_risen(RISE) or not tells_by_return(case)
    if not largest or is_masked or weight > SMALL_WEIGHT or is_risen or not curve.returns:
        return ""
    entropy = _mean(curve, "policy_entropy")
    is_back = entropy > BACK * largest and curve.least_entropy < DECIDED_BEFORE * largest
    if not is_back and (entropy < UNDECIDED * largest or num_steps(case) < MANY_STEPS):
        return ""
    return f"the policy prefers nothing: policy_entropy {entropy:.4g} of {largest:.4g}; {curve.describe_return()}"


def clipped_gradients(case: RunCase) -> str:
    """Finds gradients that every update clips to a small share of their norm."""
    share, norm, limit = (
        _mean(case.curve, counts.GRAD_CLIPPED),
        _mean(case.curve, "grad_norm"),
        counts.clip_limit(case.config),
    )
    if share < 0.999 or not norm > LARGEST_NORM * limit * _num_sums(case.config):
        return ""
    return f"gradients of norm {norm:.3g} are clipped to {limit:g} in every update"


def _num_sums(config: configs.Config) -> float:
    """Returns the size of an update relative to CartPole's; 1 if gradients are means over a batch."""
    settings = config.vtrace
    is_sum = config.run.agent == "vtrace"  # Espeholt et al. 2018, section 4.2
    return max(1.0, settings.batch_size * settings.unroll_length / SUMMED_STEPS) if is_sum else 1.0


def refused(case: RunCase) -> str:
    """Finds updates that were rejected because loss or gradient were not finite."""
    refused = max(row["num_rejected"] for row in case.curve.recent)
    return f"num_rejected {refused:.3g}: the loss or its gradient is not finite" if refused > 0 else ""


def large_steps(case: RunCase) -> str:
    """Finds updates that move the policy far from the acting one."""
    divergence = max(row["policy_kl"] for row in case.curve.recent)
    if divergence <= LARGEST_KL:
        return ""
    return f"updates lead far away from the policy that acted: policy_kl {divergence:.3g}"


def stale(case: RunCase) -> str:
    """Finds experience from policies unlike the newest one."""
    ratio = _mean(case.curve, "importance_mean")
    if abs(ratio - 1.0) <= LARGEST_LAG_ERROR:
        return ""
    return f"importance_mean {ratio:.3g}, policy_lag {_mean(case.curve, 'policy_lag'):.3g}"


def link_is_limit(case: RunCase) -> str:
    """Finds workers whose link at least halves their steps."""
    newest = case.curve.recent[-1]
    if not (needed := newest.get(link_lines.HIDING, 0.0)):
        return ""
    trip = 1000 * newest.get(link_lines.ROUND_TRIP, 0.0)
    return f"the link is the limit: {needed:.0f} environments would hide a round trip of {trip:.0f} ms"


def worse_greedily(case: RunCase) -> str:
    """Finds greedy play that is far worse than the training episodes, or worse by more than chance."""
    curve = case.curve
    baseline = curve.baseline(case.config.evaluation.every_updates)
    is_baseline = baseline is not None and curve.evaluation == curve.first_evaluation
    if (
        curve.evaluation is None
        or case.config.env.checkpoint_rewards  # which only training pays
        or case.config.evaluation.policy == "sample"
        or not tells_by_return(case)
        or is_baseline
        or 2 * curve.evaluation[0] < curve.update
    ):
        return ""
    first, newest, (update, evaluated) = curve.first_return or 0.0, curve.newest_return or 0.0, curve.evaluation
    is_far = curve.is_risen(RISE) and evaluated < first + 0.25 * (newest - first)
    if not is_far and (curve.deviation is None or not is_above(curve, evaluated, *curve.deviation)):
        return ""
    other = "; `seedzero evaluate --policy=sample` plays as training does" if case.config.run.agent in DRAWS else ""
    return f"evaluation_mean_return {evaluated:.4g} at update {update:,}, episode_return {newest:.4g}{other}"


def is_above(curve: learning_curves.LearningCurve, evaluated: float, deviation: float, num_episodes: int) -> bool:
    """Returns whether training's newest return is RISE above an evaluation's, and above it by more than chance.

    deviation: of the evaluation's episodes; training's are taken to have the same.
    """
    newest = curve.newest_return
    if newest is None or num_episodes < 2:
        return False
    error = deviation * math.sqrt(1 / (num_episodes - 1) + 1 / max(1, sum(curve.counts)))
    return newest - evaluated >= max(ERRORS * error, RISE * max(abs(newest), abs(evaluated)))
