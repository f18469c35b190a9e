"""Reads a command line: `--key=value`, `--key value`, bare switches; and prints help."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any

from seedzero.api import request
from seedzero.config import config as configs
from seedzero.config import options, own_agents, preset_files
from seedzero.core import errors

WIDTH = 110
PRESET = "preset=NAME|FILE"
"""The flag of commands that take a preset from a file, too."""


RUN_DIR = {"run_dir=DIR|gs://BUCKET/PATH": "of the training run; DIR alone means the same"}
TRUST = {
    "trust_run_dir": "import and run the modules that the run directory names (environment, agent, network in "
    "Python), which may do anything here: for directories of makers you trust; runs that you trained here need none"
}


def of_fields(fields: Mapping[str, dataclasses.Field[Any]]) -> dict[str, str]:
    """Returns the flags of fields with help and placeholder in their metadata."""
    return {_flag(name, field.metadata["placeholder"]): field.metadata["help"] for name, field in fields.items()}


def _flag(name: str, placeholder: str) -> str:
    return f"{name}={placeholder}" if placeholder else name


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The parsed command line."""

    words: tuple[str, ...]  # without dashes, in order
    flags: Mapping[str, str]  # values of the command's own flags as given; switches "true" or "false"
    settings: Mapping[str, str]  # values of configuration settings as given, by SECTION.KEY
    rest: tuple[str, ...] = ()  # words after --, for another command
    of_file: Set[str] = frozenset()  # names of settings that a preset's file alone gives

    def switch(self, name: str) -> bool:
        return bool(options.parse(name, self.flags.get(name, "false"), bool))

    def integer(self, name: str, *, minimum: int) -> int | None:
        """Returns a flag's whole number of at most 32 bits, None for a missing flag; UsageError for anything else."""
        if name not in self.flags:
            return None
        number = int(options.parse(name, self.flags[name], int))
        if number < minimum:
            raise errors.UsageError(f"--{name}={number}: expected at least {minimum}")
        if number > options.LARGEST:
            raise errors.UsageError(f"--{name}={number}: expected at most {options.LARGEST}")
        return number


@dataclasses.dataclass(frozen=True)
class Command:
    summary: str  # one line for the list of commands
    usage: str  # what follows `seedzero COMMAND`
    flags: Mapping[str, str]  # its own flags as NAME=PLACEHOLDER, switches as NAME -> help
    run: Callable[[Arguments], int]  # returns the exit code
    required: tuple[str, ...] = ()  # names of flags
    details: str = ""  # more help, examples
    words: tuple[tuple[str, ...], ...] = ()  # the choices of each word, no choices: any; empty: it takes none
    more_words: int = 0  # number of any further words that it may take
    takes_settings: bool = False  # whether every SECTION.KEY of the configuration is a flag too
    takes_rest: bool = False  # whether words after -- are left to another command


def read(name: str, command: Command, args: Sequence[str]) -> Arguments:
    """Returns a command's arguments; UsageError for an unknown flag (with the nearest) or a missing value."""
    flags = {flag.partition("=")[0]: flag for flag in command.flags}
    switches = {flag for flag in command.flags if "=" not in flag}
    end = args.index("--") if command.takes_rest and "--" in args else len(args)
    args, rest = [*args[:end]], args[end + 1 :]
    is_file = PRESET in command.flags and preset_files.is_file(_last(args, "preset"))
    file = preset_files.read(_last(args, "preset")) if is_file else preset_files.PresetFile("", {})
    settings = configs.fields(_kind(args, file)) if command.takes_settings else {}
    aliases = configs.ALIASES if command.takes_settings else {}
    switches |= {key for key in [*settings, *aliases] if isinstance(settings[aliases.get(key, key)].default, bool)}
    everything = configs.LISTED if command.takes_settings else f"`seedzero {name} --help` lists all flags"
    words, given = _split(args, switches, known=[*flags, *aliases, *settings], everything=everything)
    given |= {"preset": file.preset} if is_file else {}
    of_run = "run_dir" in flags and not command.takes_settings and not command.more_words
    if of_run and "run_dir" not in given and len(words) == len(command.words) + 1:
        given["run_dir"] = words.pop()
    _check_words(name, command, words)
    for key in command.required:
        if key not in given:
            raise errors.UsageError(f"--{flags[key]} is missing: {command.flags[flags[key]]}")
    for key in command.required:
        if not given[key]:
            placeholder = flags[key].partition("=")[2]
            raise errors.UsageError(f"--{key}= is empty; expected {placeholder}: {command.flags[flags[key]]}")
    named = {aliases.get(key, key): value for key, value in given.items() if key not in flags}
    return Arguments(
        words=tuple(words),
        flags={key: value for key, value in given.items() if key in flags},
        settings=file.settings | named,
        rest=tuple(rest),
        of_file=file.settings.keys() - named.keys(),
    )


def _kind(args: Sequence[str], file: preset_files.PresetFile) -> type[configs.Config]:
    """Returns the class of configurations of the command line's settings; of several agents, the first own one's."""
    agents = (_last(args, "agent") or _last(args, "run.agent") or file.settings.get("run.agent", "")).split(",")
    return request.kind(next(filter(own_agents.is_own, agents), agents[0]), _last(args, "run_dir"))


def _last(args: Sequence[str], key: str) -> str:
    """Returns the last value of a flag; "": there is none."""
    found = [
        follows if arg == f"--{key}" else arg.partition("=")[2]
        for arg, follows in zip(args, [*args[1:], ""], strict=False)
        if arg.partition("=")[0] == f"--{key}"
    ]
    return found[-1] if found else ""


def _split(
    args: Sequence[str], switches: Collection[str], known: Collection[str], everything: str
) -> tuple[list[str], dict[str, str]]:
    """Returns words and values; the last of several values for one key counts.

    everything: says where all that is known is listed.
    """
    words: list[str] = []
    given: dict[str, str] = {}
    rest = list(args)
    while rest:
        arg = rest.pop(0)
        if not arg.startswith("-"):
            words.append(arg)
            continue
        key, has_value, value = arg.removeprefix("--").partition("=")
        if key not in known:
            later = (arg.removeprefix("--agent=") for arg in rest if arg.startswith("--agent="))
            agent = given.get("agent") or next(later, configs.agent_names()[0])
            nearest = configs.suggestion(key.lstrip("-"), known, agent, everything)
            raise errors.UsageError(f"unknown setting {arg}{nearest}")
        if key in switches and not has_value:
            value = rest.pop(0) if rest and rest[0].lower() in options.BOOLEANS else "true"
        elif not has_value:
            if not rest or rest[0].startswith("--"):
                raise errors.UsageError(f"--{key} has no value; write --{key}=VALUE")
            value = rest.pop(0)
        given.pop(key, None)
        given[key] = value
    return words, given


def _check_words(name: str, command: Command, words: Sequence[str]) -> None:
    if len(words) > (most := len(command.words) + command.more_words):
        extra = words[most]
        raise errors.UsageError(f"unexpected word {extra!r}; usage: seedzero {name} {command.usage}")
    for position, choices in enumerate(command.words):
        listing = ", ".join(choices)
        if position >= len(words) and not choices:
            raise errors.UsageError(f"a word is missing; usage: seedzero {name} {command.usage}")
        if position >= len(words):
            raise errors.UsageError(f"seedzero {name} takes one of: {listing}")
        if choices and words[position] not in choices:
            raise errors.UsageError(f"seedzero {name} {words[position]}: unknown; choose one of: {listing}")


def help_text(name: str, command: Command) -> str:
    lines = [f"usage: seedzero {name} {command.usage}", "", textwrap.fill(command.summary, WIDTH)]
    flags = {**command.flags, **(_short_settings() if command.takes_settings else {})}
    if flags:
        width = max(map(len, flags))
        lines += ["", *(_row(f"  --{flag:<{width}}  ", text) for flag, text in flags.items())]
    if command.details:
        lines += ["", command.details.strip("\n")]
    return "\n".join(lines)


def _short_settings() -> dict[str, str]:
    """Returns flags for the settings with a short name, and one line for all others."""
    fields, placeholders = configs.fields(), {bool: "", int: "N", float: "X", str: "TEXT"}
    return {
        _flag(alias, placeholders[type(fields[name].default)]): fields[name].metadata["help"]
        for alias, name in configs.ALIASES.items()
    } | {"SECTION.KEY=VALUE": "any other setting; `seedzero config --preset=NAME` lists them all"}


def _row(left: str, text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=left, subsequent_indent=" " * len(left))
