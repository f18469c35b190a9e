"""Makes environments of Pgx's games, or says what is missing: their rules are JAX functions."""

from __future__ import annotations

from seedzero.config import sections
from seedzero.core import errors, packages, types
from seedzero.envs import env_base


def make(
    name: str, settings: sections.EnvConfig, num_envs: int, *, role: types.Role = types.Role.TRAIN
) -> env_base.VectorEnv:
    """See `pgx_env.make`; also raises EnvironmentFailure if JAX is missing."""
    try:
        from seedzero.envs import pgx_env
    except ModuleNotFoundError as error:
        raise errors.EnvironmentFailure(
            f"game {name!r} needs the missing package {error.name}, since its rules are JAX functions; install it on "
            f"this machine and on every worker's: {packages.install_command('pgx')}"
        ) from error
    return pgx_env.make(name, settings, num_envs, role=role)
