"""Writes the command that installs a missing package next to the program."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from importlib import metadata


def install_command(*names: str) -> str:
    """Returns the shell command that installs packages for this Python, within seedzero's bounds.

    It names the packages themselves, because seedzero is not on PyPI, and its extras would install JAX on a worker's
    machine.

    names: packages as in setup.py, with their extras, such as "gymnasium[box2d]".
    """
    asked = _asked()
    requirements = shlex.join(asked.get(name, name) for name in names)
    python = shlex.quote(sys.executable or "python")
    if importlib.util.find_spec("pip") is None:  # uv made this environment
        return f"uv pip install --python {python} {requirements}"
    return f"{python} -m pip install {requirements}"


def _asked() -> dict[str, str]:
    """Returns what the installed seedzero requires, itself or for an extra: name -> name and bounds."""
    try:
        required = metadata.requires("seedzero") or []
    except metadata.PackageNotFoundError:  # a clone that nobody installed
        return {}
    requirements = [requirement.partition(";")[0].strip() for requirement in required]
    return {re.split("[<>=!~ ]", requirement, maxsplit=1)[0]: requirement for requirement in requirements}


def command_at_the_end(line: str) -> str:
    """Returns the `install_command` for the end of a message, or ""."""
    found = re.search(r"(?:'[^']*'|[^\s']+) (?:-m )?pip install .*$", line)
    return found[0] if found else ""
