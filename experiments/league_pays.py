"""Does a league pay? Compares leagues with self-play and its snapshots for equal seconds, by exact exploitability.

    python experiments/league_pays.py [--seconds=120] [--seeds=1,2,3] [--out=runs/league_pays] [--pair=TEXT]

A pair is a league and its control: self-play whose snapshots are mixed like the league's, with the same game, agent,
entropy weight and seed. Both train at the same time, so that other work on the machine slows both. The table has the
final NashConv, its median over seeds and its range: for the mixture by the linear programme, for all snapshots
equally, and for main's last parameters; and in how many pairs the league's is lower. Frames are rows of both seats.
OUT/pairs.json stores each pair at once, and the same command resumes after the last one. --pair trains only the pairs
whose line of the table begins with TEXT.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import runs

from seedzero.api import exploitability, leagues

GAMES: Mapping[str, str] = {
    "goofspiel": "spiel:goofspiel(num_cards=4,imp_info=true,points_order=descending)",
    "blotto": "spiel:blotto(coins=10,fields=3)",
}
SELF_PLAY = "self-play"
RUNS: Mapping[str, Sequence[str]] = {
    SELF_PLAY: ("--league.freeze_every=4000", "--league.self_play=1"),
    "half against the past": ("--league.freeze_every=4000", "--league.self_play=0.5"),
    "exploiters": (
        "--league.builder=alphastar",
        '--league.builder_args={"min_games": 100, "min_steps": 3000, "max_steps": 8000, "reset_probability": 1}',
    ),
}
"""Settings by the name of the run."""
COLUMNS: Mapping[str, str] = {
    exploitability.EQUILIBRIUM: "mixture by the linear programme",
    exploitability.UNIFORM: "snapshots alike",
    exploitability.LAST: "last iterate",
}

Result = dict[str, Any]


class Pair(NamedTuple):
    """A league and its control."""

    game: str
    entropy_weight: float
    league: str

    def __str__(self) -> str:
        return f"{self.game}, {self.entropy_weight:g}, {self.league}"


PAIRS = (
    Pair("goofspiel", 0.15, "exploiters"),
    Pair("goofspiel", 0.15, "half against the past"),
    Pair("goofspiel", 0.05, "exploiters"),
    Pair("goofspiel", 0.3, "exploiters"),
    Pair("blotto", 0.15, "exploiters"),
)


def main() -> None:
    """Reads the command line, trains and measures missing pairs, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/league_pays"))
    parser.add_argument("--pair", default="")
    arguments, settings = parser.parse_known_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "pairs.json"
    results: list[Result] = json.loads(file.read_text()) if file.exists() else []
    for seed in map(int, arguments.seeds.split(",")):
        for pair in (pair for pair in PAIRS if str(pair).startswith(arguments.pair)):
            key = {"pair": str(pair), "seed": seed, "seconds": arguments.seconds}
            if any(key.items() <= result.items() for result in results):
                continue
            shared = [
                *("--preset=seats", f"--env.id={GAMES[pair.game]}", f"--ppo.entropy_weight={pair.entropy_weight}"),
                *("--league.weighting=uniform", "--league.build_every=10", "--evaluation.every_updates=0"),
                *(f"--seed={seed}", f"--max_seconds={arguments.seconds}", *settings),
            ]
            names = {name: f"{str(pair).replace(', ', '-').replace(' ', '-')}-{seed}-{name}" for name in sides(pair)}
            jobs = {arguments.out / names[name]: [*shared, *RUNS[name]] for name in sides(pair)}
            runs.train_side_by_side(jobs, arguments.out / "compiled")
            found = zip(sides(pair), map(judged, jobs), strict=True)
            results.append({**key, "runs": dict(found)})
            file.write_text(json.dumps(results))
    print(table(results))


def sides(pair: Pair) -> tuple[str, str]:
    """Returns the names of the two runs of a pair."""
    return (pair.league, SELF_PLAY)


def judged(path: pathlib.Path) -> dict[str, float]:
    """Returns a run's NashConv by COLUMNS, its training steps, frames and snapshots, and its policies' entropy."""
    found, league = exploitability.judge(path, str(path), trusted=True), leagues.read(path, str(path))
    types = league.payoff.num_matches()
    entropy = [row["policy_entropy"] for row in runs.rows(path) if "policy_entropy" in row]
    return {
        **{name: found.mixtures[name].nash_conv for name in COLUMNS},
        "env_steps": found.env_steps,
        "frames": frames(found.env_steps, types["self_play"], sum(types.values())),
        "snapshots": len(league.pool.past()),
        "entropy": entropy[-1],
    }


def frames(env_steps: int, self_play: int, matches: int) -> int:
    """Returns the rows of both seats: self-play counts both as training steps, any other match only one.

    All games here have the same length.
    """
    return round(env_steps * 2 * matches / (matches + self_play))


def table(results: Sequence[Result]) -> str:
    """Returns the table of all pairs, in Markdown."""
    lines = []
    for pair in PAIRS:
        found = [result["runs"] for result in results if result["pair"] == str(pair)]
        for name in sides(pair) if found else ():
            of_run = [of_pair[name] for of_pair in found]
            cells = [_cell([result[key] for result in of_run]) for key in COLUMNS]
            if name == pair.league:
                lower = [sum(one[name][key] < one[SELF_PLAY][key] for one in found) for key in COLUMNS]
                cells = [f"{cell}; lower in {of} of {len(found)}" for cell, of in zip(cells, lower, strict=True)]
            counts = [f"{statistics.median(of[key] for of in of_run):,.0f}" for key in ("frames", "snapshots")]
            entropy = statistics.median(of["entropy"] for of in of_run)
            lines.append([pair.game, f"{pair.entropy_weight:g}", name, *counts, f"{entropy:.2g}", *cells])
    header = ("game", "entropy weight", "run", "frames", "snapshots", "policy's entropy")
    return runs.table([*header, *COLUMNS.values()], lines)


def _cell(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
