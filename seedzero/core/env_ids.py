"""Ids of environments with special settings or from outside seedzero.envs, and ids in file names."""

from __future__ import annotations

import re

REMOTE = "remote"
"""The --env of a learner whose workers bring their own environments."""
YOURS = "yours"
"""The id that such a learner assigns, and that such a worker offers."""
DMLAB30 = "dmlab:dmlab30"
DMLAB30_LEVELS = 30

_LONGEST = 80


def file_name(env_id: str) -> str:
    """Returns an id without its family, for use in a file's name: MinAtar-Breakout-v1 for gym:MinAtar/Breakout-v1."""
    name = re.sub(r"[^A-Za-z0-9._]+", "-", env_id.partition(":")[2] or env_id)
    return name[:_LONGEST].strip("-.") or "run"
