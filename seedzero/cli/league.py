"""`seedzero league`: the players of a run, their matches, results and ratings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from seedzero.cli import output, parse

if TYPE_CHECKING:
    from seedzero.api import leagues


def run(arguments: parse.Arguments) -> int:
    """Prints a view of a run's league; returns the exit code."""
    (view,) = arguments.words
    from seedzero.api import leagues
    from seedzero.bucket import run_copy

    place = arguments.flags["run_dir"]
    with run_copy.local(place, lambda copy: copy.fetch_params("last")) as path:
        league = leagues.read(path, place)
    text, found = _VIEWS[view](league)
    if arguments.switch("json"):
        output.print_json(found)
    else:
        head = f"{place}: the league after {league.update:,} updates and {league.env_steps:,} steps"
        output.show(f"{head}\n\n{text}")
    return 0


def _show(league: leagues.SavedLeague) -> tuple[str, dict[str, Any]]:
    types = league.payoff.num_matches()
    opponents, columns = league.opponents(), ("name", "kind", "learns", "version", "env_steps", "parent")
    players = [{name: member.to_json()[name] for name in columns} for member in league.pool.members]
    found = {
        "update": league.update,
        "env_steps": league.env_steps,
        "players": players,
        "active": list(league.active),
        "opponents": opponents,
        "matches": sum(types.values()),
        "types": types,
        "void": league.num_void,
    }
    counted = ", ".join(f"{count:,} {name}" for name, count in types.items())
    text = (
        f"{output.table(players, num_left=2)}\n\n"
        f"opponents: entries in the active set, share of the next draws, win rate for matchmaking\n"
        f"{output.table(opponents)}\n\n"
        f"{sum(types.values()):,} matches: {counted}; beside them {league.num_void:,} void"
    )
    return text, found


def _payoff(league: leagues.SavedLeague) -> tuple[str, dict[str, Any]]:
    from seedzero.league import payoff as payoffs

    found = []
    for row in league.payoff.table():
        score = row["wins"] + 0.5 * row["draws"]
        low, high = payoffs.wilson(score, row["games"])
        rate = score / row["games"] if row["games"] else None
        found.append({**row, "win_rate": rate, "low": low, "high": high})
    shown = [{name: row[name] for name in ("player", "opponent", "side", "type", *list(row)[4:])} for row in found]
    text = output.table(shown, num_left=4) if shown else "no match has ended yet"
    return text, {"update": league.update, "payoff": found}


def _elo(league: leagues.SavedLeague) -> tuple[str, dict[str, Any]]:
    ratings, games = league.ratings()
    order = sorted(ratings, key=lambda name: (-ratings[name], name))
    rows = [{"player": name, "rating": f"{ratings[name]:+.0f}", "games": games[name]} for name in order]
    text = (
        f"{output.table(rows)}\n\n"
        "main's rating is the mean of its time in the run: all its matches count alike. Players without matches have "
        "none"
    )
    return text, {"update": league.update, "ratings": ratings, "games": games}


_VIEWS: Mapping[str, Callable[[leagues.SavedLeague], tuple[str, dict[str, Any]]]] = {
    "show": _show,
    "payoff": _payoff,
    "elo": _elo,
}

COMMAND = parse.Command(
    summary="Shows a run's league: players and matches, results, ratings.",
    usage="show|payoff|elo --run_dir=DIR [--json]",
    words=(tuple(_VIEWS),),
    flags={**parse.RUN_DIR, "json": "print one line of JSON in place of the tables"},
    required=("run_dir",),
    details="""
All is read from the newest whole checkpoint; the run may be training. docs/league.md explains the numbers.

show: the players, the learning one's opponents with their shares of the next draws, and matches by type. JSON: update,
  env_steps, players (name, kind, learns, version, env_steps, parent), active, opponents (opponent, active, share,
  recent_win_rate), matches, types (type: count), void.
payoff: results by type, player, opponent and side; each match stands in two rows, one for each of its sides. win_rate
  counts a draw as half a win; low, high: its 95 % interval (Wilson). JSON: update, payoff (type, player, opponent,
  side, games, wins, draws, losses, mean_return, win_rate, low, high).
elo: ratings by maximum likelihood from all matches against frozen players; the oldest rated one has 0. JSON: update,
  ratings (player: points), games (player: count).""",
    run=run,
)
