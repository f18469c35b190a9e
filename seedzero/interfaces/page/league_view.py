"""Describes a run's league for the page: players, results, ratings, lineage, decisions, and exploitability."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seedzero.api import figures, leagues
from seedzero.core import errors
from seedzero.interfaces.page import catalogue, summaries
from seedzero.monitoring import league_log, rows
from seedzero.storage.checkpoints import run_dirs

MAX_PLAYERS = 60
"""Most rows and columns of the table of win rates."""
MAX_DECISIONS = 500
JUDGED = "judged"
_MAX_BYTES = 64 << 20


def read(path: pathlib.Path, name: str) -> dict[str, Any]:
    """Returns the league of a run directory; without a readable checkpoint "error" has the reason.

    Raises UsageError for a run without a league.
    """
    lines = read_lines(path)
    found: dict[str, Any] = {"decisions": decisions(lines), "judged": judged(lines), "matches": matches(lines)}
    found |= {"run_dir": catalogue.word(path), "nash": nash(summaries.read_object(path / league_log.NASH_FILE))}
    found |= {"has_seats": bool(summaries.read_object(path / run_dirs.SPEC_FILE).get("seats"))}
    try:
        league = leagues.read(path, name)
    except errors.CheckpointError as error:
        return {**found, "error": str(error)}
    return {**found, **view(league)}


def view(league: leagues.SavedLeague) -> dict[str, Any]:
    """Returns players, results and ratings. The time grows with the number of players and of pairs that met."""
    ratings, games = league.rated({})
    names = chosen([member.name for member in league.pool.members], league.pool.learning)
    found = league.win_rates(names)
    win_rates = {**found._asdict(), "num_players": len(league.pool.members)}
    if league.settings.score == "return":
        win_rates["shares"] = figures.shares_of(found.returns)
    return {
        "update": league.update,
        "env_steps": league.env_steps,
        "lineage": league.lineage(),
        "ratings": {player: [one.points, one.stderr] for player, one in ratings.items()},
        "games": games,
        "win_rates": win_rates,
    }


def read_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the complete lines of a run's league.jsonl."""
    return list(rows.read(path / league_log.LEAGUE_FILE, _MAX_BYTES))


def decisions(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the newest decisions from a history, the oldest of them first."""
    other = (league_log.MATCHES, JUDGED)
    return [line for line in lines if line.get("event") not in other][-MAX_DECISIONS:]


def judged(lines: Iterable[Mapping[str, Any]]) -> dict[str, list[list[float]]]:
    """Returns the NashConv of each mixture over training steps, as x and y."""
    found: dict[str, list[list[float]]] = {}
    for line in lines:
        steps, value = line.get("env_steps"), line.get("nash_conv")
        if line.get("event") != JUDGED or not isinstance(steps, (int, float)):
            continue
        mixtures = line.get("mixtures")
        values = mixtures if isinstance(mixtures, Mapping) else {"NashConv": value}
        for name, number in values.items():
            if isinstance(number, (int, float)):
                series = found.setdefault(str(name), [[], []])
                series[0].append(steps)
                series[1].append(number)
    return found


def nash(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the newest NashConv of each mixture, which `seedzero league nash` wrote; None if there is none."""
    mixtures = content.get("mixtures")
    values = mixtures.items() if isinstance(mixtures, Mapping) else ()
    numbers = {name: value for name, value in values if isinstance(value, (int, float)) and abs(value) < 1e300}
    update = content.get("update")
    return {"update": update, "mixtures": numbers} if numbers and isinstance(update, int) else None


def matches(lines: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Returns the matches in each interval of updates: x in training steps, and their number by type."""
    rows = [line for line in lines if line.get("event") == league_log.MATCHES and isinstance(line.get("types"), dict)]
    types = sorted({name for row in rows for name, count in row["types"].items() if count})
    return {"x": [row.get("env_steps", 0) for row in rows]} | {
        name: [row["types"].get(name, 0) for row in rows] for name in types
    }


def chosen(names: Sequence[str], learning: Sequence[str]) -> list[str]:
    """Selects at most MAX_PLAYERS players: the learning ones, then frozen ones at equal intervals."""
    learners = [name for name in names if name in learning][:MAX_PLAYERS]
    frozen = [name for name in names if name not in learning]
    room = MAX_PLAYERS - len(learners)
    if len(frozen) > room:
        frozen = [frozen[-1 - (len(frozen) - 1) * number // max(1, room - 1)] for number in reversed(range(room))]
    return [*learners, *frozen]
