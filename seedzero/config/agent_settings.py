"""Finds settings of a run's agent by their key alone, whichever section declares them."""

from __future__ import annotations

import functools
from typing import Any

from seedzero.config import configs, options


def name(config: configs.Config, key: str) -> str:
    """Returns SECTION.KEY of a setting of the run's agent, preferring the agent's own section; "" if there is none.

    key: KEY, or SECTION.KEY.
    """
    kind: Any = type(config)
    return _name(kind, config.run.agent, key)


@functools.cache
def _name(kind: Any, agent: str, key: str) -> str:
    config, known = configs.of_agent(agent, kind), configs.fields(kind)
    sections = (config.section, *config.agent.SECTIONS, *configs.SHARED, "replay", "run")
    names = [key] if "." in key else [f"{section}.{key}" for section in sections]
    return next((name for name in names if name in known and configs.is_read(name, config)), "")


def value(config: configs.Config, key: str) -> options.Value | None:
    """Returns the value of `name`, or None if there is none."""
    section, _, field = name(config, key).partition(".")
    found: options.Value | None = getattr(getattr(config, section), field) if section else None
    return found
