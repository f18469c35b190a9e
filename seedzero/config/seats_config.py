"""Assigns policies to agents that share an environment: the setting, its rules, and the policy of each agent."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Sequence
from typing import Any

from seedzero.config import options
from seedzero.core import errors, json_object, opponents

SHARED, EACH = "shared", "each"
_EXAMPLE = '{"adversary_*": "wolf", "*": "sheep"}'
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MAIN = "main"


@dataclasses.dataclass(frozen=True)
class SeatsConfig(options.Section):
    policies: str = options.at_creation(
        SHARED,
        "policies of agents that share an environment: shared, one for all; each, one for each agent; or a JSON "
        f"object from patterns of agents' names to names of policies, such as '{_EXAMPLE}'",
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
    names = by_pattern(settings) or {agent: agent for agent in agents}
    for name in names.values():
        if not _NAME.fullmatch(name) or name == _MAIN or opponents.is_member(name):
            way = (
                f"give your own names, as --seats.policies='{_EXAMPLE}'" if settings.policies == EACH else "rename it"
            )
            raise errors.ConfigError(
                f"{settings.asked}: {name!r} is not a name for a policy; expected letters, digits and underscores, a "
                f"letter first, and neither {_MAIN} nor the name of a bot; {way}"
            )
    of_agent = {
        agent: next((pattern for pattern in names if fnmatch.fnmatchcase(agent, pattern)), None) for agent in agents
    }
    there = ", ".join(agents)
    if (number := len(set(names.values()))) > len(agents):
        raise errors.ConfigError(
            f"{settings.asked}: {number} policies for {len(agents)} agents, {there}; give each agent one at most"
        )
    if without := [agent for agent, pattern in of_agent.items() if pattern is None]:
        raise errors.ConfigError(
            f"{settings.asked}: no pattern matches {', '.join(without)}; the agents are {there}; add a pattern, such "
            'as "*" at the end'
        )
    unused = [pattern for pattern in names if pattern not in of_agent.values()]
    if unused:
        taken = [agent for agent in agents if fnmatch.fnmatchcase(agent, unused[0])]
        why = f"earlier ones match {', '.join(taken)} already" if taken else "it matches none of them"
        raise errors.ConfigError(
            f"{settings.asked}: pattern {unused[0]!r} has no agent: {why}; the agents are {there}, and each has one "
            "policy: leave the pattern out, or fix it"
        )
    return tuple(names[str(pattern)] for pattern in of_agent.values())


def by_pattern(settings: SeatsConfig) -> dict[str, str]:
    """Returns the names of policies by patterns; {} for one policy, or one of each agent. Raises ConfigError."""
    if settings.policies in (SHARED, EACH):
        return {}
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
