"""`seedzero plot`: draws curves of runs, with their mean and interval over seeds."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seedzero.cli import output, parse
from seedzero.core import errors

if TYPE_CHECKING:
    import numpy as np

    from seedzero.api import run_groups
    from seedzero.monitoring import series

_X = {
    "steps": "environment steps",
    "updates": "updates",
    "seconds": "seconds of training",
    "frames": "frames",
}
_Y = {"evaluation": "evaluation_mean_return", "training": "episode_return"}
_TITLES = {"evaluation": "mean return of evaluations", "training": "mean return of training episodes"}
_OUT = "plot.png"
BY = {
    "by=SETTING[,SETTING...]": "group runs by these settings, such as "
    "agent,optimizer.learning_rate (default: by all settings of "
    "learning that differ)"
}


def run(arguments: parse.Arguments) -> int:
    """Draws or prints the curves; returns the exit code."""
    x, y = arguments.flags.get("x", "steps"), arguments.flags.get("y", "evaluation")
    if x not in _X:
        raise errors.UsageError(f"--x={x}: expected one of {', '.join(_X)}")
    if not y:
        raise errors.UsageError(f"--y= is empty; expected {' or '.join(_Y)}, or the name of a metric")
    as_json = arguments.switch("json")
    smooth = arguments.integer("smooth", minimum=1) or 1
    out = pathlib.Path(arguments.flags.get("out") or _OUT)
    draws = not as_json or "out" in arguments.flags
    from seedzero.api import figures, run_groups

    if draws:
        if out.suffix.lower() not in figures.FORMATS:
            raise errors.UsageError(f"--out={out}: the name must end in {', '.join(figures.FORMATS)}")
        figures.check()
    runs = read_runs(arguments.words, (_Y.get(y, y),))
    if full := _full_name(y, runs):
        output.say(f"--y={y}: drawing {full}")
        y, runs = full, read_runs(arguments.words, (full,))
    by = None if "by" not in arguments.flags else run_groups.read_names(arguments.flags["by"], runs)
    kept = _with_points(runs, y)
    found = [(group, band) for group in run_groups.group(kept, by) if (band := _band(group, x, smooth))]
    if not found:
        raise errors.UsageError(f"the runs have no {_X[x]} in common; give --x, or fewer runs")
    if draws:
        lines = [figures.Line(_legend(group, only=len(found) == 1), band) for group, band in found]
        title = ", ".join(dict.fromkeys(run.saved.config.env.id for run in kept))
        content = figures.draw(
            lines, title=title, x=_X[x], y=_TITLES.get(y, y.replace("_", " ")), ending=out.suffix.lower()
        )
        output.write_file(out, content)
    if as_json:
        output.print_json(
            {
                "x": x,
                "y": y,
                "smooth": smooth,
                "by": by,
                "out": str(out) if draws else None,
                "groups": [_to_json(group, band) for group, band in found],
                "left_out": [run.place for run in runs if run not in kept],
            }
        )
    else:
        output.say(f"wrote {out}: {len(found)} curve(s) of {len(kept)} run(s)")
    return 0


def read_runs(places: Sequence[str], wanted: Sequence[str]) -> list[run_groups.RunRecord]:
    """Returns the runs at places with a series of metrics; damaged lines are reported."""
    from seedzero.api import run_groups

    runs = run_groups.read_runs(places, wanted, output.say)
    for found in runs:
        if found.series.num_damaged:
            output.say(f"unreadable lines of metrics of {found.place} that are left out: {found.series.num_damaged}")
    return runs


def _full_name(y: str, runs: Sequence[run_groups.RunRecord]) -> str:
    """Returns the metric that is meant by the end of its name, such as is_success, or "" if no run lacks the name."""
    names = {name for run in runs for name in run.series.names}
    full = (f"{prefix}{y}" for prefix in ("info/", "evaluation_info/", "evaluation_"))
    return "" if y in _Y or y in names else next((name for name in full if name in names), "")


def _with_points(runs: Sequence[run_groups.RunRecord], y: str) -> list[run_groups.RunRecord]:
    """Returns the runs that have the metric, and reports the others. Raises UsageError if none has it."""
    kept = [run for run in runs if len(run.series.values)]
    what = f"no {y} yet" if y in _Y else f"no metric {y}"
    if not kept:
        names = sorted({name for run in runs for name in run.series.names})
        whose = runs[0].place if len(runs) == 1 else f"none of {len(runs)} runs"
        said = f"{whose} has {what}" if len(runs) == 1 else f"{whose} has {what.removeprefix('no ')}"
        there = f"there are {', '.join(names)}" if names else "there are no rows of metrics yet"
        raise errors.UsageError(f"--y={y}: {said}; {there}")
    for run in runs:
        if not len(run.series.values):
            output.say(f"{run.place} has {what}, and is left out")
    return kept


def _band(group: run_groups.RunGroup, x: str, smooth: int) -> series.Band | None:
    """Returns a group's curve, and reports what it hides; None if its runs have no x in common."""
    from seedzero.api import run_groups
    from seedzero.monitoring import series

    name = group.label or "the curve"
    band = series.band([series.curve(_column(run, x), run.series.values[:, 0], smooth) for run in group.runs])
    if band is None:
        output.say(f"{name}: its {len(group.runs)} runs have no {_X[x]} in common, and are left out")
    elif band.longest > band.x[-1]:
        output.say(
            f"{name} ends at {band.x[-1]:,.0f} {_X[x]}, with the shortest of its {len(group.runs)} runs; the longest "
            f"has {band.longest:,.0f}"
        )
    if group.hidden:
        output.say(f"{name}: its runs differ in {', '.join(map(run_groups.short, group.hidden))} too")
    return band


def _column(run: run_groups.RunRecord, x: str) -> np.ndarray:
    """Returns the x [N] of a run's points."""
    updates, env_steps, seconds = run.series.places.T
    frames = env_steps * run.frames_per_step
    columns: dict[str, np.ndarray] = dict(steps=env_steps, updates=updates, seconds=seconds, frames=frames)
    return columns[x]


def _legend(group: run_groups.RunGroup, *, only: bool) -> str:
    number = len(group.runs)
    several = f"mean of {number} seeds, {'each as dots' if number == 2 else '95 % interval'}"
    several = several if only else f"{number} runs"
    if number == 1:
        return "" if only else group.label
    return several if only else f"{group.label} ({several})"


def _to_json(group: run_groups.RunGroup, band: series.Band) -> Mapping[str, Any]:
    return {
        "settings": dict(group.settings),
        "runs": [run.place for run in group.runs],
        **{name: _plain(value) for name, value in band._asdict().items() if name != "pair"},
    }


def _plain(value: np.ndarray | float | None) -> object:
    return value if value is None or isinstance(value, float) else value.tolist()


COMMAND = parse.Command(
    summary="Draws learning curves of runs: the mean over seeds with its 95 % interval.",
    usage="RUN [RUN ...] [--by=SETTING,...] [--x=steps] [--y=evaluation] [--smooth=N] [--out=FILE.png] [--json]",
    flags={
        **BY,
        "x=steps|updates|seconds|frames": "the horizontal axis (default steps); seconds continue when a run "
        "is resumed",
        "y=evaluation|training|METRIC": "the vertical axis: mean return of evaluations (default) or of "
        "training episodes, or a metric of metrics.jsonl",
        "smooth=N": "moving mean of each run's newest N points (default 1: none)",
        "out=FILE.png|svg|pdf": f"file to write (default {_OUT} here, replaced; with --json none)",
        "json": "print one line of JSON with the numbers; needs no matplotlib",
    },
    details="""
RUN is a run directory, a directory of runs (all below it), a pattern in quotes, or gs://BUCKET/PATH of a run. Runs
that differ only in the seed are one curve; --by names other settings to group them by. Ends of runs and settings of
files, addresses and evaluations never split a group. The legend names only the settings that differ.

A run that trains is drawn as far as it is. A curve of several runs begins and ends where all of them have points,
linear between points; the interval is Student's. Two runs are shown as dots, and one run as its curve.

Examples:
  seedzero plot runs/sweep
  seedzero plot runs/ppo-* runs/vtrace-* --by=agent --x=seconds --out=agents.svg
  seedzero plot runs/breakout --y=value_mean --smooth=10

The JSON has x, y, smooth, by, out, left_out (runs without the metric) and groups: settings, runs, x, mean, low, high,
longest (last x of any run).""",
    run=run,
    words=((),),
    more_words=10_000,
)
