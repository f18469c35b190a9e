"""`seedzero train`: runs `api.training` from a command line."""

from __future__ import annotations

import functools
import gc
import logging
import math
import os
import pathlib
import resource
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seedzero.api import training
from seedzero.cli import output, parse, stopping
from seedzero.config import configs, presets, sections, worker_options
from seedzero.core import errors, user_code
from seedzero.learner import callbacks

_RARELY = (100_000, 50, 100)
"""Thresholds of garbage collection until the networks are built, which may wait for a worker, or never be."""
MIN_ADDRESSES_BYTES = 3 * 10**9
"""Addresses of a learner of the smallest network on a CPU; with 20 % less, a library hangs or aborts as it starts."""


def run(arguments: parse.Arguments) -> int:
    """Trains; returns the exit code. Raises UsageError for wrong settings, or a run directory of another run."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY and allowed < MIN_ADDRESSES_BYTES:
        raise errors.UsageError(
            f"this shell allows {allowed / 1e9:.3g} GB of addresses (ulimit -v), and a learner needs at least "
            f"{MIN_ADDRESSES_BYTES / 1e9:g} GB, most of which it never fills; give `ulimit -v unlimited`, and limit "
            "memory by a container or a cgroup"
        )
    supervised = arguments.switch("supervised")
    usual = gc.get_threshold()
    gc.set_threshold(*_RARELY)  # imports and networks leave nothing to collect, and looking takes a tenth of the start
    with stopping.leaving_at_once("training"):
        if supervised:
            from seedzero.learner.processes import signals

            signals.terminate_with_input()
        worker = _InProcess() if arguments.switch("debug") else None
        quiet = arguments.switch("quiet")
        say: Callable[..., None] = _nothing if quiet else output.say
        try:
            ended = training.start(
                arguments.flags,
                arguments.settings,
                lambda run_dir: resume_command(run_dir, arguments),
                callbacks.Caller(
                    say,
                    leaves_when_late=worker is None,
                    is_quiet=quiet,
                    has_built=functools.partial(collect_as_usual, usual),
                    worker=worker,
                    unsaved={} if worker is None else _debugged(arguments.settings),
                ),
            )
            if quiet:
                output.print_json({"run_dir": ended.run_dir, "finished": ended.is_finished, "reason": ended.reason})
        except errors.TrainingFailure:
            if worker is not None and worker.raised is not None:
                raise worker.raised from None
            raise
        except errors.Occupied as error:
            if not supervised:
                raise
            output.fail(error)
            return errors.TRY_LATER
        finally:
            gc.set_threshold(*usual)
    return errors.DONE


def collect_as_usual(threshold: tuple[int, int, int]) -> None:
    """Lets Python collect garbage as often as before, but never visit what lives already: modules and networks."""
    gc.freeze()
    gc.set_threshold(*threshold)


def _nothing(*texts: str) -> None:
    """Prints nothing."""


def _debugged(settings: Mapping[str, str]) -> dict[str, Any]:
    """Returns settings of a run for a debugger, for this process alone: nothing waits for its environments only for so
    long.

    Raises UsageError for settings of several processes.
    """
    for name, kept in {"worker.num": "1", "cluster.num_hosts": "1"}.items():
        if settings.get(name, kept) != kept:
            flag = configs.flag(name)
            raise errors.UsageError(
                f"--debug steps all environments in this process: leave {flag}={settings[name]} out, or --debug"
            )
    endless = {"evaluation.every_updates": 0, "run.stop_at_return": math.inf, "transport.step_seconds": 0.0}
    return {"worker.num_groups": settings.get("worker.num_groups", 1), **endless}


class _InProcess:
    """Steps the environments on one thread of this process. raised: the exception of an environment, or None."""

    raised: BaseException | None = None

    def __call__(self, server: str, stop: threading.Event) -> int:
        from seedzero.worker import worker

        log = logging.getLogger(worker.__name__)
        level = log.level
        log.setLevel(logging.CRITICAL)  # what is raised is shown at the end, once
        user_code.serves.set(True)
        options = worker_options.WorkerOptions(server=server, worker_id="local-0", role="train", threads=1)
        try:
            return worker.run(options, stop=stop, on_failure=self._keep)
        finally:
            log.setLevel(level)

    def _keep(self) -> None:
        """Keeps the exception that is being handled, with the frames behind seedzero's last one."""
        failure = sys.exc_info()[1]
        self.raised = failure and (failure.__cause__ or failure)
        trace = None if self.raised is None else self.raised.__traceback__
        while self.raised is not None and trace is not None:
            is_own = pathlib.Path(trace.tb_frame.f_code.co_filename).is_relative_to(pathlib.Path(__file__).parents[1])
            trace = trace.tb_next
            if is_own and trace is not None:
                self.raised.__traceback__ = trace


def resume_command(path: str, arguments: parse.Arguments, *, command: Sequence[str] = ("train",)) -> str:
    """Returns the shell command that resumes a run. command: its words without dashes."""
    flags = {**arguments.flags, "run_dir": path}
    settings = dict(arguments.settings)
    if flags.pop("supervised", None):  # its reader keeps no pipe open, and starts all hosts as this one was started
        settings = {name: value for name, value in settings.items() if name not in sections.OF_A_PROCESS}
    return shlex.join([*program_words(sys.argv), *command, *as_words(flags, settings)])


def as_words(flags: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    """Returns flags and settings, by short names if possible, as words of a command line."""
    aliases = {name: alias for alias, name in configs.ALIASES.items()}
    short = {aliases.get(name, name): value for name, value in settings.items()}
    return [f"--{key}={value}" for key, value in {**flags, **short}.items()]


def program_words(argv: Sequence[str]) -> list[str]:
    """Returns the words that call the program: its name if it is on the path."""
    name = os.path.basename(argv[0])
    found = shutil.which(name)
    if name.endswith(".py"):
        return [sys.executable, "-m", "seedzero.cli"]
    return [name if found and os.path.realpath(found) == os.path.realpath(argv[0]) else argv[0]]


def _preset_rows() -> str:
    width = max(map(len, presets.PRESETS))
    return "\n".join(f"  {name:<{width}}  {preset.description}" for name, preset in presets.PRESETS.items())


COMMAND = parse.Command(
    summary="Trains an agent, with a learner on this machine's accelerator and local workers.",
    usage="--preset=NAME|--env=ENV|--run_dir=DIR [--key=value ...]",
    flags={
        parse.PRESET: "one of the presets below, or your own: a file with one --setting=value on each line",
        "run_dir=DIR|gs://BUCKET/PATH": "directory of the run; an existing run resumes (default: a new one in "
        f"{training.RUNS}/)",
        "page=PORT": "serve the page of this run (`seedzero page`) on this machine until "
        "it ends; 0: any free port, which is printed",
        **parse.PAGE_ROOT,
        **parse.TRUST,
        "quiet": "print errors, and at the end a line of JSON with the run directory; logs/learner.log has the rest",
        "debug": "step the environments on one thread of this process, without evaluations, so that breakpoint() and "
        "print work and a traceback is your own; --worker.envs_per_group=1 has one environment",
        "supervised": "save and end when standard input is closed; for a program that starts this one",
    },
    takes_settings=True,
    details=f"""
Presets:
{_preset_rows()}

Examples:
  seedzero train --preset=catch
  seedzero train --preset=atari --env=atari:Breakout --run_dir=runs/breakout
  seedzero train --env=gym:LunarLander-v3 --max_seconds=300 --optimizer.learning_rate=1e-3
  seedzero train --env=gym:Pendulum-v1                                 # continuous actions
  seedzero train --preset=atari --workers=0 --listen=0.0.0.0:7777 --token_file=token   # workers on other machines
  seedzero train --preset=catch --cluster.num_hosts=2                          # two learner hosts (docs/hosts.md)
  seedzero train --env=python:my_env:MyEnv --debug                     # breakpoint() in MyEnv.step works
  seedzero train --run_dir=runs/breakout                               # resumes that run
  seedzero train --preset=atari --run_dir=gs://BUCKET/breakout         # survives the loss of this machine

With a bucket, everything is written to a local copy (in $SEEDZERO_SCRATCH, or the user's cache directory) and uploaded
with every checkpoint; a checkpoint counts once it is in the bucket.

While it trains, the console shows: time since the start; training steps so far; frames (of emulators, else steps) and
updates a second; mean return of the last 100 training episodes and of the last evaluation; spi, samples per insert:
windows trained on for each step; fill: share of an acting batch that environments fill; age: updates between the
acting and the newest parameters; budget: time until the nearest of --max_seconds, --max_env_steps and --max_updates is
spent, - without one (a return may end the run sooner); saved: update of the newest checkpoint.

It ends at the first budget that is reached, or at --stop_at_return. If neither the command line nor the preset names
an end, it ends at the environment's own reward threshold or budget, which it prints at the start. Ctrl-C, SIGTERM and
SIGHUP save and end. A second Ctrl-C ends it at once, and so does a call on the device that has not returned 10 s
after --max_seconds; the newest checkpoint is kept. `seedzero config --env=ENV` lists the settings with values,
units and help, what matters first; each is set by --SECTION.KEY=VALUE.""",
    run=run,
)
