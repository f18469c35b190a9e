"""The command for installing a missing package beside the program."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from importlib import metadata


def install_command(*names: str) -> str:
    """Returns the shell command for installing packages for this Python, within seedzero's bounds.

    It names the packages themselves: seedzero is not on PyPI, and its extras would bring JAX to a worker's machine.

    names: as in setup.py, with their extras: "gymnasium[box2d]".
    """
    asked = _asked()
    requirements = shlex.join(asked.get(name, name) for name in names)
    python = shlex.quote(sys.executable or "python")
    if importlib.util.find_spec("pip") is None:  # an environment that uv made
        return f"uv pip install --python {python} {requirements}"
    return f"{python} -m pip install {requirements}"


def _asked() -> dict[str, str]:
    """Returns the requirements of the installed seedzero, for itself or an extra: name -> name and bounds."""
    try:
        required = metadata.requires("seedzero") or []
    except metadata.PackageNotFoundError:  # a clone that nobody installed
        return {}
    requirements = [requirement.partition(";")[0].strip() for requirement in required]
    return {re.split("[<>=!~ ]", requirement, maxsplit=1)[0]: requirement for requirement in requirements}


def command_at_the_end(line: str) -> str:
    """Returns the `install_command` at the end of a line, or ""."""
    found = re.search(r"(?:'[^']*'|[^\s']+) (?:-m )?pip install .*$", line)
    return found[0] if found else ""
