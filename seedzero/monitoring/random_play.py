"""Stores the mean return of random actions, which `check-env` measures, so that `diagnose` can compare runs with it.

It is stored in the user's cache directory by the environment's settings, and nothing depends on it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib

from seedzero.config import sections
from seedzero.core import plain_files

LEAST_EPISODES = 3
"""Fewer episodes say too little."""


def remember(env: sections.EnvConfig, returns: list[float]) -> None:
    """Stores the mean return of some episodes, if there are enough and the directory is writable."""
    file = _file(env)
    if file is None or len(returns) < LEAST_EPISODES:
        return
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({"env": env.id, "mean_return": sum(returns) / len(returns)}), encoding="utf-8")
        partial.replace(file)


def recall(env: sections.EnvConfig) -> float | None:
    """Returns the mean return of random actions, or None if no environment with these settings was checked here."""
    file = _file(env)
    try:
        return None if file is None else float(json.loads(file.read_bytes())["mean_return"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _file(env: sections.EnvConfig) -> pathlib.Path | None:
    directory = plain_files.cache_directory()
    if directory is None:
        return None
    # random returns don't depend on the size of frames, which is another one on a CPU
    played = {name: value for name, value in dataclasses.asdict(env).items() if name != "frame_size"}
    digest = hashlib.sha256(json.dumps(played, sort_keys=True).encode()).hexdigest()[:32]
    return directory / "seedzero" / "random" / f"{digest}.json"
