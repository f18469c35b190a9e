"""A request to train: checks preset, settings and environment as far as possible before JAX is loaded."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Set
from typing import NamedTuple

from seedzero.api import environment
from seedzero.config import combinations, configs, families, machines, options, presets
from seedzero.core import errors, opponents, types
from seedzero.storage.checkpoints import run_dirs

TRUST = "trust_run_dir"
"""The flag with which a user consents to the code that a run directory names."""
_FILES = ("transport.token_file", "serve.token_file", "tls.cert_file", "tls.key_file")
"""Settings of a run that name files next to it."""
_SHOWING = {"env.id", "env.kwargs", "env.wrappers", "transport.step_seconds"}
"""Settings needed to ask an environment for its spec before the preset is known."""


class Request(NamedTuple):
    """A request to train, from a command line or a call."""

    preset: str  # the preset's name
    given: Mapping[str, str]  # what the user set, as text by SECTION.KEY
    # the preset's values, replaced by the user's, and what both imply; the devices' are still open
    config: configs.Config
    notes: tuple[str, ...]  # one sentence for each value that was implied
    shown: environment.Shown | None = None  # reported by the environment; None: not known yet
    refused: errors.ConfigError | None = None  # why the environment cannot be made here, if that was tried

    @property
    def spec(self) -> types.EnvSpec | None:
        """The environment's spec, if known."""
        return self.shown.spec if self.shown else None

    @property
    def fixed(self) -> Set[str]:
        """Settings that the machine does not change: the user's, and the network for images if there are no images."""
        shows_images = self.spec is None or types.shown(self.spec.arrays) == "images"
        return self.given.keys() | (set() if shows_images else {"network.kind"})


def known(agent: str, run_dir: str | None) -> type[configs.Config]:
    """Returns the configuration class of an agent; with "", that of the run in a directory, which is resumed.

    Only the module of a named agent is imported, which may raise ConfigError.
    """
    if agent or not run_dir or not os.path.exists(os.path.join(run_dir, "config.json")):
        return configs.kind_of(agent)
    return type(run_dirs.read_resumable(run_dir).config)


def make(flags: Mapping[str, str], settings: Mapping[str, str], *, is_here: bool = True) -> Request:
    """Returns the request that a command line makes.

    If the run directory holds a run, its preset and settings are used unless the command line names a preset or an
    environment. is_here: whether the learner runs on this machine. Raises UsageError for mistakes, if there is nothing
    to train on, and for code of a run directory without consent.
    """
    given = dict(settings)
    notes: list[str] = []
    shown, refused, asked_with = None, None, None
    preset, env = flags.get("preset"), settings.get("env.id")
    if preset is None and env is None:
        trusted = bool(options.parse(TRUST, flags.get(TRUST, "false"), bool))
        preset, given = _saved(flags["run_dir"], settings, trusted=trusted, is_here=is_here)
    elif preset is None:
        from seedzero.envs import registry  # numpy and gymnasium, which an early mistake need not wait for

        if env in presets.PRESETS and env != presets.find(str(env)).values["env.id"]:
            raise errors.ConfigError(f"--env={env} names a preset, not an environment; give --preset={env}")
        family = families.of(str(env))
        asked = {name: settings[name] for name in _SHOWING & settings.keys()}
        plain = configs.override(configs.Config(), asked)
        has_sides = family.prefix == "football" and bool(registry.seated_by(plain.env))
        if family.make and (not family.presets or presets.SEATS in family.presets):
            asked_with = plain.env
            try:
                shown = environment.show(asked_with, limit_seconds=plain.transport.limit_seconds)
            except errors.ConfigError as error:  # `check_early` raises it unless only workers need the environment
                refused = error
        if shown is not None:
            from seedzero.envs import check

            notes += check.channels_first(shown.spec, wraps="wrappers" in family.takes)
        in_turn = "run.agent" in settings and _in_turn(shown, _with_agent(settings["run.agent"]))
        spec = shown.spec if shown else None
        preset, reason = presets.choose(str(env), spec, in_turn=in_turn, has_sides=has_sides)
        notes.append(f"--env={env}{reason}: preset {preset}; or give --preset=NAME")
    agent = given.get("run.agent") or presets.agent_of(preset)
    base, part = presets.get(preset, agent), presets.part(preset, agent)
    # the way a file with your own agent is given
    has_own = any(not hasattr(configs.Config, key.partition(".")[0]) for key in given)
    if not part.values and not has_own:
        notes.append(f"preset {preset} has no part for agent {agent}: its defaults hold")
    configs.check_read(given, agent)
    if given.get(run_dirs.ORIGIN_SETTING) and is_here:
        given[run_dirs.ORIGIN_SETTING] = run_dirs.parse_origin(given[run_dirs.ORIGIN_SETTING]).text
    config, implied = combinations.imply(
        configs.override(base, given), preset_env=base.env.id, explicit=given.keys(), elsewhere=part.elsewhere
    )
    if settings.get(run_dirs.ORIGIN_SETTING) and is_here:
        _check_origin(config, flags, given)
    if env is not None or "preset" in flags:
        from seedzero.envs import registry

        notes = [*filter(None, [registry.advice(config.env.id)]), *notes]
    # With other settings, such as a limit of steps that is observed, the environment may look different.
    found = (shown, refused) if config.env == asked_with else (None, None)
    return Request(preset, given, config, (*notes, *implied), *found)


def _saved(run_dir: str, settings: Mapping[str, str], *, trusted: bool, is_here: bool) -> tuple[str, dict[str, str]]:
    """Returns preset and settings of the run in a directory, with new settings replacing its own."""
    from seedzero.storage.bucket import run_copy  # numpy, which an early mistake need not wait for
    from seedzero.storage.checkpoints import own_runs

    if "://" not in run_dir and not os.path.exists(os.path.join(run_dir, run_dirs.CONFIG_FILE)):
        missing = "it holds no run" if os.path.exists(run_dir) else "there is no such directory"
        raise errors.ResumeError(
            f"{run_dir} is not a run directory: {missing}; for a new run give --env=ENV or --preset=NAME too"
        )
    with run_copy.local(run_dir) as path:
        saved = run_dirs.with_moved_code(run_dirs.read_resumable(path), settings)
    own_runs.check_consent(run_dir, saved, trusted=trusted, asked=settings, is_here=is_here)
    agent = settings.get("run.agent", saved.config.run.agent)
    if agent != saved.config.run.agent:
        raise errors.ResumeError(
            f"{run_dir} was trained with --agent={saved.config.run.agent}, not --agent={agent}; leave --agent out, or "
            "give another --run_dir"
        )
    for key in _FILES:
        file = saved.given.get(key)
        if file and key not in settings and not os.path.exists(file):
            flag = configs.flag(key)
            raise errors.ResumeError(
                f"the run in {run_dir} had {flag}={file}, which is not there; give {flag}=FILE, or {flag}= for none"
            )
    if saved.preset not in presets.PRESETS:
        raise errors.ResumeError(
            f"{run_dir} began with --preset={saved.preset}, which this version of seedzero lacks; resume it with the "
            "version that began it"
        )
    return saved.preset, {**saved.given, **settings}


def _check_origin(config: configs.Config, flags: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Rejects a run that a new run cannot start from, or whose code the user has not consented to.

    A resumed run has its parameters already, and the other run may be gone.
    """
    from seedzero.storage.bucket import run_copy  # numpy, which an early mistake need not wait for
    from seedzero.storage.checkpoints import own_runs, saved_files

    def steps(run_dir: str) -> list[int]:
        with run_copy.local(run_dir, run_copy.Copy.manifests) as path:
            return saved_files.finished(path / "checkpoints" / saved_files.STEPS)

    with contextlib.suppress(errors.ResumeError):  # the bucket has no run yet
        if flags.get("run_dir") and steps(flags["run_dir"]):
            return
    origin = run_dirs.parse_origin(config.run.init_from)
    if "://" not in origin.place and not steps(origin.place):
        missing = "it has no checkpoint yet" if os.path.isdir(origin.place) else "there is no such directory"
        raise errors.ResumeError(
            f"--init_from={origin.text}: {missing}; give RUN or RUN:PLAYER, where RUN is gs://BUCKET/PATH or the "
            "directory of a run with a checkpoint"
        )
    with run_copy.local(origin.place) as path:
        saved = run_dirs.read_saved(path)
    run_dirs.check_origin_agent(origin, saved.config, config)
    trusted = bool(options.parse(TRUST, flags.get(TRUST, "false"), bool))
    own_runs.check_consent(origin.place, saved, trusted=trusted, asked=given, makes_environments=False)


def check_early(asked: Request, *, has_environments: bool = True) -> Request:
    """Rejects all mistakes that show before JAX is loaded and the device known; returns the request with spec and end.

    has_environments: whether environments run on this machine, which then must be able to make one. Raises UsageError
    for settings that exclude each other, an impossible or unplayable environment, or an unreadable token or
    certificate.
    """
    asked = _with_spec(asked, must_be_known=has_environments)
    threshold = asked.shown.reward_threshold if asked.shown else None
    ending = presets.default_end(asked.config, explicit=asked.given.keys(), reward_threshold=threshold)
    asked = asked._replace(config=configs.override(asked.config, ending))
    config, spec = asked.config, asked.spec
    on_cpu = presets.cpu_values(asked.preset, config.run.agent, explicit=asked.fixed)
    combinations.check(config, configs.override(config, on_cpu))
    if spec is not None:
        implied = functools.partial(combinations.imply_by_environment, spec=spec, explicit=asked.given.keys())
        config, notes = implied(config)
        asked = asked._replace(config=config, notes=(*asked.notes, *notes))
        variants = config, implied(configs.override(config, on_cpu))[0]
        combinations.check_environment(*variants, spec=spec, seated_by=asked.shown.seated_by if asked.shown else "")
        if "league" in config.agent.SECTIONS and config.league.bots:
            from seedzero.envs import registry

            registry.check_bots(config.env.id, config.league.bots)
    if config.transport.token_file or config.tls.cert_file:
        from seedzero.transport import security  # gRPC

        security.for_server(config.transport.token_file, config.tls)
    return asked


def _with_spec(asked: Request, *, must_be_known: bool) -> Request:
    """Returns the request with the environment's spec if it is known here."""
    from seedzero.envs import registry  # numpy and gymnasium, which an early mistake need not wait for

    config = asked.config
    registry.check_id(config.env.id)
    evaluates_here, limit_seconds = config.evaluation.every_updates > 0, config.transport.limit_seconds
    try:
        if asked.refused is not None:
            raise asked.refused
        shown = asked.shown or environment.show(config.env, limit_seconds=limit_seconds)
        if _in_turn(shown, config):
            config = configs.override(config, {"env.by_turns": True})
            note = f"--env.by_turns=true: agent {config.run.agent} plays {config.env.id} in turn, not by seats"
            asked = asked._replace(config=config, notes=(*asked.notes, note))
            shown = environment.show(config.env, limit_seconds=limit_seconds)
        kept: list[str] = []
        if shown is not None and shown.statistics:
            from seedzero.envs import check

            kept += check.statistics(shown.statistics)
        return asked._replace(shown=shown, notes=(*asked.notes, *kept))
    except errors.ConfigError as error:
        if must_be_known and config.worker.num > 0:
            raise
        if must_be_known and evaluates_here:
            off = "evaluation runs on this machine; --evaluation.every_updates=0 turns it off"
            raise errors.ConfigError(f"{error}; {off}") from None
        return asked


def _with_agent(agent: str) -> configs.Config:
    return configs.override(configs.kind_of(agent)(), {"run.agent": agent})


def _in_turn(shown: environment.Shown | None, config: configs.Config) -> bool:
    """Returns whether chance alone makes the game's rows seats, and the agent plays it in turn instead."""
    return shown is not None and shown.seated_by == opponents.CHANCE and not config.agent.PLAYS_SEATS


def resolve(asked: Request) -> tuple[configs.Config, list[str]]:
    """Returns the configuration with all values resolved for this machine, and notes. This loads JAX.

    Raises ConfigError if no network fits, devices cannot divide the numbers, or as `compilation_cache.platform`.
    """
    import jax  # loading takes a second; everything that can be refused without JAX has been

    from seedzero.device import compilation_cache

    machine = machines.Machine(compilation_cache.platform(), machines.num_cores(), jax.local_device_count())
    config, notes = machines.resolve(
        asked.config, preset=asked.preset, explicit=asked.fixed, machine=machine, spec=asked.spec
    )
    combinations.check(config)
    if asked.spec is not None:
        from seedzero.agents import agent_table

        agent_table.make(config, asked.spec, machine.platform)  # rejects what no network can take
    return config, notes
