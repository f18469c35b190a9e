"""Finds users' own agents: a module outside the package has an `OwnAgent`, which --agent=MODULE:OBJECT names."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from seedzero.config import options
from seedzero.core import errors, user_code

SECONDS = 120.0
"""Longest time to import a module, and longest call of `OwnAgent.make`."""
_KINDS = (bool, int, float, str)


class OwnAgent(NamedTuple):
    """An agent: its settings, its parts of presets, and the function that makes it.

    Attributes:
      name: the name of its section; you set a setting by --NAME.SETTING.
      settings: the section: a frozen dataclass, with fields by `options.at_creation`, `on_resume` and `any_time`.
      make: (configuration, spec of the environments, "cpu", "gpu" or "tpu") -> `agents.base.Agent`.
      parts: preset -> its values for this agent, made by `options.part`; presets without a part have its defaults.
    """

    name: str
    settings: type[options.AgentSection]
    make: Callable[[Any, Any, str], Any]
    parts: Mapping[str, options.Part] = {}


def is_own(agent: str) -> bool:
    """Returns whether the name of an agent is MODULE:OBJECT."""
    return ":" in agent


@functools.cache
def load(agent: str) -> OwnAgent:
    """Returns the agent of a name MODULE:OBJECT; imports the module, also from the current directory.

    Raises:
      ConfigError: with file and line, if the module raises or does not return, or the object is not an agent.
    """
    what = f"--agent={agent}"
    user_code.check(agent)
    module = agent.partition(":")[0]
    found = user_code.call(user_code.find, agent, seconds=SECONDS, what=what, module=module)
    if found is None:
        raise errors.ConfigError(f"{what}: {user_code.missing(agent, 'agent')}")
    if (problem := _problem(found)) is not None:
        raise errors.ConfigError(f"{what} ({user_code.line_of(agent)}) {problem}")
    own: OwnAgent = found
    return own


def _problem(found: object) -> str | None:
    """Ends a sentence about an impossible agent; None if the agent is possible."""
    if not isinstance(found, OwnAgent):
        return f"is {_described(found)}; expected seedzero.config.own_agents.OwnAgent(name, settings, make, parts)"
    if not isinstance(found.name, str) or not found.name.isidentifier():
        return f"has the name {found.name!r}; expected letters, digits and underscores, as its settings are --NAME.KEY"
    kind = found.settings
    is_section = isinstance(kind, type) and issubclass(kind, options.AgentSection)
    if not (is_section and dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen):
        return f"has {_described(kind)} as settings; expected a frozen dataclass, a subclass of options.AgentSection"
    for field in dataclasses.fields(kind):
        if "resumable" not in field.metadata or not isinstance(field.default, _KINDS):
            return f"has the setting {field.name} without options.at_creation, options.on_resume or options.any_time"
    try:
        kind()
    except errors.ConfigError as error:
        return f"has impossible defaults: {error}"
    if not callable(found.make):
        return f"has {_described(found.make)} instead of make; expected a function"
    parts = found.parts.values() if isinstance(found.parts, Mapping) else [None]
    if not all(isinstance(part, options.Part) for part in parts):
        return "has other parts than a dictionary from presets to options.part(...)"
    return None


def _described(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"
