"""Assigns policies to agents that share an environment: the setting, its rules, and the policy of each agent."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterator, Sequence
from typing import Any

from seedzero.config import options
from seedzero.core import errors, json_object, opponents, training_arrays, types

SHARED, EACH = "shared", "each"
_EXAMPLE = '{"adversary_*": "wolf", "*": "sheep"}'
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MAIN = "main"


@dataclasses.dataclass(frozen=True)
class SeatsConfig(options.Section):
    policies: str = options.at_creation(
        SHARED,
        "policies of agents that share an environment: shared, one for all; each, one for each agent, of its name; or "
        f"a JSON object from patterns of agents' names to names of policies, such as '{_EXAMPLE}': the first pattern "
        "that matches counts",
    )

    @property
    def asked(self) -> str:
        """The setting, as on a command line, if agents have their own policies; "" if one policy plays for all."""
        return "" if self.policies == SHARED else f"--seats.policies={self.policies}"


def of_config(config: Any) -> SeatsConfig:
    """Returns the settings of a run's seats, or the defaults if the agent does not read them."""
    found: SeatsConfig = config.seats if "seats" in config.agent.SECTIONS else SeatsConfig()
    return found


def policies(config: Any, agents: Sequence[str]) -> tuple[str, ...]:
    """Returns the name of each agent's policy, [S], or () if one policy plays for all.

    Raises ConfigError for names that no policy can have, an agent without a pattern, and a pattern without an agent.
    """
    settings = of_config(config)
    if not settings.asked:
        return ()
    by_pattern = {agent: agent for agent in agents} if settings.policies == EACH else _parsed(settings)
    for name in by_pattern.values():
        if not _NAME.fullmatch(name) or name == _MAIN or opponents.is_member(name):
            way = (
                f"give your own names, as --seats.policies='{_EXAMPLE}'" if settings.policies == EACH else "rename it"
            )
            raise errors.ConfigError(
                f"{settings.asked}: {name!r} is no name of a policy; expected letters, digits and underscores, a "
                f"letter first, and neither {_MAIN} nor the name of a bot; {way}"
            )
    of_agent = {
        agent: next((pattern for pattern in by_pattern if fnmatch.fnmatchcase(agent, pattern)), None)
        for agent in agents
    }
    there = ", ".join(agents)
    if (number := len(set(by_pattern.values()))) > len(agents):
        raise errors.ConfigError(
            f"{settings.asked}: {number} policies for {len(agents)} agents, {there}; give each agent one at most"
        )
    if without := [agent for agent, pattern in of_agent.items() if pattern is None]:
        raise errors.ConfigError(
            f"{settings.asked}: no pattern matches {', '.join(without)}; the agents are {there}; add a pattern, such "
            'as "*" at the end'
        )
    unused = [pattern for pattern in by_pattern if pattern not in of_agent.values()]
    if unused:
        taken = [agent for agent in agents if fnmatch.fnmatchcase(agent, unused[0])]
        why = f"earlier ones match {', '.join(taken)} already" if taken else "it matches none of them"
        raise errors.ConfigError(
            f"{settings.asked}: pattern {unused[0]!r} has no agent: {why}; the agents are {there}, and each has one "
            "policy: leave the pattern out, or fix it"
        )
    return tuple(by_pattern[str(pattern)] for pattern in of_agent.values())


def _parsed(settings: SeatsConfig) -> dict[str, str]:
    """Returns the names of policies by patterns."""
    try:
        found = json_object.parse(settings.policies)
        problem = (
            "" if found and all(isinstance(name, str) for name in found.values()) else "it has no names of policies"
        )
    except ValueError as error:
        found, problem = {}, str(error)
    if problem:
        raise errors.ConfigError(
            f"{settings.asked} ({problem}): expected {SHARED}, {EACH}, or a JSON object as '{_EXAMPLE}'"
        )
    return dict(found)


def problems(config: Any) -> Iterator[str]:
    """Yields the impossible combinations, each with what to do."""
    if config.run.agent == "ppo" and config.ppo.central_value and not config.env.id.startswith("pettingzoo:"):
        yield (
            f"--ppo.central_value=true: the value sees what all agents see, and --env={config.env.id} tells no joint "
            "observation; give --env=pettingzoo:MODULE, or --ppo.central_value=false"
        )
    asked, training = of_config(config).asked, config.training
    if not asked:
        return
    if config.seats.policies != EACH:
        try:
            _parsed(config.seats)
        except errors.ConfigError as error:
            yield str(error)
    if config.league.on:
        yield (
            f"{asked}: in a league ({config.league.asked}) one policy plays all seats; give {config.league.off}, or "
            f"--seats.policies={SHARED}"
        )
    if training.num_devices > 1:
        yield (
            f"--training.num_devices={training.num_devices}: {asked}, whose policies share one device; give "
            "--training.num_devices=1"
        )
    if config.run.max_env_steps:
        yield (
            f"--max_env_steps={config.run.max_env_steps}: {asked}, and each policy counts steps of its own; give "
            "--max_env_steps=0, and --max_updates=N or --max_seconds=N"
        )
    if config.cluster.num_hosts > 1:
        yield (
            f"--cluster.num_hosts={config.cluster.num_hosts}: {asked}, whose policies learn on one host; give "
            f"--cluster.num_hosts=1, or --seats.policies={SHARED}"
        )


def check(config: Any, spec: types.EnvSpec) -> None:
    """Raises ConfigError if agents cannot have their own policies, or as `policies` does."""
    settings = of_config(config)
    if settings.asked and not spec.fixed_seats:
        found = "rows that change their seats from game to game" if spec.seats else "one agent"
        raise errors.ConfigError(
            f"{settings.asked}: --env={config.env.id} has {found}; agents that keep their seats have "
            f"--env=pettingzoo:MODULE, or give --seats.policies={SHARED}"
        )
    policies(config, spec.seats)
    if (
        config.run.agent == "ppo"
        and config.ppo.central_value
        and (not spec.fixed_seats or types.shown(training_arrays.without(spec).arrays) == "images")
    ):
        found = "images" if spec.fixed_seats else "one agent"
        raise errors.ConfigError(
            f"--ppo.central_value=true: the value sees vectors of several agents, and --env={config.env.id} has "
            f"{found}; give --ppo.central_value=false"
        )


def implied(config: Any, spec: types.EnvSpec) -> dict[str, options.Value]:
    """Returns the values that several policies imply: batches as small as the share of agents with the rarest policy.

    Otherwise a policy would never have a whole batch from its own rows.
    """
    settings = of_config(config)
    if not settings.asked or not spec.fixed_seats:
        return {}
    found = policies(config, spec.seats)
    fewest = min(found.count(name) for name in found)
    size = config.agent.batch_size
    return {f"{config.section}.batch_size": max(1, size * fewest // len(found))} if fewest < len(found) else {}
