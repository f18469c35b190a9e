"""`seedzero train`: from the command line to a configuration, a run directory and the learner."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import shlex
import shutil
import signal
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from seedzero.cli import parse
from seedzero.core import combinations, presets
from seedzero.core import config as config_lib

RUNS = pathlib.Path("runs")


class Request(NamedTuple):
    """What a command line asks for.

    Attributes:
      preset: its name.
      given: what the user set, as text by SECTION.KEY.
      config: the preset's values, the user's over them, and what those imply; device-dependent ones still open.
      notes: what was implied, one sentence each.
    """

    preset: str
    given: Mapping[str, str]
    config: config_lib.Config
    notes: tuple[str, ...]


def run(arguments: parse.Arguments) -> int:
    """Trains; returns the exit code.

    Raises:
      UsageError: settings that are wrong or can't stand together, or a run directory that does not fit.
    """
    if not ({"preset", "run_dir"} & set(arguments.flags) or "env.id" in arguments.settings):
        print(parse.help_text("train", COMMAND), file=sys.stderr)
        return 2
    with _leaving_at_once():
        return _run(arguments)


@contextlib.contextmanager
def _leaving_at_once() -> Iterator[None]:
    """Until the learner handles signals itself, the first one ends the process: there is nothing to save yet."""

    def leave(number: int, frame: types.FrameType | None) -> None:
        print("seedzero: stopped before training began", file=sys.stderr, flush=True)
        os._exit(0)

    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(arguments: parse.Arguments) -> int:
    asked = request(arguments.flags, arguments.settings)
    check_early(asked)
    config, notes = _resolve(asked)
    _say(asked.notes)
    _say(notes)
    path = _run_path(arguments.flags, asked.preset)
    command = resume_command(path, arguments)
    if "run_dir" not in arguments.flags:
        _say([f"run directory {path}; to go on later: {command}"])
    from seedzero.runtime import learner

    return learner.train(config, path, command, preset=asked.preset, given=asked.given)


def request(flags: Mapping[str, str], settings: Mapping[str, str]) -> Request:
    """Returns what a command line asks for.

    A run directory that holds a run brings its preset and settings where the command line names neither preset nor
    environment.

    Raises:
      UsageError: an unknown preset or key, a wrong type, or no preset, environment or run to go on with.
    """
    given = dict(settings)
    notes = []
    preset, env = flags.get("preset"), settings.get("env.id")
    if preset is None and env is None:
        preset, given = _saved(flags["run_dir"], settings)
    elif preset is None:
        preset = presets.name_for(str(env))
        notes.append(f"--env={env}: preset {preset} ({presets.find(preset).description}); or give --preset=NAME")
    base = presets.get(preset)
    config = config_lib.override(base, given)
    config, implied = combinations.imply(config, preset_env=base.env.id, explicit=given.keys())
    return Request(preset, given, config, (*notes, *implied))


def _saved(run_dir: str, settings: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Returns preset and settings of the run in a directory, new settings over them."""
    from seedzero.runtime import run_dir as run_dir_lib  # numpy, which an early mistake need not wait for

    saved = run_dir_lib.read_saved(run_dir)
    return saved.preset, {**saved.given, **settings}


def check_early(asked: Request) -> None:
    """Refuses what can be seen to be wrong before JAX is loaded and the device known.

    Raises:
      ConfigError: settings that can't stand together, or an environment that can't exist.
    """
    on_cpu = config_lib.override(asked.config, presets.cpu_values(asked.preset, explicit=asked.given.keys()))
    combinations.check(asked.config, on_cpu)
    from seedzero.envs import registry  # numpy and gymnasium, which an early mistake need not wait for

    registry.check_id(asked.config.env.id)


def _resolve(asked: Request) -> tuple[config_lib.Config, list[str]]:
    import jax  # takes a second: everything that can be refused without it has been

    machine = presets.Machine(jax.default_backend(), _num_cores(), jax.local_device_count())
    config, notes = presets.resolve(asked.config, preset=asked.preset, explicit=asked.given.keys(), machine=machine)
    combinations.check(config)
    return config, notes


def _num_cores() -> int:
    """Cores that this process may use; containers allow fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_path(flags: Mapping[str, str], preset: str) -> pathlib.Path:
    from seedzero.runtime import run_dir as run_dir_lib

    given = flags.get("run_dir")
    return pathlib.Path(given) if given else run_dir_lib.new_path(RUNS, preset, datetime.datetime.now())


def resume_command(path: pathlib.Path, arguments: parse.Arguments) -> str:
    """Returns the command line that goes on with this run, for a shell."""
    flags = {**arguments.flags, "run_dir": str(path)}
    words = [f"--{key}={value}" for key, value in {**flags, **_by_alias(arguments.settings)}.items()]
    return shlex.join([*_program(sys.argv), "train", *words])


def _by_alias(settings: Mapping[str, str]) -> dict[str, str]:
    aliases = {name: alias for alias, name in config_lib.ALIASES.items()}
    return {aliases.get(name, name): value for name, value in settings.items()}


def _program(argv: Sequence[str]) -> list[str]:
    """Returns the words that call this program: its name where that finds it."""
    name = os.path.basename(argv[0])
    found = shutil.which(name)
    if name.endswith(".py"):
        return [sys.executable, "-m", "seedzero.cli"]
    return [name if found and os.path.realpath(found) == os.path.realpath(argv[0]) else argv[0]]


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"seedzero: {line}", file=sys.stderr, flush=True)


def _preset_rows() -> str:
    width = max(map(len, presets.names()))
    return "\n".join(f"  {name:<{width}}  {description}" for name, description in presets.names().items())


COMMAND = parse.Command(
    summary="Trains an agent: the learner with its accelerator, and local workers beside it.",
    usage="--preset=NAME [--env=ENV] [--run_dir=DIR] [--key=value ...]",
    flags=(
        parse.Flag("preset", "settings that work together; see below", "NAME"),
        parse.Flag("run_dir", "where everything is written; a run that is there goes on (default: a new one in "
                   f"{RUNS}/)", "DIR"),
    ),
    takes_settings=True,
    details=f"""
Presets:
{_preset_rows()}

Examples:
  seedzero train --preset=catch
  seedzero train --preset=atari --env=atari:Breakout --run_dir=runs/breakout
  seedzero train --env=gym:LunarLander-v3 --max_seconds=300 --optimizer.learning_rate=1e-3
  seedzero train --preset=atari --workers=0 --listen=0.0.0.0:7777      # workers join from other machines
  seedzero train --run_dir=runs/breakout                               # goes on where that run stopped

It ends at the first budget that is reached. Ctrl-C saves and leaves; a second one leaves at once.
`seedzero config --preset=NAME` lists every setting with its value, unit and help; each is set by
--SECTION.KEY=VALUE.""",
    run=run,
)
