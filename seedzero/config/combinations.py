"""The table of rules between settings, and its evaluation: implied values, and impossible combinations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set

from seedzero.config import (
    agent_rules,
    configs,
    environment_rules,
    league_rules,
    options,
    rules,
    run_rules,
    seat_rules,
)
from seedzero.core import errors, types

RULES = (*environment_rules.RULES, *run_rules.RULES, *league_rules.RULES, *seat_rules.RULES, *agent_rules.RULES)
"""In the order of evaluation: a later rule sees what earlier ones implied, and of several errors the first counts."""


def imply(
    config: configs.Config, *, preset_env: str, explicit: Set[str], elsewhere: Mapping[str, options.Value] = {}
) -> tuple[configs.Config, list[str]]:
    """Returns the configuration with what the user's settings imply, and notes and warnings about that.

    Args:
      config: a preset's values, replaced by the user's.
      preset_env: the environment that the preset was made for.
      explicit: names SECTION.KEY of what the user set; those are never changed.
      elsewhere: the preset's values for other environments.
    """
    config, found = implied(rules.Situation(config, explicit, preset_env), rules.Needs.SETTINGS, elsewhere)
    return config, [finding.text for finding in found if finding.text]


def imply_by_environment(
    config: configs.Config, spec: types.EnvSpec, *, explicit: Set[str]
) -> tuple[configs.Config, list[str]]:
    """Returns the configuration with what the environment implies, such as groups of whole games, and notes.

    Raises ConfigError if the agents of an environment cannot have the policies or sides that are asked for.
    """
    config, found = implied(rules.Situation(config, explicit, spec=spec), rules.Needs.SPEC)
    return config, [finding.text for finding in found]


def implied(
    case: rules.Situation, stage: rules.Needs, elsewhere: Mapping[str, options.Value] = {}
) -> tuple[configs.Config, list[rules.Applied]]:
    """Returns the configuration with what the rules of a stage imply, and the notes and warnings that apply."""
    own = (
        rules.note(
            name,
            str(value),
            lambda case: case.env.id != case.preset_env and {"old": options.shown(case.this)},
            f"--{name}={options.shown(value)}: the preset's {{old}} is for {{preset_env}}",
        )
        for name, value in elsewhere.items()
    )
    told = []
    for rule in (*own, *RULES):
        if rule.needs != stage or rule.severity == rules.Severity.ERROR or not (found := rules.find(rule, case)):
            continue
        if rule.severity == rules.Severity.NOTE:
            changed = configs.override(case.config, dict.fromkeys(found.settings, found.value))
            if changed == case.config or not case.given.isdisjoint(found.settings):
                continue
            case = dataclasses.replace(case, config=changed)
        told.append(found)
    return case.config, told


def check(*variants: configs.Config, is_begun: bool = False) -> None:
    """Rejects impossible combinations of settings.

    Args:
      *variants: the configuration; before the device is known, one for each kind of device, and only what is
        impossible for all of them is rejected.
      is_begun: as in `check_devices`.

    Raises:
      ConfigError: with both names, both values and what to do.
    """
    _reject([rules.Situation(config, is_begun=is_begun) for config in variants], rules.Needs.SETTINGS)


def check_environment(*variants: configs.Config, spec: types.EnvSpec, seated_by: str = "") -> None:
    """Rejects environments that the agent, a league or the policies of seats cannot play with the settings.

    Args:
      *variants: as of `check`.
      seated_by: what makes rows seats; "" if they are none, or that is unknown here.

    Raises:
      ConfigError: with the agents that can play it, or what else to do.
    """
    _reject([rules.Situation(config, spec=spec, seated_by=seated_by) for config in variants], rules.Needs.SPEC)


def check_devices(config: configs.Config, *, is_begun: bool = False) -> None:
    """Rejects devices of which one would have no equal share of the slots, or of a batch.

    Args:
      config: its automatic values are resolved.
      is_begun: whether the run is resumed; it keeps its slots, so only its devices can change.

    Raises:
      ConfigError: with what would fit.
    """
    _reject([rules.Situation(config, is_begun=is_begun)], rules.Needs.DEVICES)


def _reject(cases: Sequence[rules.Situation], needs: rules.Needs) -> None:
    problems = [first_problem(case, needs) for case in cases]
    if problems[0] and all(problems):
        raise errors.ConfigError(problems[0].text)


def first_problem(case: rules.Situation, stage: rules.Needs) -> rules.Applied | None:
    """Returns the first error of a case among the rules of a stage."""
    table = (rule for rule in RULES if rule.needs == stage and rule.severity == rules.Severity.ERROR)
    return next(filter(None, (rules.find(rule, case) for rule in table)), None)
