"""Makes an agent by its name; CONTRIBUTING.md has the recipe of a new agent."""

from __future__ import annotations

import importlib

from seedzero.agents import base, own
from seedzero.config import combinations, configs, own_agents
from seedzero.core import types


def make(config: configs.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
    """Returns the configured agent for environments of this spec: `make` of the module with the agent's name.

    Raises:
      ConfigError: the agent, or a torso in its settings, does not suit these environments.
    """
    combinations.check_environment(config, spec=spec)
    name = config.run.agent
    module = own if own_agents.is_own(name) else importlib.import_module(f"seedzero.agents.{name}")
    agent: base.Agent = module.make(config, spec, platform)
    return agent
