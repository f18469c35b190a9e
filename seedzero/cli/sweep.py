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
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seedzero.cli import compare, output, parse, stopping, train
from seedzero.config import machines, renamed
from seedzero.core import errors, exit_codes

if TYPE_CHECKING:
    from seedzero.api import sweeps
    from seedzero.processes import programs

_PROGRESS_SECONDS = 30.0
"""Seconds between two lines about each run."""
_CPUS = 2
"""Number of cores of a run on Ray."""
_SHARE_OF_MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"
"""Variable with the share of a GPU's memory that JAX takes, because runs at the same time share the GPU."""
_CONSOLE = re.compile(r"\d+:\d\d  ")
"""Prefix of a training's lines on the console."""
FINISHED, STOPPED, FAILED, SKIPPED = "finished", "stopped", "failed", "finished before"


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
        from seedzero.api import run_groups, sweeps
        from seedzero.processes import signals

        values = _values(arguments)
        replaced = fixed.of_file & values.keys()  # naming what a preset's file names is no repetition
        settings = {name: value for name, value in fixed.settings.items() if name not in replaced}
        planned = sweeps.plan(values, fixed.flags, settings, directory)
        sweeps.check(planned)
        root = planned[0].path.parent
        with _place(arguments) as (launch, cpus, room):
            try:
                root.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise errors.UsageError(f"--run_dir={root} cannot be made: {error.strerror}") from None
            num_parallel = min(jobs or room, len(planned))
            sweep = _Sweep(planned, num_parallel, launch)
            todo = len(planned) - len(sweep.states)
            shared = cpus or machines.num_cores() // num_parallel or 1
            output.say(
                f"{len(planned)} run{'s' * (len(planned) > 1)} in {root}, "
                f"{num_parallel} at a time with {shared} core(s) each"
                + (f"; {len(sweep.states)} have finished before, {todo} to do" if sweep.states else "")
            )
            with signals.StopSignals(sweep.stop, say=output.say, cleanup=sweep.kill):
                sweep.run()
    rows, names = sweep.results(), [name for name in sweeps.swept(values) if name != run_groups.SEED]
    _tell(rows, names, root, as_json=as_json)
    if failed := [row for row in rows if row["state"] == FAILED]:
        logs = "".join(f"\n  {row['name']}: {row['reason']}; log: {row['log']}" for row in failed)
        output.say(f"{len(failed)} of {len(rows)} runs failed, and start again with the same command:{logs}")
    if any(row["state"] == STOPPED for row in rows):
        words = train.as_words({**arguments.flags, "run_dir": str(root)}, arguments.settings)
        rest = ["--", *arguments.rest] if arguments.rest else []
        output.say("stopped; to resume:", shlex.join([*train.program_words(sys.argv), "sweep", *words, *rest]))
    return exit_codes.FAILED if failed else exit_codes.DONE


@contextlib.contextmanager
def _place(arguments: parse.Arguments) -> Iterator[tuple[Any, int, int]]:
    """Yields the function that starts programs, None: on this machine; a run's cores, 0: a share; the runs at a time.

    Raises UsageError for flags of Ray without Ray, and if the cluster has no room.
    """
    cpus, gpus = (arguments.integer(name, minimum=0) for name in ("cpus", "gpus"))
    if not arguments.switch("ray"):
        if found := {"address", "cpus", "gpus"} & arguments.flags.keys():
            raise errors.UsageError(f"--{min(found)} is for runs on a Ray cluster; give --ray too, or leave it out")
        yield None, 0, max(1, machines.num_cores() // 2)
        return
    from seedzero.cli import launch

    ray_launch = launch.load("seedzero sweep --ray")
    from seedzero.launch import ray_programs

    cpus = cpus or _CPUS
    with ray_launch.connected(arguments.flags.get("address", ""), lambda nodes: None):
        yield ray_programs.launcher(cpus, gpus or 0, os.getcwd()), cpus, ray_programs.room(cpus, gpus or 0)


def _values(arguments: parse.Arguments) -> dict[str, list[str]]:
    """Returns the values of each setting before --, by SECTION.KEY."""
    from seedzero.api import run_groups, sweeps

    given = dict(arguments.settings)
    if "preset" in arguments.flags:
        given[run_groups.PRESET] = arguments.flags["preset"]
    if "seeds" in arguments.flags:
        if run_groups.SEED in given:
            raise errors.UsageError("--seed and --seeds are given; give --seeds alone")
        given[run_groups.SEED] = arguments.flags["seeds"]
    given, notes = renamed.of_user(given, ())
    for note in notes:
        output.say(note)
    return {name: sweeps.read_values(name, text) for name, text in given.items()}


class _Sweep:
    """The runs of a sweep and their states."""

    def __init__(self, planned: Sequence[sweeps.PlannedRun], num_parallel: int, launch: Any) -> None:
        """launch: as `_place` yields it."""
        from seedzero.api import sweeps
        from seedzero.processes import pool

        self._planned = planned
        self.states: dict[str, tuple[str, str]] = {}  # name -> state and reason
        self._began: dict[str, float] = {}
        self._lines: dict[str, str] = {}  # name -> newest line of a running run's console
        self._lock = threading.Lock()
        for each in planned:
            if reason := sweeps.finished(each):
                self.states[each.name] = (SKIPPED, reason)
        tasks = [self._task(each, pool) for each in planned if each.name not in self.states]
        environment: dict[str, str] = {}
        if launch is None and num_parallel > 1 and _SHARE_OF_MEMORY not in os.environ:
            environment[_SHARE_OF_MEMORY] = f"{0.9 / num_parallel:.3f}"
        elsewhere: dict[str, Any] = {} if launch is None else {"launch": launch, "share_cores": False}
        self._pool = pool.ProgramPool(tasks, num_parallel, environment=environment, **elsewhere)

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
        self._pool.start()
        while not self._pool.wait(_PROGRESS_SECONDS):
            with self._lock:
                running = [f"{name}: {line}" for name, line in self._lines.items()]
            for line in running:
                output.say(line)

    def stop(self) -> None:
        self._pool.stop()

    def kill(self) -> None:
        self._pool.kill()

    def results(self) -> list[dict[str, Any]]:
        """Returns the state of each run, in the sweep's order."""
        states = collections.defaultdict(lambda: (STOPPED, "it has not begun"), self.states)
        return [
            {
                "name": each.name,
                "run_dir": str(each.path),
                "state": states[each.name][0],
                "reason": states[each.name][1],
                "log": str(_log(each.path)),
                "flags": dict(each.flags),
            }
            for each in self._planned
        ]

    def _begin(self, each: sweeps.PlannedRun) -> None:
        with self._lock:
            self._began[each.name] = time.monotonic()
        output.say(f"{each.name}: begins ({self._place(each)}); log: {_log(each.path)}")

    def _write(self, each: sweeps.PlannedRun, line: bytes) -> None:
        from seedzero.processes import supervisor

        supervisor.write_log(_log(each.path), line)
        text = line.decode(errors="replace").strip()
        if _CONSOLE.match(text):
            with self._lock:
                self._lines[each.name] = text

    def _end(self, each: sweeps.PlannedRun, death: programs.Death | None) -> None:
        from seedzero.api import sweeps

        if death is None:
            return
        finished = sweeps.finished(each)
        if death.status != exit_codes.DONE:
            state, reason = FAILED, str(death).replace("seedzero: error: ", "")
        else:
            state, reason = (FINISHED, finished) if finished else (STOPPED, "")
        with self._lock:
            self.states[each.name] = state, reason
            self._lines.pop(each.name, None)
            seconds = time.monotonic() - self._began[each.name]
        output.say(f"{each.name}: {state}{': ' if reason else ''}{reason} ({seconds:.0f} s)")

    def _place(self, each: sweeps.PlannedRun) -> str:
        return f"{self._planned.index(each) + 1} of {len(self._planned)}"


def _log(path: pathlib.Path) -> pathlib.Path:
    """Returns the file of a run's output, next to its directory."""
    return path.with_name(f"{path.name}.log")


def _tell(rows: Sequence[Mapping[str, Any]], names: Sequence[str], root: pathlib.Path, *, as_json: bool) -> None:
    """Prints states and scores."""
    from seedzero.api import run_groups, run_places, scores

    begun = [row["run_dir"] for row in rows if os.path.exists(os.path.join(row["run_dir"], "config.json"))]
    groups = run_groups.group([run_places.read(place, scores.METRICS) for place in begun], names) if begun else []
    if as_json:
        states = [{name: row[name] for name in ("name", "run_dir", "state", "reason", "log")} for row in rows]
        output.print_json({"run_dir": str(root), "sweep": states, **compare.to_json(groups)})
    elif groups:
        tables = [compare.runs_table(groups), compare.groups_table(groups)]
        output.show("\n\n".join(filter(None, tables)))


COMMAND = parse.Command(
    summary="Trains every combination of settings and seeds, several runs at a time; the same command resumes.",
    usage="--SECTION.KEY=VALUE,VALUE... --seeds=1,2,3 [--jobs=N] [--run_dir=DIR] -- --env=ENV [--key=value ...]",
    flags={
        "seeds=N,N...": "seeds of the runs of each combination (default: one run with the setting's seed)",
        "preset=NAME,NAME...": "as for `seedzero train`",
        "jobs=N": "runs at the same time, each with an equal share of the cores "
        "(default: half as many as cores; with a TPU give 1)",
        "run_dir=DIR": "directory with a subdirectory for each run (default: one in runs/, "
        "named after environment and settings)",
        "ray": "run on the nodes of a Ray cluster, which share the directory; a "
        "run whose node is lost fails, and resumes with the same command",
        "address=HOST:PORT": "address of the cluster, as for `seedzero launch ray`",
        "cpus=N": f"cores of a run on Ray (default {_CPUS}); --jobs defaults to what the nodes have room for",
        "gpus=N": "GPUs of a run on Ray (default 0)",
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

Examples:
  seedzero sweep --optimizer.learning_rate=1e-3,1e-4 --seeds=1,2,3 -- --preset=cartpole --agent=ppo
  seedzero sweep --agent=ppo,vtrace --seeds=1,2,3 --jobs=1 --run_dir=runs/agents -- --preset=cartpole
  seedzero sweep --ray --seeds=1,2,3,4 --cpus=4 --run_dir=/shared/seeds -- --preset=cartpole
  seedzero plot runs/agents

The JSON has run_dir, sweep (name, run_dir, state: finished, finished before, stopped or failed, reason, log), and
settings, runs and groups as of `seedzero compare`.""",
    run=run,
)
