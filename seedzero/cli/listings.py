"""`seedzero agents`, `envs`, `config` and `runs`: list algorithms, families of environments, settings and runs."""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import pathlib
import re
import textwrap
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import metadata
from typing import Any

from seedzero.api import request
from seedzero.cli import output, parse
from seedzero.config import combinations, configs, families, options, presets
from seedzero.core import errors, packages, printable

# Checks the installed packages against seedzero's requirements, which another installation may have broken.
_COMPARE: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def explain(error: ImportError) -> str | None:
    """Explains a failed import, and what to do, if installed packages are outside seedzero's bounds."""
    try:
        required = metadata.requires("seedzero") or []
    except metadata.PackageNotFoundError:  # a clone that nobody installed
        return None
    wrong = misfits(required, _version)
    if not wrong:
        return None
    found = ", ".join(f"{name} {version or 'is missing'} (needed: {bounds})" for name, version, bounds in wrong)
    command = packages.install_command(*(f"{name}{bounds}" for name, _, bounds in wrong))
    return (
        f"installed packages are not those that seedzero needs: {found}; another package may have changed them "
        f"({error}). Give each a virtual environment of its own, or install them again: {command}"
    )


def misfits(required: Iterable[str], version_of: Callable[[str], str | None]) -> list[tuple[str, str | None, str]]:
    """Returns (name, installed version or None, bounds) of each requirement that is not met.

    required: as in a wheel's metadata. Extras are ignored, and so are bounds that are not comparisons.
    """
    found = {}
    for requirement in required:
        match = re.match(r"([\w.-]+)\s*(?:\[.*?\])?\s*\(?([^;)]*)\)?\s*(;.*)?$", requirement)
        if match is None or match[3]:
            continue
        name, bounds = match[1], match[2].strip()
        version = version_of(name)
        if version is None or not _meets(version, bounds):
            found[name] = (name, version, bounds)
    return list(found.values())


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _meets(version: str, bounds: str) -> bool:
    parts = re.findall(r"(>=|<=|==|!=|>|<)\s*([\d.]+)", bounds)
    return all(_COMPARE[sign](*_padded(version, bound)) for sign, bound in parts)


def _padded(*versions: str) -> list[tuple[int, ...]]:
    """Returns the leading numbers of versions, filled with zeros to one length."""
    numbers = [[int(part) for part in re.match(r"[\d.]*", text)[0].split(".") if part] for text in versions]  # type: ignore[index]
    return list(zip(*itertools.zip_longest(*numbers, fillvalue=0), strict=True))


_INDENT = " " * 4


def agents(arguments: parse.Arguments) -> int:
    """Prints every agent; returns the exit code."""
    default, *_ = configs.agent_names()
    for name in configs.agent_names():
        settings: options.AgentSection = getattr(configs.Config(), name)
        output.show(f"{name}{' (the default)' if name == default else ''}: {settings.SUMMARY}")
        data = "a replay" if settings.SAMPLES else "only its newest steps"
        plays = f"plays {_plays(settings)}; learns from {data}"
        own = ", ".join(preset for preset in presets.PRESETS if preset in presets.PARTS[name])
        for text in (plays, f"has settings of its own in the presets {own}"):
            listed = textwrap.fill(text, parse.WIDTH - len(_INDENT), break_on_hyphens=False)
            output.show(textwrap.indent(listed, _INDENT))
    output.show(
        "\nseedzero train --agent=NAME ...; seedzero config --preset=PRESET --agent=NAME lists an agent's settings"
        "\nYour own agent is --agent=MODULE:OBJECT"
    )
    return 0


def _plays(settings: options.AgentSection) -> str:
    kinds = (("discrete", settings.PLAYS_DISCRETE), ("continuous", settings.PLAYS_CONTINUOUS))
    actions = " or ".join(kind for kind, is_played in kinds if is_played)
    games = ", games of one or two players" if settings.MAX_PLAYERS > 1 else ""
    if settings.PLAYS_SEATS and settings.PLAYS_DISCRETE:
        games += ", games of hidden information"
    return f"{actions} actions{games}"


def envs(arguments: parse.Arguments) -> int:
    """Prints every family; returns the exit code."""
    for family in families.LISTED:
        for offer in family.offers:
            output.show(textwrap.fill(f"{family.form}: {offer.summary}", parse.WIDTH, subsequent_indent=_INDENT))
            output.show(f"{_INDENT}{offer.state}")
            print(f"{_INDENT}seedzero train --env={offer.example}")
    output.show("\nWorkers on other machines need the packages there; seedzero check-env ENV shows an environment.")
    return 0


def config(arguments: parse.Arguments) -> int:
    """Prints the settings of a preset, or of the one that suits an environment; returns the exit code.

    Raises ConfigError for wrong or impossible ones.
    """
    if not ("preset" in arguments.flags or "env.id" in arguments.settings):
        output.show(_USE)
        return 0
    with output.others_aside():
        asked = request.make(arguments.flags, arguments.settings)
    if asked.refused is not None:
        raise asked.refused
    if "env.id" in arguments.settings:
        from seedzero.envs import registry

        registry.check_id(asked.config.env.id)
    implied, agent = asked.config, asked.config.run.agent
    if asked.shown is not None:
        ending = presets.default_end(
            implied, explicit=asked.given.keys(), reward_threshold=asked.shown.reward_threshold
        )
        implied, _ = combinations.imply_by_environment(
            configs.override(implied, ending), spec=asked.shown.spec, explicit=asked.given.keys()
        )
    on_cpu = presets.cpu_values(asked.preset, agent, explicit=asked.fixed)
    output.show(f"# preset {asked.preset}, agent {agent}: {presets.find(asked.preset).description}")
    for note in asked.notes:
        output.show(f"# {note}")
    print("# *: a run directory keeps it; all others may change when a run resumes")
    if on_cpu:
        output.show("# values for an accelerator; where another one holds on a CPU, it stands beside it")
    groups, num_hidden = _groups(implied, asked.given.keys(), is_full=arguments.switch("advanced"))
    for heading, values in groups.items():
        print(f"\n# {heading}")
        section = ""
        for name, value in values.items():
            if name.partition(".")[0] != section and heading != options.START:
                section = name.partition(".")[0]
                print(f"\n[{section}]")
            output.show(_entry(name, value, on_cpu.get(name), configs.fields(type(implied))[name].metadata))
    if num_hidden:
        output.show(f"\n# {num_hidden} more, advanced or {_OTHERS}: --advanced lists them, too")
    combinations.check(implied, configs.override(implied, on_cpu))
    return 0


_OTHERS = "of other environments, leagues, several hosts, TLS and buckets"
_USE = """seedzero config lists the settings that a run would have, with values, units and meanings; it trains nothing.
  seedzero config --env=gym:CartPole-v1          of the preset that suits an environment; it says why
  seedzero config --preset=atari --agent=ppo     of a preset; `seedzero train --help` lists them
What to change first stands first ("start here"), then the usual settings; --advanced adds all others.
Each is set by --SECTION.KEY=VALUE, here to see what follows from it, and in `seedzero train`."""


def _groups(
    config: configs.Config, given: Collection[str], *, is_full: bool
) -> tuple[dict[str, dict[str, options.Value]], int]:
    """Returns the values to list, by heading, and the number of those left out, unless is_full."""
    groups: dict[str, dict[str, options.Value]] = {
        mark: {} for mark in (options.START, options.USUAL, options.ADVANCED, _OTHERS)
    }
    for name, value in (all_values := configs.flatten(config)).items():
        if configs.is_read(name, config):
            mark = configs.mark(name, type(config)) if configs.applies(name, all_values) else _OTHERS
            is_given = name in given and mark != options.START
            groups[options.USUAL if is_given else mark][name] = value
    left_out = () if is_full else (options.ADVANCED, _OTHERS)
    num_hidden = sum(len(groups.pop(mark)) for mark in left_out)
    return {mark: values for mark, values in groups.items() if values}, num_hidden


def _entry(name: str, value: options.Value, on_cpu: options.Value | None, metadata: Mapping[str, Any]) -> str:
    """Returns a setting as `--name=value unit`, with its meaning below."""
    cpu = "" if on_cpu is None else f"  (on a CPU: {_text(on_cpu)})"
    unit = f"  {metadata['unit']}" if metadata["unit"] else ""
    choices = f" [{' | '.join(metadata['choices'])}]" if metadata["choices"] else ""
    help_text = textwrap.indent(textwrap.fill(metadata["help"] + choices, parse.WIDTH - 6), " " * 6)
    mark = "" if metadata["resumable"] else "  *"
    return f"  {configs.flag(name)}={_text(value)}{unit}{cpu}{mark}\n{help_text}"


def _text(value: options.Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def runs(arguments: parse.Arguments) -> int:
    """Prints the runs below a directory, the newest first; returns the exit code."""
    from seedzero.interfaces.page import catalogue, summaries

    root = pathlib.Path(arguments.words[0] if arguments.words else "runs")
    if not root.is_dir():
        raise errors.UsageError(f"{root}: there is no such directory; give a run, or a directory of runs")
    found = sorted(
        (_run(root / name, summaries.describe(root / name, name)) for name in catalogue.find(root)),
        key=lambda row: row["changed"],
        reverse=True,
    )
    if arguments.switch("json"):
        output.print_json(found)
    elif found:
        output.show(output.table([_shown_run(row) for row in found], num_left=4))
    else:
        output.show(f"no run is below {root}")
    return 0


def _run(path: pathlib.Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    names = ("run", "environment", "agent", "state", "env_steps", "best_evaluation", "last_evaluation", "changed")
    files = (pathlib.Path(folder, name) for folder, _, inside in os.walk(path) for name in inside)
    num_bytes = 0
    for file in files:
        with contextlib.suppress(OSError):  # deleted meanwhile
            num_bytes += file.lstat().st_size
    return {**{name: facts[name] for name in names}, "bytes": num_bytes}


def _shown_run(row: Mapping[str, Any]) -> dict[str, object]:
    best, last = (None if (x := row[f"{name}_evaluation"]) is None else f"{x:.4g}" for name in ("best", "last"))
    return {
        **{name: row[name] for name in ("run", "environment", "agent", "state")},
        "steps": None if row["env_steps"] is None else f"{row['env_steps']:,.0f}",
        "best": best,
        "last": last,
        "age": printable.lasting(max(0.0, time.time() - row["changed"])),
        "size": f"{row['bytes'] / 2**20:,.1f} MiB",
    }


AGENTS = parse.Command("Lists the agents: their games, their data, and tasks that suit them.", "", {}, agents)
ENVS = parse.Command(
    "Lists the families of environments: installed or how to install, with an example of each.", "", {}, envs
)
RUNS = parse.Command(
    summary="Lists runs, the newest first: environment, agent, state, steps, scores, age and size.",
    usage="[DIR] [--json]",
    flags={"json": "print one line of JSON: changed in seconds since 1970, sizes in bytes"},
    run=runs,
    more_words=1,
    details="""
DIR is a directory of runs, or one run (default: runs). best and last are the scores of evaluations while training, age
is the time since the last row of metrics. `seedzero page --run_dir=DIR` shows the same on a page.""",
)
CONFIG = parse.Command(
    summary="Lists the settings of a preset, or for an environment, with values, units and help; what matters first.",
    usage="--env=ENV|--preset=NAME [--agent=NAME] [--advanced] [--SECTION.KEY=VALUE ...]",
    flags={
        parse.PRESET: f"one of {', '.join(presets.PRESETS)}; or a file. Default: the one that suits --env",
        "advanced": f"also list advanced settings, and those {_OTHERS}",
    },
    takes_settings=True,
    run=config,
)
