"""Rules about a league: implied values, impossible combinations, several players, and two sides of agents."""

from __future__ import annotations

from collections.abc import Callable

from seedzero.config import configs, families, league_config, rules
from seedzero.core import env_ids, errors, opponents, types, user_code


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


# Implied values ---------------------------------------------------------------------------------------------------


def _are_of_another(c: rules.Situation) -> bool:
    """Returns whether a preset's arguments do not fit the user's builder; an own one reads names of its own."""
    fits = c.league.builder in league_config.BUILDERS and not rules.why(c.league.arguments)
    return "league.builder" in c.given and not fits


def _num_workers(c: rules.Situation) -> int:
    return int(max(1, c.worker.num + c.worker.num_remote))


def _too_few_groups(c: rules.Situation) -> object:
    number = c.league.most_players if "league" in c.agent.SECTIONS else 1
    needed = min(16, -(-(number + 1) // _num_workers(c)))
    return number > 1 and c.this < needed and {"number": number, "needed": needed}


# Problems ---------------------------------------------------------------------------------------------------------


def _members(c: rules.Situation) -> tuple[str, ...]:
    """Returns the names of scripted members. Raises ValueError or ConfigError for impossible ones."""
    names = opponents.parse_members(c.league.members)
    for name in filter(opponents.is_of_user, names):
        user_code.check(name)
    return names


def _homeless(c: rules.Situation) -> object:
    """Returns a scripted member that does not play the family's games, and families whose games it plays."""
    family = families.of(c.env.id).prefix
    for name in _members(c):
        able = ["spiel"] if name.startswith(opponents.SPIEL) else ["spiel", "pgx"]
        if name != opponents.RANDOM and family not in able:
            return {"member": name, "games": " or ".join(f"--env={each}:GAME" for each in able)}
    return None


def _adds_no_players(c: rules.Situation) -> object:
    way = "" if c.league.builder == "alphastar" else "--league.builder=alphastar "
    way += "--league.builder_args='{\"keep_training_probability\": 0.1}'"
    return c.this > c.league.num_learning and not c.league.adds and {"way": way}


def _several(about: str, applies: Callable[[rules.Situation], object], text: str) -> rules.SettingsRule:
    """Rejects a setting because several players learn."""

    def found(c: rules.Situation) -> object:
        number = c.league.most_players if "league" in c.agent.SECTIONS else 1
        others = ", max_players" if number > c.league.num_learning else ""
        several = f"{number} players learn (league.main_players, main_exploiters, league_exploiters{others})"
        return number > 1 and applies(c) and {"several": several, "needed": -(-number // _num_workers(c))}

    return rules.error(about, found, f"{{it}}: {{several}}{text}")


def _falls(c: rules.Situation) -> object:
    """Returns the setting by which the learning rate falls, its value, and that of a constant rate."""
    if not c.league.resets:
        return None
    if "optimizer" in c.agent.SECTIONS:
        setting, given, constant = "optimizer.schedule", c.optimizer.schedule, "constant"
    else:
        (setting, given), constant = c.agent.decay_end(c.config), "0"
    return setting and given != constant and {"setting": setting, "given": given, "constant": constant}


# With the environment ---------------------------------------------------------------------------------------------


def _has_sides(c: rules.Situation) -> bool:
    return bool(sides(c.config, c.spec))


def _no_match(c: rules.Situation) -> object:
    """Returns what an environment has instead of two players with discrete actions."""
    num_players, num_seats = c.spec.num_players, len(c.spec.seats)
    if not c.league.on or (not c.spec.is_continuous and (_has_sides(c) or 2 in (num_players, num_seats))):
        return None
    found = f"{num_seats} seats" if num_seats else f"{num_players} player"
    return "continuous actions" if c.spec.is_continuous else found


def _between_sides(about: str, most: str, is_untried: Callable[[rules.Situation], object]) -> rules.SettingsRule:
    return rules.error(
        about,
        lambda c: _has_sides(c) and is_untried(c) and {"most": f"{configs.flag(c.name)}={most}"},
        "{it}: a league between two sides of agents does not support it yet; give {most}, or {league.off}: no league",
        _SPEC,
    )


_SPEC = rules.Needs.SPEC
_LEAGUE = "league.freeze_every league.builder"
_NO_LEAGUE = "{it} is for a league, and this run has none; give "

RULES = (
    rules.note("league.builder_args", "", _are_of_another,
        "--{name} is off: {this} is for the preset's own builder"),
    rules.note("league.main_exploiters league.league_exploiters", "1",
        lambda c: c.league.builder == "alphastar" and c.league.num_learning == 1,
        "--league.main_exploiters=1 --league.league_exploiters=1: builder alphastar's players"),
    rules.note("worker.num_groups", "{needed}", _too_few_groups,
        "--{name}={needed}: {number} learning players take the groups of environments in turn"),
    rules.note("optimizer.schedule", "constant", lambda c: "league" in c.agent.SECTIONS and c.league.resets,
        "--{name}=constant: builder {league.builder} may reset players, which learn from scratch"),
    rules.error("league.builder",
        lambda c: c.this not in league_config.BUILDERS and rules.why(user_code.check, c.this),
        f"--{{name}}: {{why}}, or one of {', '.join(league_config.BUILDERS)}"),
    rules.error("league.builder_args", lambda c: rules.why(c.league.arguments), "{why}"),
    rules.error("muzero.off_policy_correction", lambda c: c.this and c.league.on,
        "{league.asked}: rows of a league's games are moved by several players, and "
        "muzero.off_policy_correction=true corrects the returns of one; leave one of them out"),
    rules.error("muzero.memory", lambda c: c.this != "none" and c.league.on,
        "{it}: in a league others move some rows of a player's games, and what its memory saw is then neither's; give "
        "--muzero.memory=none, or {league.off}"),
    rules.error("league.opponent_model", lambda c: c.this and "search" not in c.agent.SECTIONS,
        "{it} is for a search, and agent {run.agent} has none; leave it out"),
    rules.error("league.opponent_model", lambda c: c.this and not c.league.on,
        _NO_LEAGUE + "--league.freeze_every=N, or leave it out"),
    *(
        rules.error(name, lambda c: c.this and c.league.opponent_model,
            "--league.opponent_model=true learns the moves of others, and {it} is for the player's own; leave one of "
            "them out")
        for name in ("muzero.policy_gradient_weight", "muzero.search_value_age", "reanalyse.fresh_share")
    ),
    rules.error("league.members", lambda c: rules.why(_members, c), "{it}: {why}"),
    rules.error("league.members", lambda c: c.this and not c.league.on,
        _NO_LEAGUE + "--league.freeze_every=N, or leave it out"),
    rules.error("league.members env.id", _homeless,
        "{it}: {member} plays games of {games}, but this is --env={env.id}; give --league.members=, or such a game"),
    rules.error("league.members league.opponent_model", lambda c: c.this and c.league.opponent_model,
        "{it}: --league.opponent_model=true learns opponents' moves from their probabilities, which scripted members "
        "do not have; leave one of them out"),
    *(
        rules.error(f"league.{key}", lambda c: c.this > (c.name == "league.main_players") and not c.league.on,
            _NO_LEAGUE + "--league.builder=alphastar, or --league.freeze_every=N")
        for key in ("main_players", "main_exploiters", "league_exploiters")
    ),
    rules.error("league.max_players", lambda c: c.this and not c.league.on,
        _NO_LEAGUE + "--league.builder=MODULE:FUNCTION with a builder that adds players, or leave it out"),
    rules.error("league.max_players", lambda c: c.this and c.this < c.league.num_learning,
        "{it}: {league.num_learning} players learn from the start (league.main_players, main_exploiters, "
        "league_exploiters); give --league.max_players={league.num_learning} or more, or fewer players"),
    rules.error("league.max_players", _adds_no_players,
        "{it}: builder {league.builder} adds no players; give {way}, or leave it out"),
    _several("run.max_env_steps", lambda c: c.this,
        "; give --max_env_steps=0, and --max_updates=N or --max_seconds=N"),
    _several("training.acting_devices", lambda c: c.this, ", each on devices that act and learn; leave it out"),
    _several("replay.placement", lambda c: c.this == "host",
        ", with a replay on their devices; give --replay.placement=device"),
    _several("worker.num_groups", lambda c: _num_workers(c) * c.this < c.league.most_players,
        ", each in groups of environments of its own; give --worker.num_groups={needed} or more, or more workers"),
    rules.error("league.builder optimizer.schedule optimizer.decay_updates", _falls,
        "--{setting}={given}: builder {league.builder} may reset players, and their learning rate would not begin "
        "again; give --{setting}={constant}"),
    rules.error("muzero.search_value_start", lambda c: c.this and c.league.resets,
        "{it}: it counts a player's updates, which continue when builder {league.builder} resets the player; give "
        "--muzero.search_value_start=0"),
    rules.error(_LEAGUE, lambda c: rules.why(sides, c.config, c.spec), "{why}", _SPEC),
    rules.error(_LEAGUE, _no_match,
        "{league.asked}: a league plays games of two players with discrete actions, but --env={env.id} has {why}; "
        "give --env=spiel:GAME, or {league.off}: no league", _SPEC),
    rules.error(_LEAGUE, lambda c: c.league.on and c.spec.moves_again,
        "{league.asked}: a league counts matches of players who alternate, but in this game one may move several "
        "times in a row; give {league.off}", _SPEC),
    rules.error("{section}.n_step", lambda c: c.this == 1 and c.league.on and c.spec.num_players > 1,
        "{it} in a league in which players take turns: one step after a player's turn it is the other's, so it would "
        "learn no values; give --{name}=2 or more", _SPEC),
    _between_sides("run.agent", "ppo", lambda c: c.this != "ppo"),
    _between_sides("env.id", "pettingzoo:MODULE:FUNCTION", lambda c: c.this == env_ids.REMOTE),
    _between_sides("ppo.central_value", "false", lambda c: c.this),
    *(
        _between_sides(name, "0", lambda c: c.this)
        for name in ("network.lstm_width", "league.main_exploiters", "league.league_exploiters")
    ),
    *(
        _between_sides(name, "1", lambda c: c.this > 1)
        for name in ("training.num_devices", "league.main_players", "league.max_players")
    ),
    rules.error("league.builder", lambda c: c.this == "biased" and (_has_sides(c) or not c.spec.seats),
        "{it}: its first phase ends by the exact judge of games of two seats, and --env={env.id} is none; give "
        "--env=spiel:matrix_brps or another such game, or another builder", _SPEC),
)  # fmt: skip
