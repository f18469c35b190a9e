"""`seedzero train`: from the command line to a configuration, a run directory and the learner."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from seedzero.bucket import bucket
from seedzero.cli import environment, output, parse, stopping
from seedzero.config import combinations, presets, sections
from seedzero.config import config as config_lib
from seedzero.config import machine as machine_lib
from seedzero.core import errors, exit_codes, types

RUNS = pathlib.Path("runs")


class Request(NamedTuple):
    """What a command line asks for.

    Attributes:
      preset: its name.
      given: what the user set, as text by SECTION.KEY.
      config: the preset's values, the user's over them, and what those imply; device-dependent ones still open.
      notes: what was implied, one sentence each.
      spec: of the environment; None: not known yet.
    """

    preset: str
    given: Mapping[str, str]
    config: config_lib.Config
    notes: tuple[str, ...]
    spec: types.EnvSpec | None = None

    @property
    def fixed(self) -> Set[str]:
        """Settings that the machine does not change: the user's, and without images the network for images."""
        shows_images = self.spec is None or types.shown(self.spec.observation_shape) == "images"
        return self.given.keys() | (set() if shows_images else {"vtrace.torso"})


def run(arguments: parse.Arguments) -> int:
    """Trains; returns the exit code.

    Raises:
      UsageError: settings that are wrong or can't stand together, or a run directory that does not fit.
    """
    if not ({"preset", "run_dir"} & set(arguments.flags) or "env.id" in arguments.settings):
        raise errors.UsageError(
            "nothing to train on is given: --env=ENV, as in `seedzero train --env=gym:CartPole-v1`, --preset=NAME "
            f"({', '.join(presets.PRESETS)}), or --run_dir of a run that goes on; `seedzero train --help` lists all"
        )
    with stopping.leaving_at_once("training"):
        if not arguments.switch("supervised"):
            return _run(arguments)
        from seedzero.processes import signals

        signals.terminate_with_input()
        try:
            return _run(arguments)
        except errors.Occupied as error:
            output.fail(error)
            return exit_codes.TRY_LATER


def _run(arguments: parse.Arguments) -> int:
    given = arguments.flags.get("run_dir", "")
    url = bucket.parse(given)  # refuses one that no run can be kept at
    asked = check_early(request(arguments.flags, arguments.settings))
    config, notes = _resolve(asked)
    for note in (*asked.notes, *notes):
        output.say(note)
    from seedzero.checkpoints import run_dir

    path = url or (pathlib.Path(given) if given else run_dir.new_path(RUNS, asked.preset, datetime.datetime.now()))
    command = resume_command(path, arguments)
    if not given:
        output.say(f"run directory {path}; to go on later: {command}")
    from seedzero.learner import learner

    return learner.train(config, path, command, preset=asked.preset, given=asked.given)


def request(flags: Mapping[str, str], settings: Mapping[str, str]) -> Request:
    """Returns what a command line asks for.

    A run directory that holds a run brings its preset and settings where the command line names neither preset nor
    environment.

    Raises:
      UsageError: an unknown preset or key, a wrong type, or no preset, environment or run to go on with.
    """
    given = dict(settings)
    notes, spec = [], None
    preset, env = flags.get("preset"), settings.get("env.id")
    if preset is None and env is None:
        preset, given = _saved(flags["run_dir"], settings)
    elif preset is None:
        if env in presets.PRESETS and env != presets.find(str(env)).values["env.id"]:
            raise errors.ConfigError(f"--env={env} names a preset, not an environment; give --preset={env}")
        if str(env).startswith("gym:"):
            with contextlib.suppress(errors.ConfigError):  # `check_early` raises it, unless workers alone need it
                kwargs = settings.get("env.kwargs", "")
                spec = environment.spec_of(sections.EnvConfig(id=str(env), kwargs=kwargs))
        preset, reason = presets.choose(str(env), spec)
        description = presets.find(preset).description
        notes.append(f"--env={env}{reason}: preset {preset} ({description}); or give --preset=NAME")
    agent = given.get("run.agent", config_lib.agent_names()[0])
    base = presets.get(preset, agent)
    if not presets.part(preset, agent).values:
        notes.append(f"preset {preset} has no part for agent {agent}: its defaults hold")
    config_lib.check_read(given, agent)
    config = config_lib.override(base, given)
    config, implied = combinations.imply(config, preset_env=base.env.id, explicit=given.keys())
    return Request(preset, given, config, (*notes, *implied), spec)


def _saved(run_dir: str, settings: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Returns preset and settings of the run in a directory, new settings over them."""
    from seedzero.bucket import run_copy  # numpy, which an early mistake need not wait for
    from seedzero.checkpoints import run_dir as run_dir_lib

    with run_copy.local(run_dir) as path:
        saved = run_dir_lib.read_saved(path)
    agent = settings.get("run.agent", saved.config.run.agent)
    if agent != saved.config.run.agent:
        raise errors.ResumeError(
            f"{run_dir} was trained with --agent={saved.config.run.agent}, not --agent={agent}; leave --agent out, or "
            "give another --run_dir"
        )
    return saved.preset, {**saved.given, **settings}


def check_early(asked: Request, *, has_environments: bool = True) -> Request:
    """Refuses what can be seen to be wrong before JAX is loaded and the device known; returns it with its spec.

    Args:
      asked: to check.
      has_environments: environments run on this machine, so that it must be able to make one.

    Raises:
      UsageError: settings that can't stand together, an environment that can't exist or that the agent can't play, a
        token or certificate that can't be read.
    """
    asked = _with_spec(asked, must_be_known=has_environments)
    on_cpu = config_lib.override(
        asked.config, presets.cpu_values(asked.preset, asked.config.run.agent, explicit=asked.fixed)
    )
    combinations.check(asked.config, on_cpu)
    if asked.spec is not None:
        combinations.check_environment(
            asked.config, num_players=asked.spec.num_players, is_continuous=asked.spec.is_continuous
        )
    if asked.config.transport.token_file or asked.config.tls.cert_file:
        from seedzero.transport import security  # gRPC

        security.for_server(asked.config.transport.token_file, asked.config.tls)
    return asked


def _with_spec(asked: Request, *, must_be_known: bool) -> Request:
    """Returns the request with the environment's spec, if that can be known here."""
    from seedzero.envs import registry  # numpy and gymnasium, which an early mistake need not wait for

    config = asked.config
    registry.check_id(config.env.id)
    evaluates_here = config.evaluation.every_updates > 0
    try:
        return asked._replace(spec=asked.spec or environment.spec_of(config.env))
    except errors.ConfigError:
        if must_be_known and (config.worker.num > 0 or evaluates_here):
            raise
        return asked


def _resolve(asked: Request) -> tuple[config_lib.Config, list[str]]:
    import jax  # takes a second: everything that can be refused without it has been

    machine = machine_lib.Machine(jax.default_backend(), machine_lib.num_cores(), jax.local_device_count())
    config, notes = machine_lib.resolve(asked.config, preset=asked.preset, explicit=asked.fixed, machine=machine)
    combinations.check(config)
    if asked.spec is not None:
        from seedzero.agents import table

        table.make(config, asked.spec, machine.platform)  # refuses what no network fits
    return config, notes


def resume_command(
    path: pathlib.Path | bucket.Url | str, arguments: parse.Arguments, *, command: Sequence[str] = ("train",)
) -> str:
    """Returns the command line that goes on with this run, for a shell. command: its words without dashes."""
    flags = {**arguments.flags, "run_dir": str(path)}
    flags.pop("supervised", None)  # whoever reads it holds no pipe open
    return shlex.join([*_program(sys.argv), *command, *as_words(flags, arguments.settings)])


def as_words(flags: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    """Returns flags, and settings by their short names, where they have one, as words of a command line."""
    aliases = {name: alias for alias, name in config_lib.ALIASES.items()}
    short = {aliases.get(name, name): value for name, value in settings.items()}
    return [f"--{key}={value}" for key, value in {**flags, **short}.items()]


def _program(argv: Sequence[str]) -> list[str]:
    """Returns the words that call this program: its name where that finds it."""
    name = os.path.basename(argv[0])
    found = shutil.which(name)
    if name.endswith(".py"):
        return [sys.executable, "-m", "seedzero.cli"]
    return [name if found and os.path.realpath(found) == os.path.realpath(argv[0]) else argv[0]]


def _preset_rows() -> str:
    width = max(map(len, presets.PRESETS))
    return "\n".join(f"  {name:<{width}}  {preset.description}" for name, preset in presets.PRESETS.items())


COMMAND = parse.Command(
    summary="Trains an agent: the learner with its accelerator, and local workers beside it.",
    usage="--preset=NAME [--env=ENV] [--run_dir=DIR] [--key=value ...]",
    flags=(
        parse.Flag("preset", "settings that work together; see below", "NAME"),
        parse.Flag(
            "run_dir",
            f"where everything is written; a run that is there goes on (default: a new one in {RUNS}/)",
            "DIR|gs://BUCKET/PATH",
        ),
        parse.Flag("supervised", "save and leave when standard input is closed: for a program that starts this one"),
    ),
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
  seedzero train --run_dir=runs/breakout                               # goes on where that run stopped
  seedzero train --preset=atari --run_dir=gs://BUCKET/breakout         # goes on after the loss of this machine, too

With a bucket everything is written in a local copy (in $SEEDZERO_SCRATCH, or the user's cache directory) and uploaded
with every checkpoint; a checkpoint counts once it is in the bucket.

While it trains, a line shows: time since the start; training steps so far; frames (of emulators, else steps) and
updates a second; mean return of the last 100 training episodes and of the last evaluation; spi: windows trained on for
each step; fill: share of an acting batch that environments fill; age: updates between the acting and the newest
parameters; ETA: time to the nearest budget; saved: update of the newest checkpoint.

It ends at the first budget that is reached. Ctrl-C, SIGTERM and SIGHUP save and leave; a second Ctrl-C leaves at once.
`seedzero config --preset=NAME` lists every setting with its value, unit and help; each is set by
--SECTION.KEY=VALUE.""",
    run=run,
)
