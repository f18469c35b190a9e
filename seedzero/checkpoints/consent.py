"""Consent to the code named by a run directory: its maker may be a stranger."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from seedzero.checkpoints import run_dir as run_dirs
from seedzero.config import config as configs
from seedzero.core import errors, user_code


def check(
    path: str | os.PathLike[str],
    saved: run_dirs.SavedConfig,
    *,
    trusted: bool,
    asked: Mapping[str, str] | None = None,
    makes_environments: bool = True,
) -> None:
    """Raises ResumeError for a run directory with modules to import and without the user's consent.

    Args:
      saved: of the directory; its file may be anybody's, so that `given` and `config` need not agree.
      trusted: the user trusts the directory's maker.
      asked: settings that the user has named now, by SECTION.KEY; None: this command takes none.
      makes_environments: false: only the agent's network is made.
    """
    if trusted:
        return
    sources = (saved.given, configs.flatten(saved.config))
    found = {item for values in sources for item in user_code.named(values).items()} - (asked or {}).items()
    if not makes_environments:
        found = {(name, value) for name, value in found if name != user_code.ENVIRONMENT}
    if not found:
        return
    flags = " ".join(shlex.quote(f"{configs.flag(name)}={value}") for name, value in sorted(found))
    raise errors.ResumeError(
        f"{os.fspath(path)} names code that would be imported and run here: {flags}. If you trust the maker of that "
        "directory, give --trust_run_dir (in Python trust_run_dir=True)"
        + ("" if asked is None else ", or name the code yourself, as above")
    )
