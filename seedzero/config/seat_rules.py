"""Rules about rows that are seats: a group has whole games, and policies fit the agents."""

from __future__ import annotations

from seedzero.config import league_rules, rules, seats_config
from seedzero.core import packing, types


def _breaks_games(c: rules.Situation) -> object:
    """Returns the rows of a game if a number of rows is not that of whole games; the next one that is, too.

    An evaluation of a league between two sides has two games or more, one from each side.
    """
    of_evaluation, game = c.name.startswith("evaluation."), f"a game of --env={c.env.id} has"
    rows = len(c.spec.seats) * (c.spec.fixed_seats or not of_evaluation)
    if of_evaluation and league_rules.sides(c.config, c.spec):
        rows, game = 2 * rows, f"two games of --env={c.env.id}, one from each side, have"
    return rows and c.this % rows and {"rows": rows, "game": game, "whole": -(-c.this // rows) * rows}


def _rarest(c: rules.Situation) -> object:
    """Returns the largest batch that a policy may fill from its own rows: the share of agents with the rarest one."""
    found = seats_config.policies(c.config, c.spec.seats) if c.spec.fixed_seats else ()
    fewest = min(map(found.count, found), default=0)
    return fewest < len(found) and {"size": max(1, c.this * fewest // len(found))}


def _asked(c: rules.Situation) -> str:
    return seats_config.of_config(c.config).asked


def _keeps_no_seat(c: rules.Situation) -> str:
    found = "rows that change their seats from game to game" if c.spec.seats else "one agent"
    return found if _asked(c) and not c.spec.fixed_seats else ""


def _has_no_vectors(c: rules.Situation) -> str:
    """Returns what a central value sees instead of several agents' vectors."""
    is_shown = c.this and c.spec.fixed_seats
    has_images = is_shown and types.shown(packing.without_training_only(c.spec).arrays) == "images"
    return "images" if has_images else "one agent" if c.this and not is_shown else ""


_SPEC = rules.Needs.SPEC
_GROUPS = ("worker.envs_per_group", "evaluation.num_envs", "evaluation.episodes")

RULES = (
    *(
        rules.note(name, "{whole}", _breaks_games,
            "--{name}={whole}: a row is a seat, and {game} {rows}", _SPEC)
        for name in _GROUPS
    ),
    rules.note("{section}.batch_size", "{size}", _rarest,
        "--{name}={size}: a policy learns from the rows of its own agents", _SPEC),
    rules.warning("{section}.max_lag", lambda c: c.this == 1 and c.spec.seats,
        "{it}: rows are seats, which come unevenly, and one with a whole unroll waits for an update with all its "
        "group: batches are mostly padding, and steps become old; give --{name}=4", _SPEC),
    rules.error("ppo.central_value", lambda c: c.this and not c.env.id.startswith("pettingzoo:"),
        "{it}: the value sees what all agents see, and --env={env.id} tells no joint observation; give "
        "--env=pettingzoo:MODULE, or --ppo.central_value=false"),
    rules.error("seats.policies", lambda c: rules.why(seats_config.by_pattern, c.seats), "{why}"),
    rules.error("seats.policies league.freeze_every league.builder", lambda c: _asked(c) and c.league.on,
        "{it}: in a league ({league.asked}) one policy plays all seats; give {league.off}, or "
        "--seats.policies=shared"),
    rules.error("training.num_devices seats.policies", lambda c: c.this > 1 and _asked(c),
        "{it}: {why}, whose policies share one device; give --training.num_devices=1"),
    rules.error("run.max_env_steps seats.policies", lambda c: c.this and _asked(c),
        "{it}: {why}, and each policy counts steps of its own; give --max_env_steps=0, and --max_updates=N or "
        "--max_seconds=N"),
    rules.error("cluster.num_hosts seats.policies", lambda c: c.this > 1 and _asked(c),
        "{it}: {why}, whose policies learn on one host; give --cluster.num_hosts=1, or --seats.policies=shared"),
    *(
        rules.error(name, _breaks_games,
            "{it}: a row is a seat, and {game} {rows}; give a multiple of {rows}, such as {whole}", _SPEC)
        for name in _GROUPS
    ),
    rules.error("seats.policies", _keeps_no_seat,
        "{it}: --env={env.id} has {why}; agents that keep their seats have --env=pettingzoo:MODULE, or give "
        "--seats.policies=shared", _SPEC),
    rules.error("seats.policies", lambda c: rules.why(seats_config.policies, c.config, c.spec.seats), "{why}",
        _SPEC),
    rules.error("ppo.central_value", _has_no_vectors,
        "{it}: the value sees vectors of several agents, and --env={env.id} has {why}; give --ppo.central_value=false",
        _SPEC),
)  # fmt: skip
