"""Reads a command line, with `--key=value`, `--key value` and bare switches, and prints help."""

from __future__ import annotations

import dataclasses
import functools
import textwrap
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from seedzero.api import request
from seedzero.config import configs, options, own_agents, page_options, presets
from seedzero.core import errors

WIDTH = 110
MOST_LETTERS = 28
"""Of a flag that help shows beside its meaning; the meaning of a longer one begins on the next line."""
PRESET = "preset=NAME|FILE"
"""The flag of commands that also take a preset from a file."""


RUN_DIR = {"run_dir=DIR|gs://BUCKET/PATH": "directory of the training run; DIR without the flag means the same"}
PAGE_ROOT = {
    "page.root=PATH": "path of the page behind a proxy, such as Jupyter's /proxy/8000; or "
    "its whole address, https://NAME/proxy/8000, if NAME is another "
    "machine's"
}
TRUST = {
    "trust_run_dir": "import and run the Python modules that the run directory names. They may do "
    "anything here, so trust the directory's maker; runs that you trained here do not need this"
}


def of_fields(fields: Mapping[str, dataclasses.Field[Any]]) -> dict[str, str]:
    """Returns flags for fields whose metadata have help and a placeholder."""
    return {_flag(name, field.metadata["placeholder"]): field.metadata["help"] for name, field in fields.items()}


def _flag(name: str, placeholder: str) -> str:
    return f"{name}={placeholder}" if placeholder else name


@dataclasses.dataclass(frozen=True)
class Arguments:
    """A parsed command line."""

    words: tuple[str, ...]  # without dashes, in order
    flags: Mapping[str, str]  # values of the command's own flags as given; switches are "true" or "false"
    settings: Mapping[str, str]  # values of configuration settings as given, by SECTION.KEY
    rest: tuple[str, ...] = ()  # words after --, for another command
    of_file: Set[str] = frozenset()  # names of settings that only a preset's file gives

    def switch(self, name: str) -> bool:
        return bool(options.parse(name, self.flags.get(name, "false"), bool))

    def integer(self, name: str, *, minimum: int, maximum: int = options.LARGEST) -> int | None:
        """Returns a flag's whole number, or None without the flag. Raises UsageError for anything else."""
        if name not in self.flags:
            return None
        number = int(options.parse(name, self.flags[name], int))
        if number < minimum:
            raise errors.UsageError(f"--{name}={number}: expected at least {minimum}")
        if number > maximum:
            raise errors.UsageError(f"--{name}={number}: expected at most {maximum}")
        return number

    def port(self, name: str) -> int | None:
        """Returns a flag's port, 0 for any free one, or None without the flag. Raises UsageError for anything else."""
        return self.integer(name, minimum=0, maximum=page_options.LARGEST_PORT)


@dataclasses.dataclass(frozen=True)
class Command:
    summary: str  # one line in the list of commands
    usage: str  # what follows `seedzero COMMAND`
    flags: Mapping[str, str]  # its own flags as NAME=PLACEHOLDER, switches as NAME -> help
    run: Callable[[Arguments], int]  # returns the exit code
    required: tuple[str, ...] = ()  # names of flags
    details: str = ""  # more help, examples
    words: tuple[tuple[str, ...], ...] = ()  # the choices of each word; no choices allow any; empty: it takes no words
    more_words: int = 0  # number of any further words that it may take
    takes_settings: bool = False  # whether every SECTION.KEY of the configuration is a flag too
    takes_lists: bool = False  # whether settings may have lists of values, which the command checks itself
    takes_rest: bool = False  # whether words after -- are left to another command


def read(name: str, command: Command, args: Sequence[str]) -> Arguments:
    """Returns a command's arguments. Raises UsageError for an unknown flag (with the nearest) or a missing value."""
    from seedzero.config import command_line  # absl, which `seedzero --version` need not wait for

    flags = {flag.partition("=")[0]: flag for flag in command.flags}
    end = args.index("--") if command.takes_rest and "--" in args else len(args)
    args, rest = command_line.with_files(args[:end]), args[end + 1 :]
    is_file = PRESET in command.flags and presets.is_file(last(args, "preset"))
    file = presets.read_file(last(args, "preset")) if is_file else presets.PresetFile("", {})
    kind = _kind([*args, *rest], file) if command.takes_settings else configs.Config
    settings = configs.fields(kind) if command.takes_settings else {}
    aliases = {alias: key for alias, key in configs.ALIASES.items() if command.takes_settings and alias not in flags}
    checks = {key: functools.partial(configs.read_value, key, field) for key, field in settings.items()}
    switches = {flag for flag in command.flags if "=" not in flag}
    switches |= {key for key, field in settings.items() if isinstance(field.default, bool)}
    known = command_line.define(
        {**dict.fromkeys(flags), **(dict.fromkeys(checks) if command.takes_lists else checks)}, switches
    )
    agent = last(args, "agent") or configs.agent_names()[0]
    everything = configs.LISTED if command.takes_settings else f"`seedzero {name} --help` lists all flags"
    words, given = command_line.read(
        known,
        args,
        lambda key: configs.suggestion(key.lstrip("-"), [*flags, *aliases, *settings], agent, everything),
        aliases,
    )
    given |= {"preset": file.preset} if is_file else {}
    is_run = "run_dir" in flags and not command.takes_settings and "run_dir" not in given
    if is_run and len(words) - len(command.words) in {1, command.more_words + 1} - {command.more_words}:
        given["run_dir"] = words.pop()
    _check_words(name, command, words)
    for key in command.required:
        if key not in given:
            raise errors.UsageError(f"--{flags[key]} is missing: {command.flags[flags[key]]}")
        if not given[key]:
            placeholder = flags[key].partition("=")[2]
            raise errors.UsageError(f"--{key}= is empty; expected {placeholder}: {command.flags[flags[key]]}")
    named = {key: value for key, value in given.items() if key in settings}
    return Arguments(
        words=tuple(words),
        flags={key: value for key, value in given.items() if key in flags},
        settings=file.settings | named,
        rest=tuple(rest),
        of_file=file.settings.keys() - named.keys(),
    )


def _kind(args: Sequence[str], file: presets.PresetFile) -> type[configs.Config]:
    """Returns the class of the command line's settings; with several agents, that of the first own one."""
    agents = (last(args, "agent") or last(args, "run.agent") or file.settings.get("run.agent", "")).split(",")
    first = next(filter(own_agents.is_own, agents), agents[0])
    return request.known(first, last(args, "run_dir"))


def last(args: Sequence[str], key: str) -> str:
    """Returns the last value of a flag, or ""."""
    found = [
        follows if arg == f"--{key}" else arg.partition("=")[2]
        for arg, follows in zip(args, [*args[1:], ""], strict=False)
        if arg.partition("=")[0] == f"--{key}"
    ]
    return found[-1] if found else ""


def _check_words(name: str, command: Command, words: Sequence[str]) -> None:
    if len(words) > (most := len(command.words) + command.more_words):
        extra = words[most]
        raise errors.UsageError(f"unexpected word {extra!r}; usage: seedzero {name} {command.usage}")
    for position, choices in enumerate(command.words):
        listing = ", ".join(choices)
        if position >= len(words) and not choices:
            word = command.usage.split()[position]
            raise errors.UsageError(f"{word} is missing; usage: seedzero {name} {command.usage}")
        if position >= len(words):
            raise errors.UsageError(f"seedzero {name} takes one of: {listing}")
        if choices and words[position] not in choices:
            raise errors.UsageError(f"seedzero {name} {words[position]}: unknown; choose one of: {listing}")


def help_text(name: str, command: Command, *, full: bool = False, agent: str = "") -> str:
    """Returns a command's help.

    full: with every setting instead of those with a short name and those to start with. agent: whose; "": the default.
    """
    lines = [f"usage: seedzero {name} {command.usage}", "", textwrap.fill(command.summary, WIDTH)]
    groups = _settings(agent or configs.agent_names()[0], full=full) if command.takes_settings else {}
    for heading, flags in {"": command.flags, **groups}.items():
        width = max((len(flag) for flag in flags if len(flag) <= MOST_LETTERS), default=MOST_LETTERS)
        lines += [heading and f"\n{heading}:"] if flags else []
        lines += [_row(f"  --{flag:<{width}}  ", text, width + 6) for flag, text in flags.items()]
    if command.details:
        lines += ["", command.details.strip("\n")]
    return "\n".join(lines)


def _settings(agent: str, *, full: bool) -> dict[str, dict[str, str]]:
    """Returns flags by headings, the marks: all settings, or those to start with and those with a short name."""
    kind = configs.kind_of(agent)
    names = {mark: [name for name in configs.fields(kind) if configs.mark(name, kind) == mark] for mark in _MARKS}
    if full:
        return {mark: dict(_setting(kind, name, name) for name in found) for mark, found in names.items()}
    start = [name for name in names[options.START] if configs.is_read(name, agent)]
    listed = (
        "any other setting: `seedzero config --env=ENV` lists them with their values, what matters first; --helpfull "
        "explains all"
    )
    return {
        "settings with a short name": dict(_setting(kind, key, name) for key, name in configs.ALIASES.items()),
        f"{options.START}, for --agent={agent}": dict(_setting(kind, name, name) for name in start),
        f"{options.USUAL} and {options.ADVANCED}": {"SECTION.KEY=VALUE": listed},
    }


_MARKS = (options.START, options.USUAL, options.ADVANCED)
_PLACEHOLDERS = {bool: "", int: "N", float: "X", str: "TEXT"}


def _setting(kind: type[configs.Config], key: str, name: str) -> tuple[str, str]:
    field = configs.fields(kind)[name]
    return _flag(key, _PLACEHOLDERS[type(field.default)]), field.metadata["help"]


def _row(left: str, text: str, width: int) -> str:
    """Returns a flag and its meaning beside it, or below a flag that is wider than the column."""
    indent = " " * width
    lines = textwrap.fill(text, WIDTH, initial_indent=left if len(left) == width else indent, subsequent_indent=indent)
    return lines if len(left) == width else f"{left.rstrip()}\n{lines}"
