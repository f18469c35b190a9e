"""Consent to the code named by a run directory: its maker may be a stranger. Runs of the user's own have it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from seedzero.checkpoints import own_runs, run_dirs
from seedzero.config import configs
from seedzero.core import errors, user_code


def check(
    path: str | os.PathLike[str],
    saved: run_dirs.SavedConfig,
    *,
    trusted: bool,
    asked: Mapping[str, str] | None = None,
    makes_environments: bool = True,
    is_here: bool = True,
) -> configs.Config:
    """Returns the run's configuration, with the settings of an agent of the user's own, which is imported.

    Raises ResumeError for a run directory with modules to import and without the user's consent; ConfigError for an
    impossible agent of its own.

    Args:
      saved: of the directory; its file may be anybody's, so that `given` and `config` need not agree.
      trusted: the user trusts the directory's maker.
      asked: settings that the user has named now, by SECTION.KEY; None: this command takes none, and trains nothing.
      makes_environments: false: only the agent's network is made.
      is_here: the code runs on this machine, so that own runs of this user count (`own_runs`).
    """
    if not trusted:
        _check(path, saved, asked, makes_environments=makes_environments, is_here=is_here)
    return configs.loaded(saved.config)


def _check(
    path: str | os.PathLike[str],
    saved: run_dirs.SavedConfig,
    asked: Mapping[str, str] | None,
    *,
    makes_environments: bool,
    is_here: bool,
) -> None:
    """Raises ResumeError, as `check` without the user's trust."""
    sources = (saved.given, configs.flatten(saved.config))
    found = {item for values in sources for item in user_code.named(values).items()} - (asked or {}).items()
    unused = {user_code.ENVIRONMENT} if not makes_environments else set()
    unused |= {user_code.BUILDER, user_code.MEMBERS, user_code.OPPONENTS} if asked is None else set()
    found = {(name, value) for name, value in found if name not in unused}
    if not found:
        return
    if (doubt := own_runs.doubt(path, saved) if is_here else "") is None:
        return
    flags = " ".join(shlex.quote(f"{configs.flag(name)}={value}") for name, value in sorted(found))
    raise errors.ResumeError(
        f"{os.fspath(path)} names code that would be imported and run here: {flags}. If you trust the maker of that "
        "directory, give --trust_run_dir (in Python trust_run_dir=True)"
        + ("" if asked is None else ", or name the code yourself, as above")
        + (f". It does not count as a run of your own: {doubt}" if doubt else "")
    )
