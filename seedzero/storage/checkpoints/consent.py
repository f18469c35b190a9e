"""Asks for consent before code is imported that a run directory names, because its maker may be unknown.

Runs that the user trained on this machine need no consent.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from seedzero.config import configs
from seedzero.core import errors, user_code
from seedzero.storage.checkpoints import own_runs, run_dirs

_UNKNOWN = "you trained none at this path, and one that was renamed or copied needs your consent again"


def check(
    path: str | os.PathLike[str],
    saved: run_dirs.SavedConfig,
    *,
    trusted: bool,
    asked: Mapping[str, str] | None = None,
    makes_environments: bool = True,
    is_here: bool = True,
) -> configs.Config:
    """Returns the run's configuration. Imports the user's own agent for its settings, if the run has one.

    Args:
      saved: the directory's saved settings. Anybody may have written the file, so its `given` and `config` may differ.
      trusted: whether the user trusts the directory's maker.
      asked: settings that the user gives now, by SECTION.KEY; None for a command that takes none and does not train.
      makes_environments: whether environments are made, too, and not only the agent's network.
      is_here: whether the code runs on this machine, so that this user's own runs count (`own_runs`).

    Raises ResumeError if the run directory names modules to import and the user has not consented, and ConfigError if
    the user's own agent is impossible.
    """
    found = set() if trusted else _named(saved, asked, makes_environments=makes_environments)
    doubt = own_runs.doubt(path, saved) if found and is_here else ""
    if found and doubt is not None:
        flags = " ".join(shlex.quote(f"{configs.flag(name)}={value}") for name, value in sorted(found))
        raise errors.ResumeError(
            f"{os.fspath(path)} names code that would run here: {flags}. If you trust its maker, "
            "give --trust_run_dir (in Python trust_run_dir=True)"
            + ("" if asked is None else ", or name the code yourself")
            + (f". It does not count as a run of your own: {doubt or _UNKNOWN}" if is_here else "")
        )
    return configs.loaded(saved.config)


def _named(
    saved: run_dirs.SavedConfig, asked: Mapping[str, str] | None, *, makes_environments: bool
) -> set[tuple[str, str]]:
    """Returns the settings, with values, whose code a command would import and the user has not named."""
    sources = (saved.given, configs.flatten(saved.config))
    found = {item for values in sources for item in user_code.named(values).items()} - (asked or {}).items()
    unused = {user_code.ENVIRONMENT} if not makes_environments else set()
    unused |= {user_code.BUILDER, user_code.MEMBERS, user_code.OPPONENTS} if asked is None else set()
    return {(name, value) for name, value in found if name not in unused}
