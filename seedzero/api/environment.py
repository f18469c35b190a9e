"""Gathers facts about an environment before anything is written or JAX is loaded."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from seedzero.config import sections
from seedzero.core import env_ids, errors, printable, types, user_code
from seedzero.learner.processes import programs

if TYPE_CHECKING:
    from seedzero.envs import check

_LIMIT_SECONDS = sections.TransportConfig().step_seconds
_FIRST_SECONDS, _PROGRESS_SECONDS = 5.0, 10.0
"""How long an environment's first step may take before the first sentence is printed, and between two sentences."""
_ABORT_SECONDS = 2.0
"""Longest wait for a process that shall report where it hangs."""
_CRASH = "Fatal Python error: "
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (\S+)')
_CALLS = frozenset({"__init__", "make", "reset", "step", "close"})
_LIBRARY = os.path.dirname(os.__file__)


_processes: set[programs.Process] = set()
"""Processes of environments that are being asked right now."""


def is_asking() -> bool:
    """Returns whether an environment has a process now; `KeyboardInterrupt` ends it within _ABORT_SECONDS."""
    return bool(_processes)


class Shown(NamedTuple):
    """What training needs to know about an environment."""

    spec: types.EnvSpec
    # mean return of a solved task according to its own registration; None: unknown
    reward_threshold: float | None = None
    seated_by: str = ""  # what makes rows seats; "" if they are none, or only workers know
    statistics: Sequence[str] = ()  # names of wrappers that keep some


def show(
    settings: sections.EnvConfig, *, limit_seconds: float = _LIMIT_SECONDS, say: Callable[[str], None] = printable.say
) -> Shown | None:
    """Returns an environment's facts, or None with --env=remote, where only workers know them.

    A user's own module is imported in a process of its own, like a worker's and without the accelerator, because it
    may change variables that JAX reads.

    Args:
      limit_seconds: the longest time that this process may take.
      say: takes a sentence after 5 s, then every 10 s.

    Raises:
      ConfigError: the environment cannot be made here.
      KeyboardInterrupt: as in `look`.
    """
    from seedzero.envs import env_base, registry  # gymnasium, which an early mistake need not wait for

    if settings.id == env_ids.REMOTE:
        return None
    if _is_of_user(settings):
        registry.check_id(settings.id)
        answer = _ask(settings, {}, limit_seconds, say)
        return Shown(**{**answer, "spec": types.EnvSpec.from_json(answer["spec"])})
    try:
        with _announced(settings.id, say):
            return Shown(registry.spec(settings), registry.reward_threshold(settings), registry.seated_by(settings))
    except errors.EnvironmentFailure as error:
        raise _refused(settings, str(error), env_base.trace(error)) from None


def look(
    settings: sections.EnvConfig,
    num_steps: int,
    max_seconds: float,
    *,
    limit_seconds: float = _LIMIT_SECONDS,
    say: Callable[[str], None] = printable.say,
) -> check.Look:
    """Takes random steps and returns the findings, see `check.look`.

    A user's environment runs in a process, as in `show`.

    Args:
      limit_seconds: the longest time that everything except the steps may take.
      say: as in `show`.

    Raises:
      EnvironmentFailure, ConfigError, SpecMismatch: training would refuse the environment, or it hangs.
      KeyboardInterrupt: with the place where the process was.
    """
    from seedzero.envs import check

    if not _is_of_user(settings):
        return check.look(settings, num_steps, max_seconds)
    steps = {"num_steps": num_steps, "max_seconds": max_seconds}
    return check.Look.from_json(_ask(settings, {"look": steps}, limit_seconds + max_seconds, say)["look"])


def _is_of_user(settings: sections.EnvConfig) -> bool:
    is_named = bool(user_code.named({user_code.ENVIRONMENT: settings.id}))
    # Pgx uses JAX: its rules are loaded only after the learner has chosen its devices.
    return is_named or settings.id.startswith("pgx:") or bool(_registered_here(settings))


def _registered_here(settings: sections.EnvConfig) -> str:
    """Returns the entry of an id, of this program or another package, or "" for an id that every worker knows."""
    family, _, name = settings.id.partition(":")
    if family != "gym" or ":" in name:
        return ""
    from seedzero.envs import gym_ids  # gymnasium

    return gym_ids.foreign(name)


def _ask(
    settings: sections.EnvConfig, look: Mapping[str, Any], limit_seconds: float, say: Callable[[str], None]
) -> Mapping[str, Any]:
    """Returns the answer of a separate process under the key `look`, or "spec" if `look` is empty.

    Raises ConfigError if it gives none.
    """
    key, request = next(iter(look), "spec"), {"settings": dataclasses.asdict(settings), **look}
    if entry := _registered_here(settings):
        request["registered"] = entry
    code, printed, complaints = _output(settings.id, json.dumps(request), limit_seconds, say)
    complaints, _, crash = complaints.partition(_CRASH)
    answer = _answer(printed)
    if key in answer:  # although its process may hang at the end
        return answer
    if code is None and not answer:
        words = [line for line in (printed + complaints).splitlines() if line.strip()]
        last = f"the last line that it printed: {words[-1].strip()}" if words else "it printed nothing"
        where = f"it was{_place(crash)} " if crash else ""
        deed = "made, reset and stepped once" if key == "spec" else "made and stepped at random"
        answer["error"] = (
            f"it was not {deed} within {limit_seconds:g} s, the limit of"
            f" --transport.step_seconds, raise it if the environment needs longer; {where}{last}"
        )
    reason = answer.get("error") or _last_words(code or 0, complaints, _place(crash))
    raise _refused(settings, reason, answer.get("trace", ""))


def _output(
    env_id: str, request: str, limit_seconds: float, say: Callable[[str], None]
) -> tuple[int | None, str, str]:
    """Runs `seedzero.envs` to the end and returns its exit code, output and errors.

    None as code: it still ran at the limit.

    The output goes to files, because programs that it started may live on and hold a pipe open. Then it is killed.
    """
    code, interrupted = None, False
    with contextlib.ExitStack() as files:
        asked, output, complaints = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        asked.write(request.encode())
        asked.seek(0)
        process = programs.Process(
            [sys.executable, "-m", "seedzero.envs", str(asked.fileno())],
            stdin=subprocess.PIPE,  # it ends with this process, whatever ends that, because the pipe closes then
            stdout=output,
            stderr=complaints,
            # There is no terminal for a debugger.
            env={**os.environ, **programs.WORKER_ENVIRONMENT, "PYTHONBREAKPOINT": "0"},
            pass_fds=[asked.fileno()],
            start_new_session=True,
        )
        _processes.add(process)
        try:
            code = _wait(env_id, process, limit_seconds, say)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            _end(process, is_over=code is not None)
        for file in (output, complaints):
            file.seek(0)
        printed, complained = (file.read().decode(errors="replace") for file in (output, complaints))
    if interrupted:
        raise KeyboardInterrupt(_place(complained.partition(_CRASH)[2]).removesuffix(";"))
    return code, printed, complained


def _end(process: programs.Process, *, is_over: bool) -> None:
    """Ends a process with all its children; one that is still running first prints where it hangs."""
    try:
        if not is_over:
            process.send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_ABORT_SECONDS)
    finally:  # even after a second Ctrl-C
        process.kill_group()
        process.wait()
        process.close_input()
        _processes.discard(process)


def _wait(env_id: str, process: programs.Process, limit_seconds: float, say: Callable[[str], None]) -> int | None:
    """Returns a process's exit code, or None if it has not ended within the limit."""
    waited, pause = 0.0, _FIRST_SECONDS
    while waited < limit_seconds:
        seconds = min(pause, limit_seconds - waited)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(seconds)
        waited, pause = waited + seconds, _PROGRESS_SECONDS
        say(f"{_being_tried(env_id, waited)}; if it hangs, Ctrl-C ends it and shows where")
    return None


@contextlib.contextmanager
def _announced(env_id: str, say: Callable[[str], None]) -> Iterator[None]:
    """Reports from a thread, while entered, that an environment is being made in this process."""
    is_over = threading.Event()

    def tell() -> None:
        waited, pause = 0.0, _FIRST_SECONDS
        while not is_over.wait(pause):
            waited, pause = waited + pause, _PROGRESS_SECONDS
            say(_being_tried(env_id, waited))

    threading.Thread(target=tell, name="seedzero-tell", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _being_tried(env_id: str, seconds: float) -> str:
    return f"environment {env_id} is being made and tried for {seconds:.0f} s"


def _place(crash: str) -> str:
    """Returns the last place in an environment's code that faulthandler printed, for use within a sentence.

    "": unknown.
    """
    frames = [frame for frame in _FRAME.findall(crash) if "site-packages" in frame[0] or _LIBRARY not in frame[0]]
    if not frames:
        return ""
    path, line, name = frames[0]
    call = next((name for _, _, name in frames if name in _CALLS), name)
    return f" in {call}, at {path}, line {line};"


def _refused(settings: sections.EnvConfig, reason: str, trace: str) -> errors.ConfigError:
    """Returns the error, with the environment's traceback as a note unless that is ""."""
    names = (settings.id, settings.id.partition(":")[2])
    reason = functools.reduce(lambda text, name: text.replace(f"environment {name!r}", "it", 1), names, reason)
    refused = errors.ConfigError(f"--env={settings.id}: {reason.removeprefix('it: ')}")
    if trace:
        refused.add_note(trace)
    return refused


def _answer(printed: str) -> dict[str, Any]:
    """Returns the process's line of JSON among all that an environment may have printed, or {} if there is none."""
    for line in reversed(printed.splitlines()):
        if line.startswith(('{"spec": ', '{"look": ', '{"error": ')):
            found: dict[str, Any] = json.loads(line)
            return found
    return {}


def _last_words(code: int, printed: str, place: str) -> str:
    """Describes how a process ended that gave no answer, with its last words."""
    names = {number.value: number.name for number in signal.Signals}  # most real-time signals have no name
    ended = f"exit code {code}" if code >= 0 else f"signal {names.get(-code, -code)}"
    words = printed.strip().splitlines()
    where = place.removesuffix(";") or " while it was made and stepped"
    return f"its process ended with {ended}{where}" + (f": {words[-1]}" if words else "")
