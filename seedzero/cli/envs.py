"""`seedzero envs`: the families of environments, what is installed here, and how to install the rest."""

from __future__ import annotations

import textwrap

from seedzero.cli import output, parse
from seedzero.config import families

_INDENT = " " * 4


def run(arguments: parse.Arguments) -> int:
    """Prints every family; returns the exit code."""
    for family in families.LISTED:
        for offer in family.offers:
            output.show(textwrap.fill(f"{family.form}: {offer.summary}", parse.WIDTH, subsequent_indent=_INDENT))
            output.show(f"{_INDENT}{offer.state}")
            print(f"{_INDENT}seedzero train --env={offer.example}")
    output.show("\nWorkers on other machines need the packages there; seedzero check-env ENV shows an environment.")
    return 0


COMMAND = parse.Command(
    summary="Lists the families of environments: what is installed, how to install the rest, an example of each.",
    usage="",
    flags=(),
    run=run,
)
