"""The agents by name; CONTRIBUTING.md has the recipe of a new agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from seedzero.agents import alphazero, apex, base, muzero, own, ppo, r2d2, sac, vtrace
from seedzero.config import combinations, configs
from seedzero.core import types

AGENTS: Mapping[str, Callable[[configs.Config, types.EnvSpec, str], base.Agent]] = {
    "muzero": muzero.make,
    "alphazero": alphazero.make,
    "vtrace": vtrace.make,
    "apex": apex.make,
    "r2d2": r2d2.make,
    "ppo": ppo.make,
    "sac": sac.make,
}


def make(config: configs.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
    """Returns the configured agent for environments of this spec.

    Raises:
      ConfigError: the agent, or a torso in its settings, does not suit these environments.
    """
    combinations.check_environment(config, spec=spec)
    return AGENTS.get(config.run.agent, own.make)(config, spec, platform)
