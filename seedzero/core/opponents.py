"""Opponents of evaluations in games of two players, and the tasks in which environments play them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

CHANCE = "chance"
"""Describes a kind of game in messages: such a game may be played by seats, or in turn."""
RANDOM = "random"
FORMS = "random|mcts-N|gtp:COMMAND|roshambo:BOT"
SIDES = ("first", "second")
"""A side's number is its index here; the side that makes the first move after the opening is 0."""

ENGINE = "gtp:"
"""Prefix of another program that speaks the Go Text Protocol; its command follows."""
SPIEL = "spiel:"
"""Prefix of a bot of OpenSpiel's, with or without parameters."""
ROSHAMBO = "roshambo:"
"""Prefix of one of OpenSpiel's bots for repeated rock-paper-scissors; with ALL it stands for all of them."""
ALL = "all"
REPEATED = "repeated_game"
"""OpenSpiel's name of games of many rounds."""
_NAMES = """
actr_lag2_decay adddriftbot2 addshiftbot3 antiflatbot antirotnbot biopic boom copybot debruijn81 driftbot flatbot3
foxtrotbot freqbot2 granite greenberg halbot inocencio iocainebot marble markov5 markovbails mixed_strategy mod1bot
multibot peterbot phasenbott pibot piedra predbot r226bot randbot robertot rockbot rotatebot russrocker4 shofar
sunCrazybot sunNervebot sweetrock switchalot switchbot textbot zq_move
"""
ROSHAMBO_BOTS = tuple(_NAMES.split())
MEMBER_FORMS = "random|mcts-N|spiel:BOT|roshambo:BOT|MODULE:FUNCTION"
MAX_MEMBERS = 64

_BOT = re.compile(r"mcts-([1-9][0-9]{0,6})")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:]+\]|[^\s:/\[\]]+):\d+(?:/\S+)?")
_COMMA = re.compile(r",(?![^()]*\))")
_HAS_PARTS = re.compile(r"spiel:\w+(\([^()]*\))?|[\w.]+:\w+")


def parse(text: str) -> tuple[str, ...]:
    """Returns the names in a text, separated by commas. Raises ValueError for an unknown name, or one given twice."""
    names = _with_all(name.strip() for name in text.split(","))
    if not all(map(is_known, names)) or len(set(names)) < len(names):
        raise ValueError(
            f"expected {FORMS}, several by commas, each once; N is a bot's simulations, up to 9999999, COMMAND a "
            f"program that speaks the Go Text Protocol, and BOT as {ROSHAMBO_BOTS[0]}, or {ALL}"
        )
    return names


def is_known(name: str) -> bool:
    """Returns whether a name has one of FORMS."""
    return name == RANDOM or num_simulations(name) > 0 or bool(command(name) or roshambo_bot(name))


def is_address(name: str) -> bool:
    """Returns whether a name is HOST:PORT, or HOST:PORT/PLAYER, of a policy server."""
    return _ADDRESS.fullmatch(name) is not None


def command(name: str) -> str:
    """Returns the command of a program that plays, or "" if the name is no such opponent."""
    return name.removeprefix(ENGINE).strip() if name.startswith(ENGINE) else ""


def parse_members(text: str) -> tuple[str, ...]:
    """Returns the names of a league's scripted members in a text, separated by commas outside of brackets.

    Raises ValueError for a name that has none of MEMBER_FORMS, for a repeated name, and for too many.
    """
    names = _with_all(name.strip() for name in _COMMA.split(text)) if text else ()
    unknown = [name for name in names if not is_member(name) or (":" in name and not _HAS_PARTS.fullmatch(name))]
    unknown += [name for name in names if name.startswith(ROSHAMBO) and not roshambo_bot(name)]
    if unknown or len(set(names)) < len(names) or len(names) > MAX_MEMBERS:
        raise ValueError(
            f"expected {MEMBER_FORMS}, several by commas, each once, at most {MAX_MEMBERS}; N is a bot's simulations, "
            "up to 9999999"
        )
    return names


def is_member(name: str) -> bool:
    """Returns whether the name of a league's player is that of a scripted one."""
    return name == RANDOM or num_simulations(name) > 0 or ":" in name


def is_of_user(name: str) -> bool:
    """Returns whether a scripted member is a function in a user's module."""
    return ":" in name and not name.startswith((SPIEL, ROSHAMBO))


def roshambo_bot(name: str) -> str:
    """Returns OpenSpiel's name of a bot for repeated rock-paper-scissors; "": it is not the name of such a bot."""
    bot = name.removeprefix(ROSHAMBO)
    return bot if name.startswith(ROSHAMBO) and bot in ROSHAMBO_BOTS else ""


def _with_all(names: Iterable[str]) -> tuple[str, ...]:
    """Returns names, where ROSHAMBO + ALL becomes the names of all bots for repeated rock-paper-scissors."""
    every = [ROSHAMBO + bot for bot in ROSHAMBO_BOTS]
    return tuple(one for name in names for one in (every if name == ROSHAMBO + ALL else [name]))


def num_simulations(name: str) -> int:
    """Returns the number of simulations of a bot that searches, or 0 if the name is no such bot."""
    match = _BOT.fullmatch(name)
    return int(match[1]) if match else 0


def tasks(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the agent's tasks "OPPONENT/SIDE", ordered by opponent, then side; none against random moves alone."""
    return () if tuple(names) == (RANDOM,) else tuple(f"{name}/{side}" for name in names for side in SIDES)


def mean_returns(by_task: Mapping[str, float]) -> dict[str, float]:
    """Returns the mean over both sides for each opponent, given the mean return in each of `tasks`.

    {} for other tasks.
    """
    found: dict[str, list[float]] = {}
    for task, value in by_task.items():
        if name := of_task(task)[0]:
            found.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def fit(names: Sequence[str], seats: Sequence[str]) -> bool:
    """Returns whether names of tasks are those of seats, or, as in evaluations against named opponents, of `tasks`."""
    return tuple(names) == tuple(seats) or (bool(names) and all(of_task(name)[0] for name in names))


def of_task(task: str) -> tuple[str, int]:
    """Returns a task's opponent and the agent's side; "" and 0 if it is not one of `tasks`."""
    name, _, side = task.rpartition("/")
    return (name, SIDES.index(side)) if side in SIDES and is_known(name) else ("", 0)
