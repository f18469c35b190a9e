"""The table of symptoms that the console, `seedzero diagnose` and docs/troubleshooting.md use."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from seedzero.config import agent_settings, configs, options
from seedzero.core import types
from seedzero.monitoring import learning_curves, link_lines, symptoms
from seedzero.monitoring.metrics import counts

HEALTHY, UNHEALTHY, NOT_RECORDED, TOO_EARLY = "healthy", "not healthy", "not recorded", "too early"
NOT_CHECKED = "not checked"
"""State of rules that need the training return where it shows no progress, as in self-play."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """A row of the table."""

    name: str  # of the row
    agents: tuple[str, ...]  # names of agents that it applies to; () means all
    metrics: tuple[str, ...]  # that must be in every recent row
    symptom: str  # wording for the document; `find` has the exceptions
    change: str  # what to change first, with settings in braces
    find: Callable[[symptoms.RunCase], str]  # returns the symptom with its numbers, or ""
    min_steps: int = 0  # with fewer optimizer steps it is too early; PPO takes several per update
    min_rows: int = 1  # with fewer recent rows with updates it is too early
    warns: bool = False  # whether the console prints it
    by_return: bool = False  # whether it needs a training return that shows progress
    is_early: Callable[[symptoms.RunCase], bool] = lambda case: False  # another reason why it is too early


class RuleVerdict(NamedTuple):
    """A rule's verdict on a run.

    seen: the symptom in numbers, the missing metrics, or the reason for NOT_CHECKED, else "". change: the settings to
    change first, or "".
    """

    rule: Rule
    state: str
    seen: str = ""
    change: str = ""


_LATER = f"after {symptoms.FEW_STEPS} optimizer steps"
_APART = (
    f"the two differ in {learning_curves.NUM_RECENT} rows by {symptoms.LARGE_GAP:.0%} of the largest target, or by "
    f"{symptoms.GAP:.0%} while the return has not risen"
)
_LOWER_RATE = "a new run with a tenth of {learning_rate}"
_SEARCHERS, _CRITICS = ("muzero", "alphazero"), ("apex", "r2d2")
_ACTORS = (*_SEARCHERS, "vtrace", "ppo", "sac")

RULES = (
    Rule(
        "updates",
        (),
        ("update",),
        "no update yet",
        "`stalled` in `seedzero status`; fewer steps than {min_steps} so far; a larger {max_seconds}",
        symptoms.no_update,
        min_rows=0,
    ),
    Rule(
        "refused updates",
        (),
        ("num_rejected",),
        "a loss or a gradient was not finite; ten such updates in a row end the run",
        "huge rewards or observations; a tenth of {learning_rate}",
        symptoms.refused,
        warns=True,
    ),
    Rule(
        "rewards",
        (),
        ("episode_return",),
        f"every row has the same return {_LATER}",
        "a denser reward; more exploration, for MuZero `--explore.first_steps=5000`",
        symptoms.same_return,
        min_steps=symptoms.FEW_STEPS,
        by_return=True,
    ),
    Rule(
        "return",
        (),
        ("episode_return",),
        "no success, if the environment reports `is_success`; or neither training nor an evaluation is "
        f"{symptoms.RISE:.0%} above the first evaluation and random actions, after {symptoms.RISING_ENV_STEPS:,} "
        f"steps ({symptoms.FEW_ENV_STEPS:,} with {symptoms.RISING_STEPS:,} optimizer steps) and half of "
        "`--max_env_steps`",
        f"{_LOWER_RATE}; rewards and observations by `seedzero check-env`; more steps",
        symptoms.not_risen,
        min_steps=symptoms.FEW_STEPS,
        by_return=True,
        is_early=symptoms.is_early_to_rise,
    ),
    Rule(
        "clipped targets",
        _SEARCHERS,
        (types.TARGETS_CLIPPED,),
        f"above {symptoms.CLIPPED_SHARE:g}",
        "a new run with a larger {support_limit} and {num_bins}, `--network.value_transform=symlog` or "
        "`--reward.normalize=true`",
        symptoms.clipped_targets,
        warns=True,
    ),
    Rule(
        "values",
        _ACTORS,
        ("value_mean", "value_target_mean"),
        _APART,
        f"clipped targets; {_LOWER_RATE}; more updates for each step",
        symptoms.far_from("value_mean", "value_target_mean"),
        min_steps=symptoms.FEW_STEPS,
        min_rows=learning_curves.NUM_RECENT,
        warns=True,
    ),
    Rule(
        "Q values",
        _CRITICS,
        ("q_mean", "q_target_mean"),
        _APART,
        f"{_LOWER_RATE}; a smaller {{reward.scale}}; a smaller {{target_updates}}",
        symptoms.far_from("q_mean", "q_target_mean"),
        min_steps=symptoms.FEW_STEPS,
        min_rows=learning_curves.NUM_RECENT,
        warns=True,
    ),
    Rule(
        "value loss",
        ("vtrace", "ppo", "sac", *_CRITICS),
        ("loss",),
        f"the loss of the values is above {symptoms.LARGEST_ERROR:g} times the square of the largest target or return",
        f"{_LOWER_RATE}; a smaller {{reward.scale}}",
        symptoms.value_loss,
        warns=True,
    ),
    Rule(
        "policy loss",
        _SEARCHERS,
        ("loss_policy",),
        f"above {symptoms.LARGEST_POLICY_LOSS:g} times that of the first row, where all actions are equally likely",
        _LOWER_RATE,
        symptoms.policy_loss,
        warns=True,
    ),
    Rule(
        "gradients",
        (),
        (counts.GRAD_CLIPPED, "grad_norm"),
        f"all are clipped, and {symptoms.LARGEST_NORM:g} times as large as the limit",
        "a larger {clip_norm}; huge rewards; a tenth of {learning_rate}",
        symptoms.clipped_gradients,
        min_steps=100,
        min_rows=2,
        warns=True,
    ),
    Rule(
        "narrow policy",
        ("sac",),
        ("policy_entropy",),
        f"{symptoms.FAR_BELOW:g} below {{entropy_per_dimension}} for each of an action's numbers",
        _LOWER_RATE,
        symptoms.far_below,
        warns=True,
    ),
    Rule(
        "certain policy",
        ("muzero", "vtrace", "ppo"),
        ("policy_entropy", "episode_return"),
        f"below {symptoms.DECIDED:.0%} of the logarithm of the number of actions (continuous: deviations below "
        f"{symptoms.SMALLEST_DEVIATION:g}) before {symptoms.FEW_STEPS} optimizer steps, or later while the return has "
        "not risen",
        f"{_LOWER_RATE}, or with a larger {{entropy_weight}}",
        symptoms.decided,
        warns=True,
    ),
    Rule(
        "undecided policy",
        ("muzero", "vtrace", "ppo"),
        ("policy_entropy", "episode_return"),
        f"above {symptoms.UNDECIDED:.1%} of that logarithm after {symptoms.MANY_STEPS:,} optimizer steps, or again "
        f"above {symptoms.BACK:.0%} after it was below {symptoms.DECIDED_BEFORE:.0%}, while the return has not risen",
        "a tenth of {learning_rate}; more updates; observations that show enough to decide",
        symptoms.undecided,
        min_rows=learning_curves.NUM_RECENT,
        by_return=True,
    ),
    Rule(
        "policy steps",
        ("ppo",),
        ("policy_kl",),
        f"above {symptoms.LARGEST_KL:g}",
        "a tenth of {learning_rate}; a smaller {num_epochs}",
        symptoms.large_steps,
        warns=True,
    ),
    Rule(
        "old steps",
        ("vtrace",),
        ("importance_mean", "policy_lag"),
        f"`importance_mean` is further than {symptoms.LARGEST_LAG_ERROR:g} from 1",
        "a smaller {max_lag}; a larger {batch_size}",
        symptoms.stale,
    ),
    Rule(
        "link",
        (),
        (),
        f"`{link_lines.HIDING}` is above 0: a slow link costs a worker more than half of its steps",
        link_lines.REMEDY,
        symptoms.link_is_limit,
    ),
    Rule(
        "greedy play",
        (),
        ("episode_return",),
        "evaluations return nearly as little as the first episodes, while training episodes have risen; or "
        f"{symptoms.RISE:.0%} and {symptoms.ERRORS:g} standard errors less than these",
        "the agent moves back and forth, or never fires: drawn actions, by `--policy=sample` of `evaluate` and "
        "`--evaluation.policy=sample` of a new run; a larger {entropy_weight}; for MuZero more {num_simulations}",
        symptoms.worse_greedily,
        by_return=True,
    ),
)
"""The table in the order in which to read it."""


def rules(config: configs.Config) -> Iterator[Rule]:
    """Yields the rules that apply to a run's agent and settings."""
    for rule in RULES:
        is_limited = counts.GRAD_CLIPPED not in rule.metrics or counts.clip_limit(config) > 0
        if is_limited and (not rule.agents or config.run.agent in rule.agents):
            yield rule


def judge(rule: Rule, case: symptoms.RunCase) -> RuleVerdict:
    curve = case.curve
    if rule.by_return and not symptoms.tells_by_return(case):
        return RuleVerdict(rule, NOT_CHECKED, "in self-play the training return shows no progress; read evaluations")
    is_early = symptoms.num_steps(case) < rule.min_steps or len(curve.recent) < rule.min_rows
    if is_early or rule.is_early(case):
        return RuleVerdict(rule, TOO_EARLY)
    if missing := _missing(rule, case):
        return RuleVerdict(rule, NOT_RECORDED, missing)
    if seen := rule.find(case):
        return RuleVerdict(rule, UNHEALTHY, seen, _change(rule, case.config))
    return RuleVerdict(rule, HEALTHY)


def _missing(rule: Rule, case: symptoms.RunCase) -> str:
    """Returns the required metrics that a recent row lacks.

    Games with alternating moves record returns by another name.
    """
    has_returns = case.curve.returns or not symptoms.tells_by_return(case)
    known = [set(row) | ({"episode_return"} if has_returns else set()) for row in case.curve.recent]
    return ", ".join(name for name in rule.metrics if any(name not in names for names in known))


def verdicts(case: symptoms.RunCase) -> list[RuleVerdict]:
    return [judge(rule, case) for rule in rules(case.config)]


def warnings(case: symptoms.RunCase) -> Iterator[tuple[str, str]]:
    """Yields the name and the message of each symptom that the console prints."""
    for rule in rules(case.config):
        if rule.warns and (verdict := judge(rule, case)).state == UNHEALTHY:
            yield rule.name, f"{verdict.seen}; change first: {verdict.change}"


def table(chosen: Sequence[Rule] = RULES) -> str:
    """Returns the rows of the document's table in Markdown; a star marks rules that the console prints."""

    def row(rule: Rule) -> str:
        names = ", ".join(f"`{name}`" for name in rule.metrics)
        symptom = re.sub(r"{([\w.]+)}", r"`\1`", rule.symptom)
        return f"| {rule.name}{' *' if rule.warns else ''} | {names} | {symptom} |"

    return "\n".join(map(row, chosen))


def _change(rule: Rule, config: configs.Config) -> str:
    """Returns a rule's advice, with the run's settings as flags."""

    def flag(found: re.Match[str]) -> str:
        name, given = agent_settings.name(config, found[1]), agent_settings.value(config, found[1])
        return f"--{name} (now {options.shown(given)})" if given is not None else found[1]

    return re.sub(r"{([\w.]+)}", flag, rule.change).replace("`", "")
