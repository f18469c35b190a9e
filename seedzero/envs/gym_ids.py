"""Finds Gymnasium's registered ids, known to every process or only to one program."""

from __future__ import annotations

import re

import ale_py  # noqa: F401  # registers Gymnasium's ALE/GAME
import gymnasium
from gymnasium.envs import registration

from seedzero.core import errors, user_code

_EVERYWHERE = ("gymnasium", "ale_py", "minatar")
"""Packages whose ids every process knows."""


def registered(env_id: str) -> str:
    """Returns MODULE:NAME of the function or class that this process has registered for an id, or ""."""
    found = find(env_id)
    entry = found.entry_point if found else None
    if entry is None or isinstance(entry, str):
        return entry or ""
    return f"{user_code.importable(entry.__module__)}:{getattr(entry, '__qualname__', type(entry).__qualname__)}"


def find(env_id: str) -> registration.EnvSpec | None:
    """Returns the registration of an id, of its newest version if it names no version; None for an unknown id."""
    try:
        namespace, name, version = registration.parse_env_id(env_id)
    except gymnasium.error.Error:  # not in an id's form
        return None
    if version is None:
        version = registration.find_highest_version(namespace, name)
    return gymnasium.registry.get(registration.get_env_id(namespace, name, version))


def game(env_id: str) -> str:
    """Returns ALE's name for the Atari game behind an id, or "" if it is no such game or shows no pictures."""
    found = find(env_id)
    if found is None or not registered(env_id).startswith("ale_py") or found.kwargs.get("obs_type") == "ram":
        return ""
    return str(found.kwargs.get("game", ""))


def foreign(env_id: str) -> str:
    """Returns `registered` for an id that a program or a further package registered, or "" for all other ids."""
    entry = registered(env_id)
    return "" if re.split("[.:]", entry)[0] in _EVERYWHERE else entry


def check_same(env_id: str, expected: str) -> None:
    """Raises EnvironmentFailure unless this new process has what the asking process has registered."""
    found = registered(env_id)
    if found == expected:
        return
    module = expected.partition(":")[0]
    module = "my_module" if module == "__main__" else module
    other = f"new processes have {found} for it" if found else "new processes do not know it"
    raise errors.EnvironmentFailure(
        f"it is registered for {expected} only by this program, and {other}. Give workers the module that registers "
        f"it, --env=gym:{module}:{env_id}, or a function or class, --env=python:{module}:NAME"
    )
