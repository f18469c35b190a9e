"""What an environment shows, before anything is written or JAX is loaded."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

from seedzero.config import sections
from seedzero.core import env_ids, errors, types


def spec_of(settings: sections.EnvConfig) -> types.EnvSpec | None:
    """Returns an environment's spec; None with --env=remote, where only workers know it.

    A user's own module is imported in a process of its own, like a worker's: it may change variables that JAX reads.

    Raises:
      ConfigError: the environment cannot be made here.
    """
    from seedzero.envs import registry  # gymnasium, which an early mistake need not wait for

    if settings.id == env_ids.REMOTE:
        return None
    if settings.id.startswith("python:") or (settings.id.count(":") == 2 and settings.id.startswith("gym:")):
        return _of_module(settings)
    try:
        return registry.spec(settings)
    except errors.EnvironmentFailure as error:
        raise errors.ConfigError(f"--env={settings.id}: {error}") from None


def _of_module(settings: sections.EnvConfig) -> types.EnvSpec:
    command = [sys.executable, "-m", "seedzero.envs", json.dumps(dataclasses.asdict(settings))]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    output = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    if done.returncode or not output:
        reason = output[-1] if output else f"its process ended with exit code {done.returncode}"
        raise errors.ConfigError(f"--env={settings.id}: {reason}")
    return types.EnvSpec.from_json(json.loads(output[-1]))
