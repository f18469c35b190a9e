"""Reads files for deployment, and checks the command lines in them with the flag parser of `seedzero` itself."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import yaml

from seedzero.api import request
from seedzero.cli import main as commands
from seedzero.cli import parse
from seedzero.core import errors

_OF_OTHER_EXTRAS = (
    "envpool:",
    "football:",
    "gym:HalfCheetah",
    "gym:Hopper",
    "gym:minigrid:",
    "gym:vizdoom.",
    "popgym:",
)
"""Environments whose packages tests have not."""

ROOT = pathlib.Path(__file__).parents[2]


def documents(path: pathlib.Path) -> list[Any]:
    """Returns the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def check_command(words: Sequence[str]) -> None:
    """Checks a command line of `seedzero`, its first word being the command.

    Raises:
      UsageError: what `seedzero` itself would refuse before it touches anything.
    """
    with tempfile.NamedTemporaryFile("w") as token:  # where containers have theirs there is none here
        token.write("0" * 64)
        token.flush()
        _check([f"--token_file={token.name}" if word.startswith("--token_file=") else word for word in words])


def _check(words: Sequence[str]) -> None:
    name, *rest = words
    if name not in commands.COMMANDS:
        raise errors.UsageError(f"unknown command {name!r}")
    arguments = parse.read(name, commands.COMMANDS[name], rest)
    if name == "train":
        asked = request.make(arguments.flags, arguments.settings)
        request.check_early(asked, has_environments=not asked.config.env.id.startswith(_OF_OTHER_EXTRAS))
