"""What an environment shows, before anything is written or JAX is loaded."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from seedzero.config import sections
from seedzero.core import env_ids, errors, types
from seedzero.processes import program

_LIMIT_SECONDS = sections.TransportConfig().spec_seconds


def spec_of(settings: sections.EnvConfig, *, limit_seconds: float = _LIMIT_SECONDS) -> types.EnvSpec | None:
    """Returns an environment's spec; None with --env=remote, where only workers know it.

    A user's own module is imported in a process of its own, like a worker's, without the accelerator: it may change
    variables that JAX reads. limit_seconds: for this process.

    Raises:
      ConfigError: the environment cannot be made here.
    """
    from seedzero.envs import registry  # gymnasium, which an early mistake need not wait for

    if settings.id == env_ids.REMOTE:
        return None
    if settings.id.startswith("python:") or (settings.id.count(":") == 2 and settings.id.startswith("gym:")):
        return _of_module(settings, limit_seconds)
    try:
        return registry.spec(settings)
    except errors.EnvironmentFailure as error:
        raise _refused(settings, str(error)) from None


def _of_module(settings: sections.EnvConfig, limit_seconds: float) -> types.EnvSpec:
    command = [sys.executable, "-m", "seedzero.envs", json.dumps(dataclasses.asdict(settings))]
    variables = {**os.environ, **program.WORKER_ENVIRONMENT}
    watched, held = os.pipe()  # it ends with this process, however that ends: then the pipe closes
    try:
        code, printed, complaints = _output(command, variables, watched, limit_seconds)
    finally:
        os.close(watched)
        os.close(held)
    answer = _answer(printed)
    if "spec" in answer:  # though its process may hang at the end
        return types.EnvSpec.from_json(answer["spec"])
    if code is None and not answer:
        words = [line for line in (printed + complaints).splitlines() if line.strip()]
        last = f"the last line that it printed: {words[-1].strip()}" if words else "it printed nothing"
        answer["error"] = (
            f"it was not made, reset and stepped once within {limit_seconds:g} s, the limit of"
            f" --transport.spec_seconds, which is to be raised if it needs longer; {last}"
        )
    raise _refused(settings, answer.get("error") or _end(code or 0, complaints))


def _output(
    command: Sequence[str], variables: Mapping[str, str], watched: int, limit_seconds: float
) -> tuple[int | None, str, str]:
    """Returns a program's exit code, output and errors once it has ended; None: it did not within the limit.

    What it started may live on and hold its output open, so this goes to files. Then it is killed.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaints:
        process = program.Process(
            command, stdin=watched, stdout=output, stderr=complaints, env=variables, start_new_session=True
        )
        code = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(limit_seconds)
        finally:
            process.kill_group()
            process.wait()
        texts = []
        for file in (output, complaints):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return code, texts[0], texts[1]


def _refused(settings: sections.EnvConfig, reason: str) -> errors.ConfigError:
    """Returns the error for an environment, which is named once."""
    names = (settings.id, settings.id.partition(":")[2])
    reason = functools.reduce(lambda text, name: text.replace(f"environment {name!r}", "it", 1), names, reason)
    return errors.ConfigError(f"--env={settings.id}: {reason.removeprefix('it: ')}")


def _answer(printed: str) -> dict[str, Any]:
    """Returns the process's line of JSON, whatever an environment printed around it; {}: there is none."""
    for line in reversed(printed.splitlines()):
        if line.startswith(('{"spec": ', '{"error": ')):
            found: dict[str, Any] = json.loads(line)
            return found
    return {}


def _end(code: int, printed: str) -> str:
    """Returns how a process ended that told nothing, and its last words."""
    names = {number.value: number.name for number in signal.Signals}  # most real-time signals have none
    ended = f"exit code {code}" if code >= 0 else f"signal {names.get(-code, -code)}"
    words = printed.strip().splitlines()
    return f"its process ended with {ended} while it was made and stepped once" + (f": {words[-1]}" if words else "")
