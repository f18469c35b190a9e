"""Opponents of evaluations in games of two players, and the tasks in which environments play them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

CHANCE = "chance"
"""Describes a kind of game in messages: such a game may be played by seats, or in turn."""
RANDOM = "random"
FORMS = "random|mcts-N|gtp:COMMAND"
SIDES = ("first", "second")
"""A side's number is its index here; the side that makes the first move after the opening is 0."""

ENGINE = "gtp:"
"""Prefix of another program that speaks the Go Text Protocol; its command follows."""
SPIEL = "spiel:"
"""Prefix of a bot of OpenSpiel's, with or without parameters."""
MEMBER_FORMS = "random|mcts-N|spiel:BOT|MODULE:FUNCTION"
MAX_MEMBERS = 64

_BOT = re.compile(r"mcts-([1-9][0-9]{0,6})")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:]+\]|[^\s:/\[\]]+):\d+(?:/\S+)?")
_COMMA = re.compile(r",(?![^()]*\))")
_HAS_PARTS = re.compile(r"spiel:\w+(\([^()]*\))?|[\w.]+:\w+")


def parse(text: str) -> tuple[str, ...]:
    """Returns the names in a text, separated by commas. Raises ValueError for an unknown name, or one given twice."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(map(is_known, names)) or len(set(names)) < len(names):
        raise ValueError(
            f"expected {FORMS}, several by commas, each once; N is a bot's simulations, up to 9999999, and COMMAND a "
            "program that speaks the Go Text Protocol"
        )
    return names


def is_known(name: str) -> bool:
    """Returns whether a name has one of FORMS."""
    return name == RANDOM or num_simulations(name) > 0 or bool(command(name))


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
    names = tuple(name.strip() for name in _COMMA.split(text)) if text else ()
    unknown = [name for name in names if not is_member(name) or (":" in name and not _HAS_PARTS.fullmatch(name))]
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
    return ":" in name and not name.startswith(SPIEL)


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


def of_task(task: str) -> tuple[str, int]:
    """Returns a task's opponent and the agent's side; "" and 0 if it is not one of `tasks`."""
    name, _, side = task.rpartition("/")
    return (name, SIDES.index(side)) if side in SIDES and is_known(name) else ("", 0)
