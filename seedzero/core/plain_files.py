"""Opening files of a run directory, whose content may come from others."""

from __future__ import annotations

import os


def opener(path: str, flags: int) -> int:
    """Opens a file for `open(path, mode, opener=opener)`; a link in its place is an OSError, and is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)
