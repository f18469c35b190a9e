"""Decides on a league's snapshots, resets and retirements, at fixed numbers of updates.

A builder is a pure function of players, results and counts, so a deterministic run repeats its decisions. The loop
carries out its actions in order, for example an exploiter's snapshot before its reset.
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
"""Most seconds that a user's builder may take, because the devices wait for it."""

_PATIENCE = 5
_BUILD = 6
"""Second number of the random keys of builders."""


class Action(NamedTuple):
    """A decision on one player.

    ADD begins another learning player. FREEZE takes a snapshot of a learning player, which continues to learn; RESET
    gives it other parameters. RETIRE removes a frozen player from matchmaking; a learning player ends with a snapshot,
    which becomes a frozen player. MEET gives a learning player a single frozen player as opponent, until that retires.
    """

    kind: str  # one of KINDS
    player: str  # for ADD the new player's kind, one of members.LEARNING
    # For ADD and RESET: members.INITIAL, or the player whose parameters are taken; for ADD, "" means INITIAL.
    # For MEET: the opponent; "" returns the choice to matchmaking.
    source: str = ""
    reason: str = ""  # shown to users


def _unjudged() -> float:
    raise ValueError("no exact judge is here")


class Learned(NamedTuple):
    """A learning player's updates, its training steps at home, and an exact evaluation of its newest parameters."""

    updates: int
    env_steps: int
    # Returns its NashConv. Only for games of two seats, and slow in large ones. Raises ValueError if unavailable.
    nash_conv: Callable[[], float] = _unjudged


Builder = Callable[[members.Pool, payoffs.Payoff, Mapping[str, Learned], Mapping[str, Any], int], Sequence[Action]]
"""Maps (players, results, counts by learning player, arguments, random key) to actions."""


def key_of(seed: int, number: int) -> int:
    """Returns the random key of a run's Nth call of its builder, counted from 0."""
    return int(np.random.SeedSequence([seed, _BUILD, number]).generate_state(1, np.uint64)[0])


def load(name: str) -> Builder:
    """Returns a builder by its name in BUILDERS, or a user's own as MODULE:FUNCTION. Raises ConfigError."""
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
    """Calls a builder and returns its actions, after checking that they are possible.

    Args:
      builder: from `load`; it gets copies of everything that it could change.
      counts: counts of every learning player.
      arguments: the settings' arguments (`LeagueConfig.arguments`).
      key: from `key_of`.
      name: the builder's name, for messages.
      seconds: the most seconds that a user's function may take.

    Raises:
      BuilderError: a user's function raises an error, takes too long, or does not return possible actions; the message
        has its file and line.
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
    """Returns the first impossible action and what to do instead, or ""."""
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
    """Returns the players after an action, with placeholder counts and digits.

    Raises ValueError if it is impossible.
    """
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
    """Takes a snapshot of each learning player whenever its training steps pass a multiple of `freeze_every`."""
    every = arguments["freeze_every"]
    return [
        Action(FREEZE, name, reason=f"every {every:,} steps")
        for name in (pool.learning if every else ())
        if counts[name].env_steps // every > pool.since(name)[1] // every
    ]


def _biased(
    pool: members.Pool, payoff: payoffs.Payoff, counts: Mapping[str, Learned], arguments: Mapping[str, Any], key: int
) -> Sequence[Action]:
    """Begins with a biased policy, because an untrained one is nearly uniform, and in some games stays so forever.

    At first the main player meets only one fixed player, its own initial policy, until its NashConv exceeds
    `nash_conv`. If that takes more than `_PATIENCE` times `every` training steps, the best response to that player is
    a good policy, so a snapshot of the main player becomes the next fixed player. At the end of this phase the fixed
    players retire, and snapshots follow every `every` steps, as in `past`.
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
    """Follows AlphaStar's rules (Vinyals et al. 2019, supplement).

    A player's snapshot is due `min_steps` training steps after its last snapshot or reset if the player beats each of
    its rivals, and after `max_steps` in any case. It is never due before the player's first update since then, because
    its replay may still be filling. The rivals of a main player and of a league exploiter are all frozen players,
    those of a main exploiter are the main players. After its snapshot a main exploiter is reset, a league exploiter
    with `reset_probability`, and a main player never. With `keep_training_probability`, and if there is room, another
    player of its kind begins with the snapshot's parameters, and continues to learn from there.

    Beating a rival means a win rate above `win_rate` in at least `min_games` matches since either player was reset.
    This is matchmaking's rate, which forgets: with a decay of 0.99, 200 matches are worth (sum w)^2 / sum w^2 = 152
    equal ones, and more of them never over 199. So a rate of 0.7 is known to 0.07 (95 %). Matches before the last
    snapshot count, too, because matchmaking seldom draws an opponent that is beaten, and 200 new matches against it
    might never be played.
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
    """Returns a player's win rate against a rival, or 0 if they have had too few matches."""
    recent = payoff.recent.get((player, rival), payoffs.Recent())
    is_known = payoff.since_reset(player, rival).games >= given.min_games
    return recent.score / recent.games if recent.games and is_known else 0.0


def _source(pool: members.Pool, main: str, reset_to: str) -> str:
    """Returns the player whose parameters a reset exploiter takes, or INITIAL."""
    if reset_to == members.MAIN:
        return main
    past = pool.past(parent=main) if reset_to == "snapshot" else ()
    return past[-1] if past else members.INITIAL


BUILDERS: Mapping[str, Builder] = {"self_play": _self_play, "past": _past, "alphastar": _alphastar, "biased": _biased}
