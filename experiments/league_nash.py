"""Compares a league in a game of hidden information or simultaneous moves with controls, by exact exploitability.

    python experiments/league_nash.py kuhn|leduc|brps [--frames=2000000] [--seeds=1,2,3] [--out=runs/nash]

All runs see the same number of frames, which are rows of both seats; a league does not learn from its opponents' rows.
Controls are the same agent in self-play, with and without the same entropy bonus. The table has the final NashConv,
its median over seeds and its range: for the mixture of all snapshots by the linear programme, for all snapshots
equally, for the later half equally, and for the last one. The figure shows these over frames, and the mixture's
weights of one league. OUT/GAME.json stores each result at once; the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import runs

from seedzero.acting.equilibria import game_tree
from seedzero.api import exploitability, leagues
from seedzero.config import presets

RUNS: Mapping[str, Mapping[str, float]] = {
    "league": {},
    "self-play": {"league.self_play": 1},
    "self-play without entropy": {"league.self_play": 1, "ppo.entropy_weight": 0},
}
"""Settings of each run in addition to the preset's."""
COLUMNS = {"mixture": "mixture", "alike": "snapshots alike", "late": "later half alike", "last": "last iterate"}

Result = dict[str, Any]


def main() -> None:
    """Reads the command line, trains and measures missing runs, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game", choices=("kuhn", "leduc", "brps"))
    parser.add_argument("--frames", type=int, default=2_000_000)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/nash"))
    arguments, settings = parser.parse_known_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / f"{arguments.game}.json"
    results: list[Result] = json.loads(file.read_text()) if file.exists() else []
    for seed in map(int, arguments.seeds.split(",")):
        for name, own in RUNS.items():
            key = {"run": name, "seed": seed, "frames": arguments.frames}
            if any(key.items() <= result.items() for result in results):
                continue
            preset = f"league-{arguments.game}"
            share = (1 + own.get("league.self_play", presets.get(preset).league.self_play)) / 2  # in stored rows
            path = arguments.out / f"{arguments.game}-{name.replace(' ', '-')}-{seed}"
            given = [f"--preset={preset}", f"--seed={seed}", "--evaluation.every_updates=0"]
            given += [f"--{setting}={value}" for setting, value in own.items()]
            given += [f"--max_env_steps={round(share * arguments.frames)}", *settings]
            run = runs.train(path, given, resumes=True)
            curve, weights = judged(path, share)
            results.append({**key, "seconds": run.seconds, "points": curve, "weights": weights})
            file.write_text(json.dumps(results))
    print(table(results))
    with runs.figures():
        runs.plot(arguments.out / f"{arguments.game}.svg", panels(results), title=f"NashConv, {arguments.game}")


def judged(path: pathlib.Path, share: float) -> tuple[list[Result], list[Result]]:
    """Returns the NashConv of a run's mixtures after each of up to 40 snapshots, and the final weights."""
    found, league = exploitability.judge(path, str(path), trusted=True), leagues.read(path, str(path))
    frozen = [found.names.index(name) for name in league.pool.past()]
    ends = sorted({round(end) for end in np.linspace(1, len(frozen), min(40, len(frozen)))})
    plans = game_tree.players(found.tree, found.policies).plans

    def judge(weights: tuple[np.ndarray, np.ndarray], places: Sequence[int]) -> float:
        one, other = (weight @ plan[list(places)] for weight, plan in zip(weights, plans, strict=True))
        return game_tree.nash_conv(found.tree, (one, other))

    def alike(places: Sequence[int]) -> float:
        weight = np.full(len(places), 1 / len(places))
        return judge((weight, weight), places)

    def frames(place: int) -> float:
        return league.pool.of(found.names[place]).env_steps / share

    def equilibrium(places: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        return game_tree.equilibrium(found.returns[np.ix_(places, places)])

    curve = []
    for end in ends:
        places = frozen[:end]
        curve.append(
            {
                "frames": frames(places[-1]),
                "mixture": judge(equilibrium(places), places),
                "alike": alike(places),
                "late": alike(places[len(places) // 2 :]),
                "last": alike(places[-1:]),
            }
        )
    weights = zip(*equilibrium(frozen), frozen, strict=True)
    return curve, [{"frames": frames(place), "first": one, "second": other} for one, other, place in weights]


def panels(results: Sequence[Result]) -> list[runs.Panel]:
    """Draws a panel for each column of the table, with medians over seeds, and one with a league's weights."""

    def curve(name: str, key: str) -> list[dict[str, float]]:
        found = [result["points"] for result in results if result["run"] == name]
        return [
            {"frames": statistics.median(p["frames"] for p in at), "nash_conv": statistics.median(p[key] for p in at)}
            for at in zip(*found, strict=False)
        ]

    weights = next((result["weights"] for result in results if result["run"] == "league"), [])
    of_seats = {
        f"{seat} seat": [{"frames": one["frames"], "weight": one[seat]} for one in weights]
        for seat in ("first", "second")
    }
    return [
        *(
            runs.Panel(title, {name: curve(name, key) for name in RUNS}, "frames", y="nash_conv")
            for key, title in COLUMNS.items()
        ),
        runs.Panel("the mixture's snapshots", of_seats, "frames", y="weight"),
    ]


def table(results: Sequence[Result]) -> str:
    """Returns the table of all runs, in Markdown."""

    def cell(found: Sequence[Result], key: str) -> str:
        values = [result["points"][-1][key] for result in found]
        return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"

    by_run = {name: [result for result in results if result["run"] == name] for name in RUNS}
    return runs.table(
        ["run", "seeds", *COLUMNS.values()],
        [[name, len(found), *(cell(found, key) for key in COLUMNS)] for name, found in by_run.items() if found],
    )


if __name__ == "__main__":
    main()
