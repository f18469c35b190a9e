"""`seedzero league`: shows the players of a run, their matches, results and ratings, and judges them exactly."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seedzero.api import runs
from seedzero.cli import evaluate, output, parse, status
from seedzero.core import errors, json_object, opponents

# `seedzero league nash`: judges a run's players exactly.
if TYPE_CHECKING:
    from seedzero.acting.actors import agent_choice
    from seedzero.api import exploitability
    from seedzero.storage.checkpoints import saved_files

_SMALLEST_SHOWN = 0.01
_ALONE = "The run has no league, so it has no mixtures; only main is measured."
_UNEVEN = (
    "There is no mixture `equilibrium`: a linear programme finds one only where returns sum to zero. Each seat's gain "
    "counts over its own return."
)


def judge(arguments: parse.Arguments) -> int:
    """Judges a run's players and prints the NashConv of their mixtures; returns the exit code."""
    found = judged_players(arguments)
    _keep(arguments.flags["run_dir"], found.to_json())
    if arguments.switch("json"):
        output.print_json(found.to_json())
        return 0
    head = f"{arguments.flags['run_dir']}: after {found.update:,} updates and {found.env_steps:,} steps"
    if len(found.mixtures) == 1:
        output.show(f"{head}\n\nNashConv of main, the last iterate: {found.best.nash_conv:.4f}\n\n{_ALONE}")
        return 0

    def row(name: str, mixture: exploitability.Mixture) -> dict[str, object]:
        num_players = ((weights > 0).sum() for weights in mixture.weights)
        return {"mixture": name, "nash_conv": f"{mixture.nash_conv:.4f}", **_by_seat(num_players)}

    mixtures = [row(*item) for item in found.mixtures.items()]
    shares = [(name, [seat.get(name, 0.0) for seat in found.weights]) for name in found.names]
    weights = [
        {"player": found.labels.get(name, name), **_by_seat(seats)}
        for name, seats in shares
        if max(seats) > _SMALLEST_SHOWN
    ]
    of_equilibrium = (
        f"players of the equilibrium with a weight above {_SMALLEST_SHOWN}, by seat\n{output.table(weights)}"
    )
    output.show(
        f"{head}\n\nmixtures of {len(found.names)} players, and the number of players in them by seat\n"
        f"{output.table(mixtures)}\n\n{of_equilibrium if found.sums_to_zero else _UNEVEN}\n\n"
        f"cyclic triples: {found.cycles:,} (each of three players beats the next one)"
    )
    return 0


def _keep(place: str, found: Mapping[str, Any]) -> None:
    """Writes the newest judgement into the run directory, for the page, unless that is a bucket."""
    from seedzero.monitoring import league_log
    from seedzero.storage.bucket import bucket
    from seedzero.storage.checkpoints import run_dirs

    if bucket.parse(place) is not None:
        return
    kept = {name: found[name] for name in ("update", "env_steps", "mixtures")}
    try:
        run_dirs.write_json_atomic(pathlib.Path(place) / league_log.NASH_FILE, kept)
    except OSError as error:
        output.say(
            f"the page of {place} will not show these numbers: {league_log.NASH_FILE} cannot be written ({error})"
        )


def judged_players(arguments: parse.Arguments) -> exploitability.Exploitability:
    """Returns the exact judgement of a run's players."""
    choice, step = _step(arguments)
    from seedzero.api import exploitability

    place = arguments.flags["run_dir"]
    with runs.opened(choice, exploitability.fetching(place, step)) as here:
        return exploitability.judge(here.path, place, step, trusted=here.trusted)


def _step(arguments: parse.Arguments) -> tuple[agent_choice.AgentChoice, saved_files.Step]:
    """Returns the choice of a run, and the checkpoint to judge."""
    choice = evaluate.read_choice(arguments)
    if choice.step == "best":
        raise errors.UsageError(
            "--step=best: that checkpoint has no league; give the number of a saved update, or last"
        )
    return choice, "last" if choice.step is None else choice.step


def _by_seat(values: Iterable[object]) -> dict[str, object]:
    return dict(zip(opponents.SIDES, values, strict=True))


if TYPE_CHECKING:
    from seedzero.api import leagues
    from seedzero.storage.bucket import run_copy


def run(arguments: parse.Arguments) -> int:
    """Prints a view of a run's league; returns the exit code."""
    view, *names = arguments.words
    is_file = view in _ENDINGS
    if is_file is not bool(arguments.flags.get("out")):
        given = f"--out=FILE{_ENDINGS[view][0]} is missing" if is_file else "--out is for export and heatmap; omit it"
        raise errors.UsageError(f"seedzero league {view}: {given}")
    has_policies, plays = arguments.switch("policies"), view == "match"
    owners: Mapping[str, tuple[bool, str]] = {  # flag -> whether it may be given here, and what it is for
        "policies": (view == "export", "`seedzero league export`"),
        "step": (view == "nash" or has_policies, "`seedzero league nash` and `export --policies`"),
        "anchors": (view == "elo", "`seedzero league elo`"),
        **{flag.partition("=")[0]: (plays, _MATCH) for flag in ("games", "seed", *status.ACCESS)},
    }
    for flag, (fits, owner) in owners.items():
        if flag in arguments.flags and not fits:
            raise errors.UsageError(f"--{flag} is for {owner}; omit it")
    if plays:
        return _match(arguments, names)
    if names:
        raise errors.UsageError(f"seedzero league {view} takes no player, but here is {names[0]}; omit it")
    anchors = _anchors(arguments.flags.get("anchors", ""))
    if is_file:
        return _write(arguments, view, pathlib.Path(arguments.flags["out"]))
    if view == "nash":
        return judge(arguments)
    from seedzero.api import leagues
    from seedzero.storage.bucket import run_copy

    place = arguments.flags["run_dir"]
    with run_copy.local(place, lambda copy: copy.fetch_params("last")) as path:
        league = leagues.read(path, place)
    text, found = _elo(league, anchors) if view == "elo" else _VIEWS[view](league)
    if arguments.switch("json"):
        output.print_json(found)
    else:
        head = f"{place}: the league after {league.update:,} updates and {league.env_steps:,} steps"
        output.show(f"{head}\n\n{text}")
    return 0


def _write(arguments: parse.Arguments, view: str, out: pathlib.Path) -> int:
    """Writes a view to a file; returns the exit code."""
    if out.suffix.lower() not in _ENDINGS[view]:
        raise errors.UsageError(f"--out={out}: the name must end in {' or '.join(_ENDINGS[view])}")
    if arguments.switch("policies"):
        judged = judged_players(arguments)
        return _written(arguments, out, _encoded(judged.to_export()), judged.update, len(judged.names))
    from seedzero.api import figures, leagues
    from seedzero.league import members
    from seedzero.monitoring import league_log
    from seedzero.storage.bucket import run_copy

    def fetch(copy: run_copy.Copy) -> None:
        copy.fetch_params("last")
        copy.fetch(league_log.LEAGUE_FILE)

    place = arguments.flags["run_dir"]
    with run_copy.local(place, fetch) as path:
        league, history = leagues.read(path, place), league_log.read(path)
    if view == "export":
        content = _encoded({**league.to_json(), "history": history})
    else:
        by_return = league.settings.score == "return"
        title = "mean returns" if by_return else "win rates in percent"
        title += f", rows against columns, after {league.env_steps:,} steps"
        rates, labels = league.win_rates(), members.labels(league.pool)
        names = [labels[name] for name in rates.names]
        content = figures.draw_win_rates(
            rates._replace(names=names), title, ending=out.suffix.lower(), of_returns=by_return
        )
    return _written(arguments, out, content, league.update, len(league.pool.members))


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json_object.encode(value, indent=1).encode() + b"\n"


def _written(arguments: parse.Arguments, out: pathlib.Path, content: bytes, update: int, num_players: int) -> int:
    """Writes the file and reports it; returns the exit code."""
    output.write_file(out, content)
    if arguments.switch("json"):
        output.print_json({"out": str(out), "update": update, "players": num_players})
    else:
        output.say(f"wrote {out}: {num_players} players after {update:,} updates")
    return 0


def _match(arguments: parse.Arguments, names: Sequence[str]) -> int:
    """Plays games between two players and prints the score; returns the exit code."""
    if len(names) != 2:
        raise errors.UsageError(
            "seedzero league match takes two players and the run, as in `seedzero league match main NAME DIR`; "
            "`seedzero league show DIR` lists the players"
        )
    num_games, choice = arguments.integer("games", minimum=2) or _GAMES, evaluate.read_choice(arguments)
    from seedzero.api import leagues

    def fetch(copy: run_copy.Copy) -> None:
        copy.fetch_params("last")
        copy.fetch_player(*(name for name in names if not (opponents.is_known(name) or opponents.is_address(name))))

    output.say(f"playing {num_games} games of {names[0]} against {names[1]}, half of them on each side")
    with runs.opened(choice, fetch) as here, output.others_aside():
        found = leagues.play(
            here, arguments.flags["run_dir"], (names[0], names[1]), num_games, status.access(arguments)
        )
    if arguments.switch("json"):
        output.print_json(found)
    else:
        rate, gain, first = (
            f"{found['score']:.3f} ({found['low']:.3f} to {found['high']:.3f} at 95 %)",
            "",
            "first move",
        )
        if "policy" in found:  # stakes differ there, so a win rate means little
            mean, half = found["mean_return"], 1.96 * found["stderr_return"]
            gain = f"has a mean return of {mean:.4g} ({mean - half:.4g} to {mean + half:.4g} at 95 %), and "
            first = "first seat or side"
        sides = [{first: name, **found[side]} for name, side in zip(names, ("first", "second"), strict=True)]
        output.show(
            f"{names[0]} {gain}scores {rate} against {names[1]} in {found['games']} games: {found['wins']} wins, "
            f"{found['draws']} draws, {found['losses']} losses\n\nits results by the player with the {first}:\n"
            f"{output.table(sides)}"
        )
    return 0


def _show(league: leagues.SavedLeague) -> tuple[str, dict[str, Any]]:
    types = league.payoff.num_matches()
    columns = ("name", "kind", "learns", "version", "env_steps", "parent")
    learning = league.pool.learning
    opponents = [{"player": name, **row} for name in learning for row in league.opponents(name) if row["share"]]
    players = [{name: member.to_json()[name] for name in columns} for member in league.pool.members]
    if league.devices:
        players = [{**row, "devices": list(league.devices.get(row["name"], ()))} for row in players]
    shown = [{**row, "devices": ", ".join(map(str, row["devices"]))} if league.devices else row for row in players]
    found = {
        "update": league.update,
        "env_steps": league.env_steps,
        "players": players,
        "active": {name: list(drawn) for name, drawn in league.active.items()},
        "opponents": opponents,
        "matches": sum(types.values()),
        "types": types,
        "void": league.num_void,
    }
    counted = ", ".join(f"{count:,} {name}" for name, count in types.items() if count) or "none yet"
    text = (
        f"{output.table(shown, num_left=2)}\n\n"
        "opponents: entries in the active set, share of the next draws, "
        f"{'mean score by returns' if league.settings.score == 'return' else 'win rate'} for matchmaking\n"
        f"{output.table(opponents)}\n\n"
        f"{sum(types.values()):,} matches: {counted}; {league.num_void:,} more did not count"
    )
    return text, found


def _payoff(league: leagues.SavedLeague) -> tuple[str, dict[str, Any]]:
    from seedzero.league import members, payoffs

    found, ages = [], {member.name: age for age, member in enumerate(league.pool.members)}
    for row in league.payoff.table():
        score = row["wins"] + 0.5 * row["draws"]
        low, high = payoffs.wilson(score, row["games"])
        rate = score / row["games"] if row["games"] else None
        found.append({**row, "win_rate": rate, "low": low, "high": high})
    found.sort(key=lambda row: tuple(ages.get(row[name], len(ages)) for name in ("player", "opponent")))
    labels = members.labels(league.pool)
    shown = [
        {
            **{name: labels.get(row[name], row[name]) for name in ("player", "opponent")},
            **{name: row[name] for name in ("side", "type", *list(row)[4:])},
        }
        for row in found
    ]
    text = output.table(shown, num_left=4) if shown else "no match has ended yet"
    return text, {"update": league.update, "payoff": found}


def _anchors(text: str) -> dict[str, float]:
    """Returns the players' points from NAME=POINTS, separated by commas. Raises UsageError."""
    found = dict[str, float]()
    for part in filter(None, text.split(",")):
        name, equals, points = part.strip().rpartition("=")
        try:
            found[name] = float(points)
        except ValueError:
            equals = ""
        if not (name and equals and math.isfinite(found[name])):
            raise errors.UsageError(f"--anchors={text}: expected NAME=POINTS, several by commas, as random=0")
    return found


def _elo(league: leagues.SavedLeague, anchors: Mapping[str, float] = {}) -> tuple[str, dict[str, Any]]:
    from seedzero.league import members

    rated, games = league.rated(anchors)
    ratings, stderr = ({name: rating[at] for name, rating in rated.items()} for at in range(2))
    order = sorted(ratings, key=lambda name: (-ratings[name], name))
    labels = members.labels(league.pool)
    rows = [
        {
            "player": labels.get(name, name),
            "rating": f"{ratings[name]:+.0f}",
            "stderr": f"{stderr[name]:.0f}" if stderr[name] else "held",
            "games": games[name],
        }
        for name in order
    ]
    text = (
        f"{output.table(rows)}\n\n"
        "main's rating is the mean of its time in the run: all its matches count alike. Players without matches have "
        "none"
    )
    if not league.payoff.sums_to_zero:
        text += ". A win is a larger return than the other side's: ratings say nothing about the size of returns"
    return text, {"update": league.update, "ratings": ratings, "stderr": stderr, "games": games}


def _lineage(league: leagues.SavedLeague) -> tuple[str, dict[str, Any]]:
    from seedzero.league import members

    found = {"update": league.update, "env_steps": league.env_steps, "players": members.lineage_tree(league.pool)}
    return members.lineage_text(league.pool), found


_GAMES = 100
_MATCH = "`seedzero league match A B`"
_ENDINGS: Mapping[str, tuple[str, ...]] = {"export": (".json",), "heatmap": (".svg", ".png", ".pdf")}
_VIEWS: Mapping[str, Callable[[leagues.SavedLeague], tuple[str, dict[str, Any]]]] = {
    "show": _show,
    "payoff": _payoff,
    "elo": _elo,
    "lineage": _lineage,
}

COMMAND = parse.Command(
    summary="Shows a run's league (players, results, ratings), plays matches, and measures exploitability.",
    usage="show|payoff|elo|lineage|export|heatmap|nash|match A B DIR [--out=FILE] [--json]",
    words=((*_VIEWS, *_ENDINGS, "nash", "match"),),
    more_words=2,
    flags={
        **parse.RUN_DIR,
        **{flag: f"match against HOST:PORT: {text}" for flag, text in status.ACCESS.items()},
        "games=N": f"match: number of games (default {_GAMES})",
        "seed=N": "match: seed of the random openings, or of chance and drawn moves (default 0)",
        "out=FILE": "export, heatmap: file to write, FILE.json; FILE.svg, FILE.png or FILE.pdf (needs matplotlib)",
        "policies": "export: the players' policies and their mixture, for programs with OpenSpiel",
        "anchors=NAME=POINTS": "elo: players whose ratings are held, separated by commas, as random=0,mcts-100=250",
        "step=N|last": "nash, export --policies: the checkpoint (default last)",
        "json": "print one line of JSON instead of the tables",
        **parse.TRUST,
    },
    required=("run_dir",),
    details="""
Everything is read from the newest complete checkpoint; the run may be training. docs/league.md explains the numbers.

show: players, opponents of the learning ones with their shares of the next draws, matches by type. JSON: update,
  env_steps, players (name, kind, learns, version, env_steps, parent; devices, where players learn on different ones),
  active (player: names), opponents (player, opponent, active, share, recent_win_rate), matches, types (type: count),
  void.
payoff: results by type, player, opponent and side; each match has two rows, one for each of its sides, with its
  own return; a win is the larger one. win_rate counts a draw as half a win; low, high: its 95 % interval (Wilson).
  JSON: update, payoff (type, player, opponent,
  side, games, wins, draws, losses, mean_return, win_rate, low, high).
elo: ratings by maximum likelihood from all matches between two players; the oldest rated one has 0. --anchors holds
  the ratings of other players; then evaluations count, too. The 95 % interval is 1.96 standard errors. JSON: update,
  ratings (player: points), stderr (player: points), games (player: count).
lineage: the learning players, each with its snapshots and resets: updates, training steps and reasons. JSON: update,
  env_steps, players (all fields, and events: freeze or reset, player or source, version, env_steps, reason).
export: writes all of that and the settings, win rates and history (league.jsonl) as JSON.
export --policies: writes game (for pyspiel.load_game), players (name: information state string: action:
  probability) and mixture (name: weight, by seat), as measured by nash below.
heatmap: draws win rates of all training's matches, rows against columns; white is 0.5, grey no match. With
  --league.score=return it draws mean returns, from the smallest to the largest.
nash: measures the players' exploitability exactly, in OpenSpiel's games of two seats with hidden information, chance
  or simultaneous moves: the NashConv of mixtures. equilibrium: by a linear programme on all returns, if these sum to
  zero; league: main's next opponents, itself included; uniform: all frozen players; last: main now, alone in a run
  without a league. JSON: update, env_steps, players, nash_conv (of the equilibrium, else of main), mixtures (name:
  NashConv), weights (name: weight, by seat), support (players with a weight, by seat), cycles (three players of whom
  each beats the next one).
match A B: plays games of two players here, greedily; each pair of games begins with the same 2 random moves, and the
  players change sides. In games of two seats (hidden information, chance or simultaneous moves) both draw from their
  policies, from both seats, and the mean return comes first: stakes differ. Counts A's results; main is the newest
  checkpoint. A or B may be HOST:PORT or HOST:PORT/NAME of a policy server (`seedzero serve`), so that two teams'
  agents meet; both must play the same game. Nothing is added to the run. JSON: players, games, score (a draw is half
  a win), low, high, wins, draws, losses, first and second (the same three with the first move or seat and without),
  mean_return, stderr_return, versions, policy (sample, if moves were drawn).""",
    run=run,
)
