"""The options of a worker's process, with flags made from the fields.

Only this file writes and reads its command line.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from seedzero.config import configs, options, sections
from seedzero.core import errors

ROLES = ("any", "train", "evaluate")
KEY = "SEEDZERO_WORKER_KEY"
"""Variable with the key by which a learner recognizes the workers that it started, whatever their names."""

UNLIMITED_ENVS = 2**16
"""Of a worker whose user gave no number."""


def _option(default: bool | int | float | str, help_text: str, placeholder: str = "", **more: Any) -> Any:
    """Returns a field. placeholder: its value in the help. more: minimum, maximum and choices."""
    return dataclasses.field(default=default, metadata=dict(help=help_text, placeholder=placeholder, **more))


@dataclasses.dataclass(frozen=True)
class WorkerOptions:
    server: str = _option(
        "", "address of the learner, as it prints it, or of several learner hosts: A,B", "HOST:PORT|unix:PATH"
    )
    token_file: str = _option("", "file with the learner's token", "FILE")
    ca_file: str = _option(
        "",
        "PEM file with the authority's certificate that signed the "
        "learner's, or the word system for public authorities (default: "
        "plain text)",
        "FILE",
    )
    server_name: str = _option(
        "", "name that the learner's certificate is for (default: the host in --server)", "NAME"
    )
    num_envs: int = _option(
        UNLIMITED_ENVS,
        "largest number of environments here (default: as many as the learner asks for)",
        "N",
        minimum=1,
    )
    threads: int = _option(
        0,
        "Atari, EnvPool: threads (default: one for each core; a container knows only the whole machine's)",
        "N",
        minimum=0,
    )
    role: str = _option("any", "purpose of the environments (default: any)", "|".join(ROLES), choices=ROLES)
    worker_id: str = _option("", "name in reports (default: host and process id)", "NAME")
    close_seconds: float = _option(
        sections.WorkerConfig().close_seconds,
        "when the worker ends, environments have this long to close",
        "X",
        minimum=0.1,
        maximum=options.LONGEST_WAIT,
    )
    verbosity: int = _option(
        0, "messages to print: -2 errors, -1 warnings, too, 0 what it does, 1 debugging", "N", minimum=-2
    )
    supervised: bool = _option(False, "end when standard input is closed; for a program that starts this one")


FLAGS: Mapping[str, dataclasses.Field[Any]] = {
    f"tls.{field.name}" if field.name in ("ca_file", "server_name") else field.name: field
    for field in dataclasses.fields(WorkerOptions)
}
"""Every field by the name of its flag."""


def of_learner(config: configs.Config) -> WorkerOptions:
    return WorkerOptions(threads=config.worker.threads, close_seconds=config.worker.close_seconds)


def command(options: WorkerOptions, *, server: str, worker_id: str, role: str, token_file: str = "") -> list[str]:
    """Returns a worker's command line for a supervising program. The arguments replace the options."""
    options = dataclasses.replace(
        options, server=server, worker_id=worker_id, role=role, token_file=token_file, supervised=True
    )
    values = {name: getattr(options, field.name) for name, field in FLAGS.items()}
    words = [f"--{name}={value}" for name, value in values.items() if value != FLAGS[name].default]
    return [sys.executable, "-m", "seedzero.worker", *words]


def read(words: Sequence[str]) -> WorkerOptions:
    """Reads the options from a worker's command line. Raises UsageError for mistakes."""
    from seedzero.config import command_line  # absl, which a learner's own start need not wait for

    switches = [name for name, field in FLAGS.items() if field.default is False]
    rest, given = command_line.read(command_line.define(dict.fromkeys(FLAGS), switches), words, _hint)
    if rest:
        raise errors.UsageError(f"unexpected word {rest[0]!r}; see `seedzero worker --help`")
    if "server" not in given:
        raise errors.UsageError(f"--server={FLAGS['server'].metadata['placeholder']} is missing")
    return parse(given)


def _hint(key: str) -> str:
    """Ends a message about an unknown flag."""
    return "; see `seedzero worker --help`"


def parse(texts: Mapping[str, str]) -> WorkerOptions:
    """Returns the options of flags, given by name.

    Raises:
      UsageError: a text is not a value of its flag.
    """
    values: dict[str, Any] = {FLAGS[name].name: _parse(name, text, FLAGS[name]) for name, text in texts.items()}
    return WorkerOptions(**values)


def _parse(name: str, text: str, field: dataclasses.Field[Any]) -> Any:
    value, limits = options.parse(name, text, type(field.default)), field.metadata
    if "choices" in limits and value not in limits["choices"]:
        raise errors.UsageError(f"--{name}={text}: expected one of {', '.join(limits['choices'])}")
    if "minimum" in limits and value < limits["minimum"]:
        raise errors.UsageError(f"--{name}={text}: expected at least {limits['minimum']}")
    if isinstance(value, (int, float)) and value > (most := limits.get("maximum", options.LARGEST)):
        raise errors.UsageError(f"--{name}={text}: expected at most {most:.0f}")
    return value
