"""Checks rows that are seats: a group has whole games, and policies fit the agents."""

from __future__ import annotations

from collections.abc import Set

from seedzero.config import configs, seats_config
from seedzero.core import errors, types


def whole_games(
    config: configs.Config, spec: types.EnvSpec, *, explicit: Set[str]
) -> tuple[configs.Config, list[str]]:
    """Makes groups of whole games if rows are seats; returns the configuration and a note for each change.

    Several policies also get smaller batches. Raises ConfigError as `seats_config.policies` does.
    """
    number = len(spec.seats)
    whole = {
        name: -(-size // number) * number
        for name, size in _sizes_of_groups(config, spec).items()
        if size % number and name not in explicit
    }
    notes = [f"--{name}={size}: a row is a seat, and a game has {number}" for name, size in whole.items()]
    policies = {name: size for name, size in seats_config.implied(config, spec).items() if name not in explicit}
    notes += [f"--{name}={size}: a policy learns from the rows of its own agents" for name, size in policies.items()]
    return configs.override(config, {**whole, **policies}), notes


def _sizes_of_groups(config: configs.Config, spec: types.EnvSpec) -> dict[str, int]:
    """Returns the settings that count rows of whole games, with their values; none if rows are not seats."""
    names = ["worker.envs_per_group"] if spec.seats else []
    names += ["evaluation.num_envs", "evaluation.episodes"] if spec.fixed_seats else []
    return {name: int(configs.flatten(config)[name]) for name in names}


def uneven_rows(config: configs.Config, spec: types.EnvSpec) -> list[str]:
    """Returns a note on rows of seats, which come unevenly, if one whole unroll of a row holds its group."""
    agent = config.section
    if not spec.seats or getattr(config.agent, "max_lag", 0) != 1:
        return []
    return [
        f"--{agent}.max_lag=1: rows are seats, which come unevenly, and one with a whole unroll waits for an update "
        f"with all its group: batches are mostly padding, and steps become old; give --{agent}.max_lag=4"
    ]


def check(config: configs.Config, spec: types.EnvSpec) -> None:
    """Raises ConfigError for groups that do not have whole games, and for policies that do not fit the agents."""
    for name, size in _sizes_of_groups(config, spec).items():
        if size % (number := len(spec.seats)):
            raise errors.ConfigError(
                f"--{name}={size}: a row is a seat, and a game of --env={config.env.id} has {number}; "
                f"give a multiple of {number}, such as {-(-size // number) * number}"
            )
    seats_config.check(config, spec)
