"""`seedzero sweep`: trains every combination of settings' values, some runs at a time."""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import pathlib
import re
import shlex
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seedzero.cli import compare, output, parse, stopping, train
from seedzero.config import machines, options
from seedzero.core import errors

if TYPE_CHECKING:
    from seedzero.api import sweeps, trials
    from seedzero.learner.processes import programs

_PROGRESS_SECONDS = 30.0
"""Seconds between two lines about each run."""
_SHARE_OF_MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"
"""Variable with the share of a GPU's memory that JAX takes, because runs at the same time share the GPU."""
_CONSOLE = re.compile(r"(?:(?:\d+:)?\d+:\d\d|\d+d\d\dh)  ")
"""Prefix of a training's lines on the console."""
_OF_SEARCHES = ("sampler", "objective", "halving")
_MOST_SHOWN = 10
"""Trials in the table; all are in the JSON."""


def run(arguments: parse.Arguments) -> int:
    """Runs the sweep; returns the exit code, which is 1 if a run failed."""
    as_json, jobs = arguments.switch("json"), arguments.integer("jobs", minimum=1)
    fixed = parse.read("train", train.COMMAND, arguments.rest)
    if found := {"run_dir", "supervised"} & fixed.flags.keys():
        raise errors.UsageError(
            f"--{min(found)} is given after --; a sweep gives each run its own: --run_dir=DIR before it"
        )
    directory = arguments.flags.get("run_dir", "")
    if "://" in directory:
        raise errors.UsageError(f"--run_dir={directory}: a sweep needs a directory; upload it once the runs are over")
    with stopping.leaving_at_once("the sweep"):
        from seedzero.api import sweeps, trials
        from seedzero.learner.processes import signals

        asked = _asked(arguments, fixed, directory)
        root = asked.root
        with contextlib.ExitStack() as undo:
            try:
                root.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise errors.UsageError(f"--run_dir={root} cannot be made: {error.strerror}") from None
            grid = undo.enter_context(trials.opened(asked)) if isinstance(asked, trials.SearchPlan) else asked
            num_parallel, num_done = min(jobs or max(1, machines.num_cores() // 2), grid.total), len(grid.states)
            sweep = _Sweep(grid, num_parallel)
            shared = machines.num_cores() // num_parallel or 1
            todo = f"; {num_done} have finished before, {max(0, grid.total - num_done)} to do" if num_done else ""
            output.say(
                f"{grid.total} run{'s' * (grid.total > 1)} in {root}, {num_parallel} at a time with {shared} core(s) "
                f"each{todo}"
            )
            with signals.StopSignals(sweep.pool.stop, say=output.say, cleanup=sweep.pool.kill):
                sweep.run()
    rows = sweep.results()
    _tell(rows, grid, as_json=as_json)
    if failed := [row for row in rows if row["state"] == sweeps.FAILED]:
        logs = "".join(f"\n  {row['name']}: {row['reason']}; log: {row['log']}" for row in failed)
        output.say(f"{len(failed)} of {len(rows)} runs failed, and start again with the same command:{logs}")
    if any(row["state"] == sweeps.STOPPED for row in rows) or len(rows) < grid.total:
        words = train.as_words({**arguments.flags, "run_dir": str(root)}, arguments.settings)
        rest = ["--", *arguments.rest] if arguments.rest else []
        output.say("stopped; to resume:", shlex.join([*train.program_words(sys.argv), "sweep", *words, *rest]))
    return errors.FAILED if failed else errors.DONE


def _asked(arguments: parse.Arguments, fixed: parse.Arguments, directory: str) -> sweeps.Grid | trials.SearchPlan:
    """Returns the runs of a sweep, or what to search; all settings are checked."""
    from seedzero.api import run_groups, sweeps, trials

    texts = _texts(arguments)
    replaced = fixed.of_file & texts.keys()  # naming what a preset's file names is not a repetition
    settings = {name: value for name, value in fixed.settings.items() if name not in replaced}
    if (num_trials := arguments.integer("trials", minimum=1)) is not None:
        sampler = arguments.flags.get("sampler", trials.SAMPLERS[0])
        if sampler not in trials.SAMPLERS:
            raise errors.UsageError(f"--sampler={sampler}: choose one of {', '.join(trials.SAMPLERS)}")
        plan = trials.plan(
            texts,
            fixed.flags,
            settings,
            directory,
            num_trials=num_trials,
            objective=arguments.flags.get("objective", trials.OBJECTIVE),
            sampler=sampler,
            halves=bool(options.parse("halving", arguments.flags.get("halving", "true"), bool)),
        )
        trials.check(plan)
        return plan
    if found := [name for name in _OF_SEARCHES if name in arguments.flags]:
        raise errors.UsageError(f"--{found[0]} is for a search; give --trials=N too, or leave it out")
    kind = sweeps.kind_of(texts, settings)
    if found := [f"--{name}={text}" for name, text in texts.items() if trials.is_range(name, text, kind)]:
        raise errors.UsageError(f"{found[0]} is a range, which --trials=N searches; without it give values")
    values = {name: sweeps.read_values(name, text, kind) for name, text in texts.items()}
    planned = sweeps.plan(values, fixed.flags, settings, directory)
    sweeps.check(planned)
    varied = [name for name in sweeps.swept(values) if name != run_groups.SEED]
    return sweeps.Grid(planned, planned[0].path.parent, len(planned), varied)


def _texts(arguments: parse.Arguments) -> dict[str, str]:
    """Returns the text of each setting before --, by SECTION.KEY."""
    from seedzero.api import run_groups

    given = dict(arguments.settings)
    if "preset" in arguments.flags:
        given[run_groups.PRESET] = arguments.flags["preset"]
    if "seeds" in arguments.flags:
        if run_groups.SEED in given:
            raise errors.UsageError("--seed and --seeds are given; give only --seeds")
        given[run_groups.SEED] = arguments.flags["seeds"]
    return given


class _Sweep:
    def __init__(self, grid: sweeps.Grid, num_parallel: int) -> None:
        from seedzero.learner.processes import pool

        self._grid = grid
        self._began: dict[str, float] = {}
        self._lines: dict[str, str] = {}  # name -> newest line of a running run's console
        self._lock = threading.Lock()
        tasks = (self._task(each, pool) for each in grid.todo())
        environment: dict[str, str] = {}
        if num_parallel > 1 and _SHARE_OF_MEMORY not in os.environ:
            environment[_SHARE_OF_MEMORY] = f"{0.9 / num_parallel:.3f}"
        self.pool = pool.ProgramPool(tasks, num_parallel, environment=environment)

    def _task(self, each: sweeps.PlannedRun, pool: Any) -> Any:
        words = train.as_words(each.flags, each.settings)
        return pool.Task(
            [sys.executable, "-m", "seedzero.cli", "train", "--supervised", *words],
            began=functools.partial(self._begin, each),
            write=functools.partial(self._write, each),
            ended=functools.partial(self._end, each),
        )

    def run(self) -> None:
        """Runs all, and prints a line for each run that begins, ends or is running."""
        self.pool.start()
        while not self.pool.wait(_PROGRESS_SECONDS):
            with self._lock:
                running = [f"{name}: {line}" for name, line in self._lines.items()]
            for line in running:
                output.say(line)

    def results(self) -> list[dict[str, Any]]:
        """Returns the state of each run, in the sweep's order."""
        from seedzero.api import sweeps

        states = collections.defaultdict(lambda: (sweeps.STOPPED, "it has not begun"), self._grid.states)
        return [
            {
                "name": each.name,
                "run_dir": str(each.path),
                "state": states[each.name][0],
                "reason": states[each.name][1],
                "log": str(_log(each.path)),
            }
            for each in self._grid.planned
        ]

    def _begin(self, each: sweeps.PlannedRun) -> None:
        with self._lock:
            self._began[each.name] = time.monotonic()
        place = f"{self._grid.planned.index(each) + 1} of {self._grid.total}"
        output.say(f"{each.name}: begins ({place}); log: {_log(each.path)}")

    def _write(self, each: sweeps.PlannedRun, line: bytes) -> bool:
        from seedzero.learner.processes import supervisor

        supervisor.write_log(_log(each.path), line)
        text = line.decode(errors="replace").strip()
        if _CONSOLE.match(text):
            with self._lock:
                self._lines[each.name] = text
        return self._grid.is_bad(each)

    def _end(self, each: sweeps.PlannedRun, death: programs.Death) -> None:
        failure = "" if death.status == errors.DONE else str(death).replace("seedzero: error: ", "")
        state, reason = self._grid.end(each, failure)
        with self._lock:
            self._lines.pop(each.name, None)
            seconds = time.monotonic() - self._began[each.name]
        output.say(f"{each.name}: {state}{': ' if reason else ''}{reason} ({seconds:.0f} s)")


def _log(path: pathlib.Path) -> pathlib.Path:
    """Returns the file of a run's output, next to its directory."""
    return path.with_name(f"{path.name}.log")


def _tell(rows: Sequence[Mapping[str, Any]], grid: sweeps.Grid, *, as_json: bool) -> None:
    """Prints states and scores; of a search the best trials, and the command to train with the best settings."""
    from seedzero.api import run_groups, trials

    begun = [row["run_dir"] for row in rows if os.path.exists(os.path.join(row["run_dir"], "config.json"))]
    runs = [run_groups.read_run(place, run_groups.METRICS) for place in begun]
    groups = run_groups.group(runs, grid.varied) if runs else []
    ranking = grid.ranking() if isinstance(grid, trials.Search) else []
    best = _best(grid, ranking[0]["trial"]) if ranking else ""
    if as_json:
        found = {"trials": ranking, "best": best} if isinstance(grid, trials.Search) else {}
        output.print_json({"run_dir": str(grid.root), "sweep": rows, **found, **compare.to_json(groups)})
    elif ranking:
        shown = [{**row, "value": f"{row['value']:.4g}", **row["settings"]} for row in ranking[:_MOST_SHOWN]]
        table = output.table([{run_groups.short(k): v for k, v in row.items() if k != "settings"} for row in shown])
        output.show(f"the best of {len(grid.planned)} trials, by their objective\n{table}\n")
        output.show_command("to train with the best settings:", best)
    elif groups:
        tables = [compare.runs_table(groups), compare.groups_table(groups)]
        output.show("\n\n".join(filter(None, tables)))


def _best(grid: sweeps.Grid, trial: str) -> str:
    """Returns the command line that trains with a trial's settings in a new directory."""
    (run,) = (each for each in grid.planned if each.name == trial)
    flags = {name: value for name, value in run.flags.items() if name != "run_dir"}
    return shlex.join([*train.program_words(sys.argv), "train", *train.as_words(flags, run.settings)])


COMMAND = parse.Command(
    summary="Trains every combination of settings and seeds, or searches for good settings; the same command resumes.",
    usage="--SECTION.KEY=VALUE,VALUE... [--seeds=1,2,3] [--trials=N] [--run_dir=DIR] -- --env=ENV [--key=value ...]",
    flags={
        "seeds=N,N...": "seeds of the runs of each combination (default: one run with the setting's seed)",
        "preset=NAME,NAME...": "names of presets, as for `seedzero train`",
        "jobs=N": "runs at the same time, each with an equal share of the cores "
        "(default: half as many as cores; with a TPU give 1)",
        "run_dir=DIR": "directory with a subdirectory for each run (default: one in runs/, "
        "named after environment and settings)",
        "trials=N": "search: train N trials, whose settings Optuna chooses from ranges and values",
        "sampler=NAME": "chooses the settings of the trials: tpe, by the trials so far (default), or random",
        "objective=METRIC": "the metric of metrics.jsonl whose last value is to be high (default: the mean return of "
        "evaluations, evaluation_mean_return)",
        "halving": "stop a trial that is not among the best third after 12 % or 36 % of its budget (default: true)",
        "json": "print one line of JSON instead of the tables",
    },
    takes_settings=True,
    takes_lists=True,
    takes_rest=True,
    details="""
Before --, a comma separates values; put a value with a comma in double quotes, as in CSV:
--env='"spiel:connect_four(rows=4,columns=5)",catch'. After -- are settings of every run, as for `seedzero train`, and
commas there separate nothing.

Each run's directory is named after its values, such as optimizer.learning_rate=0.001_seed=1, with a log beside it.
Wrong settings are rejected before any run starts. Ctrl-C saves and ends all runs; the same command resumes them,
starts the others and skips the finished ones. A run that fails stops no other, and is named at the end (exit code 1).

--trials=N searches instead: a setting that is a number may have a range, uniform:LOW:HIGH or log:LOW:HIGH (for what
varies by powers of ten), others have values with commas. The end of a trial, such as --max_env_steps, is its budget.
Trials worse than others are stopped early for good. The search needs the package optuna; its journal, search.journal,
is in the directory of the runs.

Examples:
  seedzero sweep --optimizer.learning_rate=1e-3,1e-4 --seeds=1,2,3 -- --preset=cartpole --agent=ppo
  seedzero sweep --agent=ppo,vtrace --seeds=1,2,3 --jobs=1 --run_dir=runs/agents -- --preset=cartpole
  seedzero sweep --trials=20 --optimizer.learning_rate=log:1e-4:1e-2 --ppo.num_epochs=uniform:2:16 -- \\
    --preset=cartpole --agent=ppo --max_env_steps=50000
  seedzero plot runs/agents

The JSON has run_dir, sweep (name, run_dir, state: finished, finished before, stopped early, stopped or failed, reason,
log), and settings, runs and groups as of `seedzero compare`; of a search also trials, the best first (trial, value,
state, settings), and best, the command that trains with the best settings.""",
    run=run,
)
