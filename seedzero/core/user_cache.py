"""Finds the user's cache directory."""

from __future__ import annotations

import os
import pathlib

REMEDY = "set HOME or XDG_CACHE_HOME to a directory that this user may write"


def directory() -> pathlib.Path | None:
    """Returns the directory, or None for a user id without a home, as in a container that runs under a bare number."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return pathlib.Path(given)
    try:
        return pathlib.Path.home() / ".cache"
    except RuntimeError:  # neither HOME nor an entry in the table of users
        return None
