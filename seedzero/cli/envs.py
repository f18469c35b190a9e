"""`seedzero envs`: the families of environments, what is installed here, and how to install the rest."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from seedzero.cli import output, parse

if TYPE_CHECKING:
    from seedzero.envs import families

_INDENT = " " * 4


def run(arguments: parse.Arguments) -> int:
    """Prints every family; returns the exit code."""
    from seedzero.envs import families  # numpy and gymnasium, which help and mistakes need not wait for

    for family in families.FAMILIES:
        output.show(textwrap.fill(f"{family.form}: {family.summary}", parse.WIDTH, subsequent_indent=_INDENT))
        output.show(f"{_INDENT}{_state(family)}")
        print(f"{_INDENT}seedzero train --env={family.example}")
    output.show("\nWorkers on other machines need the packages there; seedzero check-env ENV shows an environment.")
    return 0


def _state(family: families.Family) -> str:
    if not family.is_installed:
        return f"not installed: {family.install}"
    if not family.module:
        return "installed"
    return f"installed: {family.distribution} {family.version}".rstrip()


COMMAND = parse.Command(
    summary="Lists the families of environments: what is installed, how to install the rest, an example of each.",
    usage="",
    flags=(),
    run=run,
)
