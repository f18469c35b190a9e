"""Builders of a league: rules that decide on snapshots, resets and retirements, at fixed numbers of updates.

A builder is a pure function of players, results and counts, so a deterministic run repeats its decisions. The loop
takes its actions in their order: an exploiter's snapshot comes before its reset.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.config import league_config
from seedzero.core import errors, user_code
from seedzero.league import members, payoffs

ADD, FREEZE, RESET, RETIRE, MEET = "add", "freeze", "reset", "retire", "meet"
KINDS = (ADD, FREEZE, RESET, RETIRE, MEET)
SECONDS = 10.0
"""Longest time of a user's builder: the devices wait for it."""

_PATIENCE = 5
_BUILD = 6
"""Second number of the random keys of builders."""


class Action(NamedTuple):
    """A decision on one player.

    ADD begins another learning player. FREEZE takes a snapshot of a learning player, which continues to learn; RESET
    gives it other parameters. RETIRE takes a frozen player out of matchmaking; a learning one it ends with a snapshot,
    which is a frozen player. MEET gives a learning player one frozen player as its only opponent, until that retires.
    """

    kind: str  # of KINDS
    player: str  # of ADD: the new player's kind, of members.LEARNING
    # Of ADD and RESET: members.INITIAL, or the player whose parameters are taken; "" of ADD is INITIAL. Of MEET: the
    # opponent; "": matchmaking's
    source: str = ""
    reason: str = ""  # for users


def _unjudged() -> float:
    raise ValueError("no exact judge is here")


class Learned(NamedTuple):
    """Updates of a learning player, training steps at home, and the exact judge of its newest parameters."""

    updates: int
    env_steps: int
    # Returns its NashConv; in games of two seats alone, and slow in large ones. Raises ValueError without a judge
    nash_conv: Callable[[], float] = _unjudged


Builder = Callable[[members.Pool, payoffs.Payoff, Mapping[str, Learned], Mapping[str, Any], int], Sequence[Action]]
"""(players, results, counts by learning player, arguments, random key) -> actions."""


def key_of(seed: int, number: int) -> int:
    """Returns the random key of a run's Nth call of its builder, from 0."""
    return int(np.random.SeedSequence([seed, _BUILD, number]).generate_state(1, np.uint64)[0])


def load(name: str) -> Builder:
    """Returns a builder by its name in BUILDERS, or a user's by MODULE:FUNCTION. Raises ConfigError."""
    return BUILDERS.get(name) or user_code.load(name)


def run(
    builder: Builder,
    pool: members.Pool,
    payoff: payoffs.Payoff,
    counts: Mapping[str, Learned],
    arguments: Mapping[str, Any],
    key: int,
    *,
    name: str,
    seconds: float = SECONDS,
) -> tuple[Action, ...]:
    """Returns a builder's actions, checked against the players.

    Args:
      builder: of `load`; gets copies of all that it could change.
      counts: of every learning player.
      arguments: of the settings (`LeagueConfig.arguments`).
      key: of `key_of`.
      name: of the builder, for messages.
      seconds: longest time of a user's function.

    Raises:
      BuilderError: a user's function raised an error, takes too long, or returns something else than possible
        actions; with its file and line.
    """
    if builder in BUILDERS.values():
        return tuple(builder(pool, payoff, counts, arguments, key))
    kept = payoffs.Payoff(dict(payoff.rows), dict(payoff.recent), dict(payoff.before), payoff.spread)
    copies = (kept, dict(counts), copy.deepcopy(dict(arguments)))
    found = user_code.call(builder, pool, *copies, key, seconds=seconds, what=f"--league.builder={name}")
    if problem := _problem(found, pool):
        raise errors.BuilderError(f"--league.builder={name} ({user_code.place_of(builder)}) returns {problem}")
    return tuple(found)


def _problem(actions: Any, pool: members.Pool) -> str:
    """Returns the first impossible action and the way out; "": there is none."""
    if not isinstance(actions, list | tuple) or isinstance(actions, Action):
        return f"{_shown(actions)}; expected a list of seedzero.league.builders.Action"
    for action in actions:
        if not isinstance(action, Action):
            return f"a list with {_shown(action)}; expected seedzero.league.builders.Action(kind, player)"
        if any(not isinstance(value, str) for value in action):
            return f"{_shown(action)}; expected strings"
        if action.kind not in KINDS:
            return f"{_shown(action)}; expected a kind of {', '.join(KINDS)}"
        try:
            pool = _after(action, pool)
        except ValueError as error:
            return f"{_shown(action)}, but {error}"
    return ""


def _after(action: Action, pool: members.Pool) -> members.Pool:
    """Returns the players after an action, but for counts and digits. Raises ValueError for an impossible one."""
    if action.source and action.kind not in (ADD, RESET, MEET):
        raise ValueError("only add, reset and meet have a source")
    name, digits, counts = action.player, f"{pool.num_frozen:x}", dict[str, Any](version=0, env_steps=0)
    if action.kind == ADD:
        return members.add(pool, name, source=action.source or members.INITIAL)[0]
    if action.kind == MEET:
        return pool.meet(name, action.source)
    if action.kind == RESET:
        return pool.reset(name, source=action.source, **counts)
    if action.kind == FREEZE:
        return pool.freeze(name, digits, **counts)[0]
    return pool.retire(name)


def _shown(value: Any) -> str:
    return repr(value)[:100]


# ------------------------------------------------------------------------------------------------ builders


def _self_play(*_: Any) -> Sequence[Action]:
    """Never takes a snapshot."""
    return ()


def _past(
    pool: members.Pool, payoff: payoffs.Payoff, counts: Mapping[str, Learned], arguments: Mapping[str, Any], key: int
) -> Sequence[Action]:
    """Takes a snapshot of each learning player wherever its training steps pass a multiple of `freeze_every`."""
    every = arguments["freeze_every"]
    return [
        Action(FREEZE, name, reason=f"every {every:,} steps")
        for name in (pool.learning if every else ())
        if counts[name].env_steps // every > pool.since(name)[1] // every
    ]


def _biased(
    pool: members.Pool, payoff: payoffs.Payoff, counts: Mapping[str, Learned], arguments: Mapping[str, Any], key: int
) -> Sequence[Action]:
    """Begins with a bias: an untrained policy is near uniform, which some games take for good.

    The main player first meets one fixed player alone, its own beginning, until its NashConv exceeds `nash_conv`. If
    it does not within `_PATIENCE` times `every` training steps, the best response to that player is a good one, and
    the main player's snapshot is the next fixed player. At the end these retire, and snapshots follow every `every`
    steps, as of `past`.
    """
    given, main, learned = league_config.BiasedArguments(**arguments), pool.of(members.MAIN), counts[members.MAIN]
    fixed = [pool.of(name) for name in pool.frozen]
    if any(member.retired for member in fixed):
        return _past(pool, payoff, counts, {"freeze_every": given.every}, key)
    if not fixed:
        return (Action(FREEZE, main.name, reason="the fixed player of the first phase"),)
    if main.rival != fixed[-1].name:
        return (Action(MEET, main.name, fixed[-1].name, "the first phase"),)
    if (found := learned.nash_conv()) > given.nash_conv:
        reason = f"the first phase ends with a NashConv of {found:.4g}"
        return (Action(FREEZE, main.name, reason=reason), *(Action(RETIRE, one.name, reason=reason) for one in fixed))
    if learned.env_steps - pool.since(main.name)[1] >= _PATIENCE * given.every:
        return (Action(FREEZE, main.name, reason=f"a NashConv of {found:.4g}: the next fixed player"),)
    return ()


def _alphastar(
    pool: members.Pool, payoff: payoffs.Payoff, counts: Mapping[str, Learned], arguments: Mapping[str, Any], key: int
) -> Sequence[Action]:
    """AlphaStar's rules (Vinyals et al. 2019, supplement).

    A snapshot of a player is due `min_steps` training steps after its last snapshot or reset if the player beats each
    of its rivals, and after `max_steps` in any case; never before an update of its own, since its replay may still be
    filling. Rivals of a main player and of a league exploiter are all frozen players, of a main exploiter the main
    players. A main exploiter is then reset, a league exploiter with `reset_probability`, a main player never. With
    `keep_training_probability`, and while there is room, another player of its kind begins as the snapshot, and so
    continues to learn from there beside it.

    To beat is a win rate above `win_rate` in at least `min_games` matches since either player was reset. The rate is
    matchmaking's, which forgets: a decay of 0.99 makes 200 matches worth (sum w)^2 / sum w^2 = 152 equal ones, and
    more of them never over 199. So a rate of 0.7 is known to 0.07 (95 %). Matches before the last snapshot count too:
    matchmaking seldom draws an opponent that is beaten, and 200 new matches against it might never come.
    """
    mains, past, actions = pool.learning_of(members.MAIN), pool.past(), list[Action]()
    num_free = pool.max_players - len(pool.learning)
    for name in pool.learning:
        version, env_steps = pool.since(name)
        kind, steps = pool.of(name).kind, counts[name].env_steps - env_steps
        given = league_config.AlphaStarArguments.of(arguments, kind)
        rivals = mains if kind == members.MAIN_EXPLOITER or (kind == members.LEAGUE_EXPLOITER and not past) else past
        least = min((_rate(payoff, name, rival, given) for rival in rivals), default=0.0)
        if counts[name].updates <= version:
            continue
        if steps >= given.max_steps:
            reason = f"{steps:,} steps since the last"
        elif steps >= given.min_steps and not rivals:
            reason = "the first one"
        elif steps >= given.min_steps and least > given.win_rate:
            reason = f"wins {least:.2f} or more against {len(rivals)} player{'' if len(rivals) == 1 else 's'}"
        else:
            continue
        actions.append(Action(FREEZE, name, reason=reason))
        probability = {members.MAIN: 0.0, members.MAIN_EXPLOITER: 1.0}.get(kind, given.reset_probability)
        of_reset, of_main, of_keeping = np.random.default_rng([key, pool.of(name).number]).random(3)
        if of_keeping < given.keep_training_probability and num_free > 0:
            num_free -= 1
            actions.append(Action(ADD, kind, name, reason))
        if of_reset < probability:
            source = _source(pool, mains[int(of_main * len(mains))], given.reset_to)
            actions.append(Action(RESET, name, source, reason))
    return actions


def _rate(payoff: payoffs.Payoff, player: str, rival: str, given: league_config.AlphaStarArguments) -> float:
    """Returns a player's win rate against a rival; 0 after too few matches."""
    recent = payoff.recent.get((player, rival), payoffs.Recent())
    is_known = payoff.since_reset(player, rival).games >= given.min_games
    return recent.score / recent.games if recent.games and is_known else 0.0


def _source(pool: members.Pool, main: str, reset_to: str) -> str:
    """Returns the player whose parameters an exploiter takes, or INITIAL."""
    if reset_to == members.MAIN:
        return main
    past = pool.past(parent=main) if reset_to == "snapshot" else ()
    return past[-1] if past else members.INITIAL


BUILDERS: Mapping[str, Builder] = {"self_play": _self_play, "past": _past, "alphastar": _alphastar, "biased": _biased}
