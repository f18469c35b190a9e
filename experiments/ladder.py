"""The ladder: small environments, each with a bar and a time limit, learned from scratch by several seeds.

    python experiments/ladder.py [RUNG ...] [--seeds=1,2,3] [--out=runs/ladder]

Without names it runs all rungs, one run after another; nothing else should use the machine. Time counts from the start
of the training process to its end. The score is that of a separate `seedzero evaluate` of the saved checkpoint, in
environments with unseen seeds. OUT/ladder.json stores each result at once, so that the same command resumes an
interrupted ladder. At the end it writes OUT/ladder.md, one plot per rung and one of all (OUT/ladder.png).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import runs

_MARGIN = 8.0
"""Seconds of a rung's time reserved for work outside a run's own clock: process start and saving."""


class Score(NamedTuple):
    """A score. error: the standard error of a mean over episodes; None if the score is exact."""

    value: float
    error: float | None = None


class Rung(NamedTuple):
    """One step of the ladder.

    Attributes:
      settings: of `seedzero train`, without the seed.
      seconds: time limit of the whole process.
      bar: the score to reach.
      score: run directory -> score; more is better.
      unit: of the score.
      seeds: number of runs.
    """

    settings: Sequence[str]
    seconds: float
    bar: float
    score: Callable[[pathlib.Path], Score]
    unit: str
    seeds: int = 3


def mean_return(episodes: int) -> Callable[[pathlib.Path], Score]:
    """Scores a run directory by its mean return over a number of episodes."""

    def score(path: pathlib.Path) -> Score:
        found = runs.evaluate(path, [f"--episodes={episodes}"])
        error = found.get("stderr_return")
        return Score(float(found["mean_return"]), None if error is None else float(error))

    return score


def _lost_lines(path: pathlib.Path) -> Score:
    """Scores a run directory by minus the number of lost lines of play, over both colours."""
    return Score(-float(runs.evaluate(path, ["--opponent=exhaustive"])["losses"]))


def _kept_values(path: pathlib.Path) -> Score:
    return Score(100 * float(runs.script("keeps_value.py", [str(path), "--positions=1000"])["share"]))


def _lunar_lander(seconds: float, bar: float) -> Rung:
    settings = ("--env=gym:LunarLander-v3", f"--stop_at_return={bar + 20:g}")
    return Rung(settings, seconds, bar, mean_return(20), "return, 20 episodes")


RUNGS: Mapping[str, Rung] = {
    "catch": Rung(("--preset=catch",), 60, 1.0, mean_return(100), "return, 100 episodes"),
    "cartpole": Rung(("--preset=cartpole",), 120, 475, mean_return(20), "return, 20 episodes", 5),
    "tictactoe": Rung(("--preset=tictactoe",), 600, 0, _lost_lines, "- lost lines of play"),
    "connect_four": Rung(("--preset=connect_four",), 1800, 95, _kept_values, "% of moves that keep the exact value"),
    "breakout": Rung(
        ("--env=gym:MinAtar/Breakout-v1", "--stop_at_return=14"), 1200, 10, mean_return(50), "return, 50 episodes"
    ),
    "lunar_lander": _lunar_lander(300, 200),
    "lunar_lander_240": _lunar_lander(900, 240),
    "frozen_lake": Rung(("--env=gym:FrozenLake-v1",), 300, 0.7, mean_return(1000), "return, 1,000 episodes"),
    "taxi": Rung(("--env=gym:Taxi-v4",), 600, 7.5, mean_return(1000), "return, 1,000 episodes"),
    "pendulum": Rung(("--env=gym:Pendulum-v1",), 900, -300, mean_return(20), "return, 20 episodes"),
}

Result = dict[str, Any]


def main() -> None:
    """Reads the command line, runs the rungs, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rungs", nargs="*", metavar="RUNG", help=f"of {', '.join(RUNGS)}; none: all")
    parser.add_argument("--seeds", help="numbers with commas; default: 1, 2, 3 (cartpole: 1 to 5)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/ladder"))
    arguments = parser.parse_args()
    unknown = set(arguments.rungs) - set(RUNGS)
    if unknown:
        parser.error(f"unknown rung {', '.join(sorted(unknown))}; there are {', '.join(RUNGS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "ladder.json"
    results: list[Result] = json.loads(file.read_text()) if file.exists() else []
    for name in arguments.rungs or RUNGS:
        seeds = arguments.seeds.split(",") if arguments.seeds else range(1, RUNGS[name].seeds + 1)
        for seed in map(int, seeds):
            if any(result["rung"] == name and result["seed"] == seed for result in results):
                continue
            results.append(climb(name, RUNGS[name], seed, arguments.out))
            print(json.dumps({key: value for key, value in results[-1].items() if key != "curve"}), flush=True)
            file.write_text(json.dumps(results, indent=1))
    write(results, arguments.out)
    print(summary(results))


def climb(name: str, rung: Rung, seed: int, out: pathlib.Path, more: Sequence[str] = ()) -> Result:
    """Trains and scores one seed of a rung, with additional settings."""
    settings = [*rung.settings, *more, f"--seed={seed}", f"--max_seconds={rung.seconds - _MARGIN:g}"]
    run = runs.train(out / f"{name}-{seed}", settings)
    score = rung.score(run.path)
    return {
        "rung": name,
        "seed": seed,
        "seconds": round(run.seconds, 1),
        "score": round(score.value, 3),
        "error": score.error,
        "reached": score.value >= rung.bar and run.seconds <= rung.seconds,
        "env_steps": max((row["env_steps"] for row in runs.rows(run.path)), default=0),
        "ended": run.last_line,
        "command": f"seedzero train {' '.join(settings)}",
        "curve": runs.evaluations(run.path),
    }


def shown(result: Result) -> str:
    """Returns a score with its standard error, if any; results of earlier versions lack it."""
    error = result.get("error")
    return f"{result['score']:g}{f' ± {error:.2g}' if error else ''}"


def summary(results: Sequence[Result]) -> str:
    """Returns a table in Markdown, one line per rung."""
    lines = []
    for name, rung in RUNGS.items():
        found = [result for result in results if result["rung"] == name]
        if found:
            seconds = [result["seconds"] for result in found]
            lines.append(
                (
                    f"`{name}`",
                    f"{rung.bar:g} ({rung.unit}) in {rung.seconds:g} s",
                    ", ".join(map(shown, found)),
                    ", ".join(f"{x:.0f}" for x in seconds) + f" (median {statistics.median(seconds):.0f})",
                    f"{sum(result['reached'] for result in found)} of {len(found)}",
                )
            )
    return runs.table(("rung", "bar", "scores by seed", "seconds from process start", "reached"), lines)


def write(results: Sequence[Result], out: pathlib.Path) -> None:
    """Writes the table, a plot of each rung's evaluations over time, and one of all rungs."""
    (out / "ladder.md").write_text(summary(results) + "\n")
    with runs.figures():
        _draw(results, out)


def _draw(results: Sequence[Result], out: pathlib.Path) -> None:
    panels = []
    for name, rung in RUNGS.items():
        curves = {f"seed {result['seed']}": result["curve"] for result in results if result["rung"] == name}
        if curves:
            own = [runs.Panel("", curves, x) for x in ("seconds", "env_steps")]
            runs.plot(out / f"{name}.png", own, title=name)
            # Games are evaluated against random moves, but their bars have another unit.
            panels.append(runs.Panel(name, curves, "seconds", rung.bar if "return" in rung.unit else None))
    if panels:
        runs.plot(out / "ladder.png", panels)


if __name__ == "__main__":
    main()
