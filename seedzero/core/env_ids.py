"""Ids of environments with special settings or from outside seedzero.envs; ids in file names."""

from __future__ import annotations

import re

REMOTE = "remote"
"""A learner's --env where every worker brings environments of its own."""
YOURS = "yours"
"""Assigned by such a learner, and offered by such a worker."""
DMLAB30 = "dmlab:dmlab30"
DMLAB30_LEVELS = 30

_LONGEST = 80


def file_name(env_id: str) -> str:
    """Returns an id without its family as part of a file's name: MinAtar-Breakout-v1 for gym:MinAtar/Breakout-v1."""
    name = re.sub(r"[^A-Za-z0-9._]+", "-", env_id.partition(":")[2] or env_id)
    return name[:_LONGEST].strip("-.") or "run"
