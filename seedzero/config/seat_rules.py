"""Checks rows that are seats: a group has whole games, and policies fit the agents."""

from __future__ import annotations

from collections.abc import Set

from seedzero.config import configs, league_rules, seats_config
from seedzero.core import errors, types


def whole_games(
    config: configs.Config, spec: types.EnvSpec, *, explicit: Set[str]
) -> tuple[configs.Config, list[str]]:
    """Makes groups of whole games if rows are seats; returns the configuration and a note for each change.

    Several policies also get smaller batches. Raises ConfigError as `seats_config.policies` does.
    """
    sizes = {name: found for name, found in _sizes_of_groups(config, spec).items() if name not in explicit}
    whole = {name: -(-size // number) * number for name, (size, number) in sizes.items() if size % number}
    notes = [f"--{name}={whole[name]}: {_rows(sizes[name][1], spec)}" for name in whole]
    policies = {name: size for name, size in seats_config.implied(config, spec).items() if name not in explicit}
    notes += [f"--{name}={size}: a policy learns from the rows of its own agents" for name, size in policies.items()]
    return configs.override(config, {**whole, **policies}), notes


def _sizes_of_groups(config: configs.Config, spec: types.EnvSpec) -> dict[str, tuple[int, int]]:
    """Returns the settings that count rows of whole games, with their values and the numbers that divide these.

    None if rows are not seats. Evaluations of a league between two sides have two games or more, one from each side.
    """
    number, given = len(spec.seats), configs.flatten(config)
    found = {"worker.envs_per_group": number} if spec.seats else {}
    if spec.fixed_seats:
        found |= dict.fromkeys(
            ("evaluation.num_envs", "evaluation.episodes"), number * (2 if league_rules.sides(config, spec) else 1)
        )
    return {name: (int(given[name]), number) for name, number in found.items()}


def _rows(number: int, spec: types.EnvSpec, of: str = "") -> str:
    """Says why a number of rows is needed, which is that of one game or of two. of: names the environment."""
    found = f"a game{of} has" if number == len(spec.seats) else f"two games{of}, one from each side, have"
    return f"a row is a seat, and {found} {number}"


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
    for name, (size, number) in _sizes_of_groups(config, spec).items():
        if size % number:
            raise errors.ConfigError(
                f"--{name}={size}: {_rows(number, spec, f' of --env={config.env.id}')}; "
                f"give a multiple of {number}, such as {-(-size // number) * number}"
            )
    seats_config.check(config, spec)
