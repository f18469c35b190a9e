"""Plays POPGym's environments (Morad et al. 2023), Gymnasium tasks in which an agent must remember something."""

from __future__ import annotations

import importlib
import importlib.util

import gymnasium

from seedzero.config import families, sections
from seedzero.core import errors, packages
from seedzero.envs import env_base, gym_env

PACKAGE = "popgym"
_PREFIX = "popgym-"
"""Prefix of its ids in Gymnasium; in our ids, the family's name replaces it."""


def make(name: str, settings: sections.EnvConfig, num_envs: int, *, render: bool = False) -> gym_env.GymVectorEnv:
    """Returns E environments in the settings' wrappers; raises as GymVectorEnv.

    name: such as RepeatPreviousEasy-v0.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        command = packages.install_command(*families.of(PACKAGE).offers[0].needs)
        raise errors.EnvironmentFailure(
            f"environments of POPGym need the package {PACKAGE}, which is not installed here; on every machine with "
            f"workers: {command}"
        )
    check_id(name)
    return gym_env.make(f"{_PREFIX}{name}", settings, num_envs, render=render)


def check_id(name: str) -> None:
    """Raises EnvironmentFailure, with the nearest ids, if an installed POPGym does not know the id."""
    if importlib.util.find_spec(PACKAGE) is None:
        return
    with env_base.failures_of(f"{PACKAGE} cannot be imported, fix this first"), gym_env.quiet():
        importlib.import_module(PACKAGE)  # which registers its ids
    known = [each.removeprefix(_PREFIX) for each in gymnasium.registry if each.startswith(_PREFIX)]
    if name not in known:
        raise env_base.no_such("POPGym has no environment", name, known, f"it has {len(known)}, RepeatPreviousEasy-v0")
