"""`seedzero compare`: shows scores of runs, and the settings in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seedzero.cli import output, parse, plot

if TYPE_CHECKING:
    from seedzero.api import run_groups


def run(arguments: parse.Arguments) -> int:
    """Prints the tables; returns the exit code."""
    from seedzero.api import run_groups

    runs = plot.read_runs(arguments.words, run_groups.METRICS)
    by = None if "by" not in arguments.flags else run_groups.read_names(arguments.flags["by"], runs)
    groups = run_groups.group(runs, by)
    environments = sorted({run.saved.config.env.id for run in runs})
    notes = [_OF_SEVERAL.format(" and ".join(environments))] if len(environments) > 1 else []
    if arguments.switch("json"):
        output.print_json({**to_json(groups), "notes": notes})
    else:
        settings = settings_table(groups, all_settings=arguments.switch("all"))
        tables = [*notes, runs_table(groups), groups_table(groups), settings]
        output.show("\n\n".join(filter(None, tables)))
    return 0


_OF_SEVERAL = "runs of different environments, {}: their returns have different scales"


def to_json(groups: Sequence[run_groups.RunGroup]) -> dict[str, Any]:
    """Returns settings that differ, runs and groups."""
    from seedzero.api import run_groups

    return {
        "settings": [difference._asdict() for difference in run_groups.differences(groups)],
        "runs": [{"group": number, **run_groups.score_of_run(run)} for number, run in _numbered(groups)],
        "groups": [run_groups.score_of_group(group) for group in groups],
    }


def _numbered(groups: Sequence[run_groups.RunGroup]) -> list[tuple[int, Any]]:
    return [(number, run) for number, group in enumerate(groups, 1) for run in group.runs]


def settings_table(groups: Sequence[run_groups.RunGroup], *, all_settings: bool = False) -> str:
    """Returns the settings that differ, with a column for each group.

    all_settings: also those that the agent of a group does not have.
    """
    from seedzero.api import run_groups

    rows, found = list[dict[str, object]](), run_groups.differences(groups)
    kept = [one for one in found if all_settings or None not in one.values]
    for name, values, given in kept:
        cells = map(_marked, values, given)
        rows.append({"setting": name, **{str(number): cell for number, cell in enumerate(cells, 1)}})
    hidden = len(found) - len(kept)
    more = f"{hidden} settings that only some of the agents have: --all shows them" if hidden else ""
    if not rows:
        return more or "settings: all are equal but for the seed"
    head = "settings that differ, by group; * given on the command line, others follow from preset and machine"
    return "\n".join(filter(None, [head, output.table(rows), more]))


def _marked(value: str | None, is_given: bool) -> str | None:
    return f"{value}*" if value is not None and is_given else value


def runs_table(groups: Sequence[run_groups.RunGroup]) -> str:
    """Returns a row for each run: totals, last and best evaluation."""
    from seedzero.api import run_groups

    runs = _numbered(groups)
    names = run_groups.short_names([run.place for _, run in runs])
    rows = []
    for name, (number, run) in zip(names, runs, strict=True):
        found = run_groups.score_of_run(run)
        speed, last, best = found["env_steps_per_second"], found["last"], found["best"]
        rows.append(
            {
                "run": name,
                "group": number,
                "seed": found["seed"],
                "state": found["state"],
                "steps": f"{found['env_steps']:,}",
                "updates": f"{found['updates']:,}",
                "seconds": f"{found['seconds']:,.0f}",
                "steps/s": None if speed is None else f"{speed:,.0f}",
                "last": _score(last),
                "episodes": last and last["episodes"],
                "best": _score(best),
                "at step": best and f"{best['env_steps']:,}",
            }
        )
    return f"runs, with evaluations while training, +- the standard error over their episodes\n{output.table(rows)}"


def _score(score: Mapping[str, Any] | None) -> str | None:
    if score is None:
        return None
    return f"{score['mean']:.4g}" + ("" if score["stderr"] is None else f" +- {score['stderr']:.2g}")


def groups_table(groups: Sequence[run_groups.RunGroup]) -> str:
    """Returns a row for each group with its scores over seeds; "" if no group has two runs."""
    from seedzero.api import run_groups

    if all(len(group.runs) == 1 for group in groups):
        return ""
    rows = [_group_row(number, group, run_groups.score_of_group(group)) for number, group in enumerate(groups, 1)]
    return f"groups: evaluations over seeds, with the 95 % interval of the mean\n{output.table(rows, num_left=2)}"


def _group_row(number: int, group: run_groups.RunGroup, found: Mapping[str, Any]) -> dict[str, object]:
    row: dict[str, object] = {"group": number, "settings": group.label, "runs": len(group.runs)}
    for name in ("last", "best"):
        over = found[name]
        row[f"{name}: mean"] = over and f"{over['mean']:.4g}"
        is_known = over is not None and over["low"] is not None
        row[f"{name}: interval"] = f"{over['low']:.4g} to {over['high']:.4g}" if is_known else None
        row[f"{name}: median"] = over and f"{over['median']:.4g}"
    return row


COMMAND = parse.Command(
    summary="Compares runs: their scores with intervals, and the settings in which they differ.",
    usage="RUN [RUN ...] [--by=SETTING,...] [--all] [--json]",
    words=((),),
    more_words=10_000,
    flags={
        **plot.BY,
        "all": "of several agents: also the settings that only some of them have",
        "json": "print one line of JSON instead of the tables",
    },
    details="""
RUN is as for `seedzero plot`: a run directory, a directory of runs, a pattern, or gs://BUCKET/PATH of a run. Runs with
equal settings except for the seed are a group; --by names other settings to group them by.

Scores are those of the evaluations while training, last and best; the first one is only a baseline. steps/s are those
of the whole run, compilation included. `seedzero evaluate` scores a checkpoint with more episodes.

The JSON has settings (name, values and given by group), runs (group, run_dir, seed, state, finished, env_steps,
updates, seconds, env_steps_per_second, last and best: mean, stderr, episodes, update, env_steps), groups (settings,
runs, last and best: runs, mean, low, high, median) and notes.""",
    run=run,
)
