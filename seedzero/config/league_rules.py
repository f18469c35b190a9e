"""Handles a league's settings that affect each other: implied values, and impossible combinations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Set

from seedzero.config import configs, families, league_config, options
from seedzero.core import env_ids, errors, opponents, types, user_code


def implied(config: configs.Config, explicit: Set[str]) -> tuple[dict[str, options.Value], list[str]]:
    """Returns the values that a league implies, and notes about them."""
    changes: dict[str, options.Value] = {}
    notes = []
    if config.league.builder_args and "league.builder" in explicit and "league.builder_args" not in explicit:
        fits = False  # a builder of the user's reads names of its own
        with contextlib.suppress(errors.ConfigError):
            fits = config.league.builder in league_config.BUILDERS and bool(config.league.arguments())
        if not fits:
            changes["league.builder_args"] = ""
            notes.append(f"--league.builder_args is off: {config.league.builder_args} is for the preset's own builder")
    exploiters = ("league.main_exploiters", "league.league_exploiters")
    if config.league.builder == "alphastar" and explicit.isdisjoint(exploiters) and config.league.num_learning == 1:
        changes |= dict.fromkeys(exploiters, 1)
        notes.append("--league.main_exploiters=1 --league.league_exploiters=1: builder alphastar's players")
    league, worker = configs.override(config, changes).league, config.worker
    num_players = league.most_players
    needed = min(16, -(-(num_players + 1) // _num_workers(config)))
    if num_players > 1 and worker.num_groups < needed and "worker.num_groups" not in explicit:
        changes["worker.num_groups"] = needed
        notes.append(
            f"--worker.num_groups={needed}: {num_players} learning players take the groups of environments in turn"
        )
    of_schedule = "optimizer" in config.agent.SECTIONS and config.optimizer.schedule != "constant"
    if league.resets and of_schedule and "optimizer.schedule" not in explicit:
        changes["optimizer.schedule"] = "constant"
        notes.append(
            f"--optimizer.schedule=constant: builder {league.builder} may reset players, which learn from scratch"
        )
    return changes, notes


def problems(config: configs.Config) -> Iterator[str]:
    """Yields the impossible combinations, each with what to do."""
    if "league" not in config.agent.SECTIONS:
        return
    league = config.league
    if league.on and config.muzero.off_policy_correction:
        yield (
            f"{league.asked}: rows of a league's games are moved by several players, and "
            "muzero.off_policy_correction=true corrects the returns of one; leave one of them out"
        )
    if league.on and config.run.agent == "muzero" and (memory := config.muzero.memory) != "none":
        yield (
            f"--muzero.memory={memory}: in a league others move some rows of a player's games, and what its memory "
            f"saw is then neither's; give --muzero.memory=none, or {league.off}"
        )
    yield from _opponent_model_problems(config)
    yield from _member_problems(config)
    numbers = {name: getattr(league, name) for name in ("main_players", "main_exploiters", "league_exploiters")}
    more = [name for name, number in numbers.items() if number > (name == "main_players")]
    if more and not league.on:
        yield (
            f"--league.{more[0]}={numbers[more[0]]} is for a league, and this run has none; give "
            "--league.builder=alphastar, or --league.freeze_every=N"
        )
    yield from _max_players_problems(config)
    yield from _several_players_problems(config)
    if league.resets:
        given = "constant"
        if "optimizer" in config.agent.SECTIONS:
            setting, given, constant = "optimizer.schedule", config.optimizer.schedule, "constant"
        else:
            (setting, found), constant = config.agent.decay_end(config), "0"
            given = str(found) if setting else constant
        if given != constant:
            yield (
                f"--{setting}={given}: builder {league.builder} may reset players, and their learning rate would not "
                f"begin again; give --{setting}={constant}"
            )
        if (start := config.muzero.search_value_start) and config.run.agent == "muzero":
            yield (
                f"--muzero.search_value_start={start}: it counts a player's updates, which continue when builder "
                f"{league.builder} resets the player; give --muzero.search_value_start=0"
            )
    try:
        if league.builder not in league_config.BUILDERS:
            user_code.check(league.builder)
    except errors.ConfigError as error:
        yield f"--league.builder: {error}, or one of {', '.join(league_config.BUILDERS)}"
    try:
        league.arguments()
    except errors.ConfigError as error:
        yield str(error)


def sides(config: configs.Config, spec: types.EnvSpec) -> tuple[int, ...]:
    """Returns the side of each agent in a league's matches, 0 or 1, [S]; () without a league, or without agents.

    Two agents are two sides; otherwise agents whose names differ only by their number are a side, such as left_0 and
    left_1. Raises ConfigError for other numbers of sides.
    """
    if "league" not in config.agent.SECTIONS or not config.league.on or not spec.fixed_seats:
        return ()
    agents = spec.seats
    names = agents if len(agents) == 2 else [agent.rstrip("0123456789").rstrip("_") for agent in agents]
    found = list(dict.fromkeys(names))
    if len(found) != 2:
        raise errors.ConfigError(
            f"{config.league.asked}: a league is played between two sides, and --env={config.env.id} has the agents "
            f"{', '.join(agents)}; name them by their sides, such as left_0, left_1 and right_0, or give "
            f"{config.league.off}: no league"
        )
    return tuple(map(found.index, names))


def _check_sides(config: configs.Config) -> None:
    """Raises ConfigError for settings that were never tried in a league between two sides."""
    most = {
        "ppo.central_value": False,
        "training.num_devices": 1,
        "network.lstm_width": 0,
        "league.main_players": 1,
        "league.main_exploiters": 0,
        "league.league_exploiters": 0,
        "league.max_players": 1,
    }
    given = {name: configs.flatten(config)[name] for name in most}
    untried = [
        (f"--{name}={str(given[name]).lower()}", f"--{name}={str(value).lower()}")
        for name, value in most.items()
        if int(given[name]) > value
    ]
    if config.run.agent != "ppo":
        untried = [(f"--agent={config.run.agent}", "--agent=ppo")]
    elif config.env.id == env_ids.REMOTE:
        untried = [(f"--env={config.env.id}", "--env=pettingzoo:MODULE:FUNCTION")]
    for asked, way in untried:
        raise errors.ConfigError(
            f"{asked}: a league between two sides of agents does not support it yet; give {way}, or "
            f"{config.league.off}: no league"
        )


def check_environment(config: configs.Config, spec: types.EnvSpec) -> None:
    """Raises ConfigError for environments that a league cannot play."""
    if "league" not in config.agent.SECTIONS or not (asked := config.league.asked):
        return
    has_sides, num_seats = bool(sides(config, spec)), len(spec.seats)
    if spec.is_continuous or not (has_sides or 2 in (spec.num_players, num_seats)):
        found = f"{num_seats} seats" if num_seats else f"{spec.num_players} player"
        raise errors.ConfigError(
            f"{asked}: a league plays games of two players with discrete actions, but --env={config.env.id} has "
            f"{'continuous actions' if spec.is_continuous else found}; give --env=spiel:GAME, or "
            f"{config.league.off}: no league"
        )
    if has_sides:
        _check_sides(config)
    if config.league.builder == "biased" and (has_sides or not num_seats):
        raise errors.ConfigError(
            f"{asked}: its first phase ends by the exact judge of games of two seats, and --env={config.env.id} is "
            "none; give --env=spiel:matrix_brps or another such game, or another builder"
        )


def _member_problems(config: configs.Config) -> Iterator[str]:
    league = config.league
    if not league.members:
        return
    flag = f"--league.members={league.members}"
    try:
        names = opponents.parse_members(league.members)
        for name in filter(opponents.is_of_user, names):
            user_code.check(name)
    except (ValueError, errors.ConfigError) as error:
        yield f"{flag}: {error}"
        return
    if not league.on:
        yield f"{flag} is for a league, and this run has none; give --league.freeze_every=N, or leave it out"
    family = families.of(config.env.id).prefix
    for name in names:
        able = ["spiel"] if name.startswith(opponents.SPIEL) else ["spiel", "pgx"]
        if name != opponents.RANDOM and family not in able:
            yield (
                f"{flag}: {name} plays games of {' or '.join(f'--env={each}:GAME' for each in able)}, but this is "
                f"--env={config.env.id}; give --league.members=, or such a game"
            )
            return
    if league.opponent_model:
        yield (
            f"{flag}: --league.opponent_model=true learns opponents' moves from their probabilities, which scripted "
            "members do not have; leave one of them out"
        )


def _opponent_model_problems(config: configs.Config) -> Iterator[str]:
    if not config.league.opponent_model:
        return
    if "search" not in config.agent.SECTIONS:
        yield f"--league.opponent_model=true is for a search, and agent {config.run.agent} has none; leave it out"
    if not config.league.on:
        yield (
            "--league.opponent_model=true is for a league, and this run has none; give --league.freeze_every=N, or "
            "leave it out"
        )
    of_own = {
        "muzero.policy_gradient_weight": config.muzero.policy_gradient_weight,
        "muzero.search_value_age": config.muzero.search_value_age,
        "reanalyse.fresh_share": config.reanalyse.fresh_share,
    }
    for name in (name for name, value in of_own.items() if value):
        yield (
            f"--league.opponent_model=true learns the moves of others, and --{name}={of_own[name]:g} is for the "
            "player's own; leave one of them out"
        )


def _max_players_problems(config: configs.Config) -> Iterator[str]:
    league, flag = config.league, f"--league.max_players={config.league.max_players}"
    if not league.max_players:
        return
    if not league.on:
        yield (
            f"{flag} is for a league, and this run has none; give --league.builder=MODULE:FUNCTION with a builder "
            "that adds players, or leave it out"
        )
    elif league.max_players < league.num_learning:
        yield (
            f"{flag}: {league.num_learning} players learn from the start (league.main_players, main_exploiters, "
            f"league_exploiters); give --league.max_players={league.num_learning} or more, or fewer players"
        )
    with contextlib.suppress(errors.ConfigError):  # of wrong arguments, which are reported with it
        if league.on and league.max_players > league.num_learning and not league.adds:
            way = "--league.builder_args='{\"keep_training_probability\": 0.1}'"
            way = way if league.builder == "alphastar" else f"--league.builder=alphastar {way}"
            yield f"{flag}: builder {league.builder} adds no players; give {way}, or leave it out"


def _several_players_problems(config: configs.Config) -> Iterator[str]:
    number, worker, training = config.league.most_players, config.worker, config.training
    if number == 1:
        return
    others = ", max_players" if number > config.league.num_learning else ""
    several = f"{number} players learn (league.main_players, main_exploiters, league_exploiters{others})"
    if config.run.max_env_steps:
        yield (
            f"--max_env_steps={config.run.max_env_steps}: {several}; give --max_env_steps=0, and --max_updates=N or "
            "--max_seconds=N"
        )
    if training.acting_devices:
        yield (
            f"--training.acting_devices={training.acting_devices}: {several}, each on devices that act and learn; "
            "leave it out"
        )
    if config.replay.placement == "host":
        yield f"--replay.placement=host: {several}, with a replay on their devices; give --replay.placement=device"
    if _num_workers(config) * worker.num_groups < number:
        yield (
            f"--worker.num_groups={worker.num_groups}: {several}, each in groups of environments of its own; give "
            f"--worker.num_groups={-(-number // _num_workers(config))} or more, or more workers"
        )


def _num_workers(config: configs.Config) -> int:
    return max(1, config.worker.num + config.worker.num_remote)
