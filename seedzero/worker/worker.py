"""Runs a process that steps environments with the learner's actions, by numpy, gymnasium and grpc, never JAX.

join -> make or reuse the groups of environments -> reset -> for whichever group has actions: step, send
                                                      '-- Restart: join again --- End: done
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import functools
import json
import logging
import math
import os
import pathlib
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import numpy as np

from seedzero.config import configs, sections, worker_options
from seedzero.core import descendants, env_ids, errors, logs, printable, types
from seedzero.envs import bots, env_base, registry
from seedzero.transport import client, messages, security

EnvFactory = Callable[[int], env_base.VectorEnv]
"""Makes one group of environments."""

_logger = logging.getLogger(__name__)


@dataclasses.dataclass
class WorkerProgress:
    """What a worker has achieved."""

    has_episodes: bool = False  # whether any of its episodes was completed
    exit_code: int = errors.FAILED  # of an error that has ended it

    @property
    def failure_code(self) -> int:
        """The exit code if the environments fail now."""
        return errors.FAILED_LATER if self.has_episodes else errors.FAILED


def run(
    options: worker_options.WorkerOptions,
    *,
    env_factory: EnvFactory | None = None,
    stop: threading.Event | None = None,
    on_failure: Callable[[], None] = lambda: None,
    progress: WorkerProgress | None = None,
) -> int:
    """Steps environments for a learner until End arrives; reconnects by itself without a time limit.

    Args:
      options: all but `supervised`, which is for the process.
      env_factory: makes the user's own environments, for --env=remote; None means those of seedzero.envs.
      stop: once set, ends the worker as End does. It is also set at the end.
      on_failure: called when an error ends the worker, before its environments are closed, which may hang.
      progress: notes what the worker has achieved.

    Returns the exit code: DONE after End or stop, REFUSED if the environments show, or the learner sends, impossible
    values, FAILED or FAILED_LATER if the environments fail or learner and worker refuse each other, BAD_USAGE for
    options that cannot be used. Errors are logged in one line, below the traceback of an environment's exception.
    """
    progress = progress or WorkerProgress()
    hello = messages.Hello(
        worker_id=options.worker_id or default_worker_id(),
        session_id="",
        roles=tuple(types.Role) if options.role == "any" else (types.Role(options.role),),
        environments=(env_ids.YOURS,) if env_factory else registry.LOCAL_KINDS,
        max_envs=options.num_envs,
        key=os.environ.pop(worker_options.KEY, ""),  # hide it from programs that environments start
        knows_bots=env_factory is None,
    )
    access = security.Access(options.token_file, options.ca_file, options.server_name)
    code = None
    try:
        with env_base.closing(_Groups(env_factory, options.threads, options.close_seconds)) as groups:
            try:
                with (
                    client.Client(options.server, hello, access=access) as learner,
                    _leaving(learner, stop or threading.Event()),
                ):
                    if warning := security.exposure(options.token_file):
                        _logger.warning("%s", warning)
                    _serve(learner, groups, progress)
            except errors.Error as error:
                code = progress.exit_code = _log(error, progress)
                on_failure()
                raise
        return errors.DONE
    except errors.Error as error:
        return _log(error, progress) if code is None else code


def _log(error: errors.Error, progress: WorkerProgress) -> int:
    if isinstance(error, errors.UsageError):
        _logger.error("%s", error)
        return errors.BAD_USAGE
    # In one record, whose last line is what the supervisor shows.
    _logger.error("%s%s: %s", env_base.trace(error), type(error).__name__, error)
    return errors.REFUSED if isinstance(error, errors.InvalidMessage) else progress.failure_code


def default_worker_id() -> str:
    """Returns a name unique among running processes."""
    return f"{socket.gethostname()}-{os.getpid()}"


@contextlib.contextmanager
def _leaving(learner: client.Client, stop: threading.Event) -> Iterator[None]:
    """Makes the client leave when `stop` is set, while the context is entered; sets `stop` afterwards."""

    def leave_when_told() -> None:
        stop.wait()
        learner.leave("the worker was told to stop")

    thread = threading.Thread(target=leave_when_told, name="seedzero-stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class _Groups:
    """Groups of environments, kept for the next assignment of the same kind."""

    def __init__(self, env_factory: EnvFactory | None, threads: int, close_seconds: float) -> None:
        self._env_factory = env_factory
        self._threads, self._close_seconds = threads, close_seconds
        self._made_for: types.Assignment | None = None
        self._groups: list[env_base.VectorEnv] = []

    def fit(self, assignment: types.Assignment) -> list[env_base.VectorEnv]:
        """Returns the groups for an assignment, not yet reset.

        Raises EnvironmentFailure if they cannot be made here.
        """
        wanted = dataclasses.replace(assignment, session_id="", seeds=())
        if self._made_for and not self._groups[0].spec.tasks:  # so that environments in any position are alike
            wanted = dataclasses.replace(wanted, indices=self._made_for.indices)
        if wanted != self._made_for:
            self._close(math.inf)
            self._groups = self._make(assignment)
            self._made_for = wanted
        return self._groups

    def close(self) -> None:
        """Closes all environments when the worker ends."""
        self._close(self._close_seconds)

    def _close(self, max_seconds: float) -> None:
        groups, self._groups, self._made_for = self._groups, [], None
        with env_base.failures_of("environments raised in close"):
            env_base.close_all(groups, max_seconds)

    def _make(self, assignment: types.Assignment) -> list[env_base.VectorEnv]:
        with (
            env_base.failures_of(f"environments {assignment.env!r} cannot be made"),
            env_base.closed_on_error() as groups,
        ):
            bots.check_members(assignment.bots)
            for index in range(assignment.num_groups):
                groups.append(self._make_group(assignment, index))
            _check_alike(groups, assignment)
        return groups

    def _make_group(self, assignment: types.Assignment, group: int) -> env_base.VectorEnv:
        if self._env_factory is not None:
            return self._env_factory(assignment.envs_per_group)
        if assignment.env == env_ids.YOURS:
            raise errors.EnvironmentFailure(
                "the learner runs with --env=remote and expects environments of the worker's own; "
                "call seedzero.worker.worker.main(arguments, env_factory=...) with yours"
            )
        env, role, size = assignment.env, assignment.role, assignment.envs_per_group
        places = slice(group * size, (group + 1) * size)
        indices = assignment.indices[places] or range(assignment.num_groups * size)[places]
        settings = _settings_of(assignment.env_settings)
        if env.startswith("pgx:"):  # its rules are JAX functions, and the accelerator belongs to the learner
            os.environ.setdefault("JAX_PLATFORMS", "cpu")
        return registry.make(env, settings, size, role=role, threads=self._threads, indices=indices)


def _settings_of(env_settings: str) -> sections.EnvConfig:
    try:
        values = json.loads(env_settings or "{}")
        return configs.override(configs.Config(), {f"env.{name}": value for name, value in values.items()}).env
    except (json.JSONDecodeError, AttributeError, errors.ConfigError) as error:
        raise errors.EnvironmentFailure(
            f"the learner's environment settings {env_settings} cannot be used here: {error}; "
            "install the same version of seedzero on both sides"
        ) from None


def _serve(learner: client.Client, all_groups: _Groups, progress: WorkerProgress) -> None:
    """Works on assignment after assignment until the learner sends End or `stop` is set."""
    began, num_steps = time.monotonic(), 0
    while (assignment := learner.join()) is not None:
        groups = all_groups.fit(assignment)
        size = f"{assignment.num_groups} x {assignment.envs_per_group}"
        place = f"{assignment.env} to {assignment.role.value}, session {assignment.session_id}"
        _logger.info("joined %s: %s environments %s", learner.address, size, place)
        _begin(learner, assignment, groups)
        while isinstance(event := learner.receive(), messages.Actions):
            with env_base.failures_of(f"environments of group {event.group} raised in step"):
                step = _step(groups[event.group], event, assignment.bots)
            learner.send(event.group, step)
            progress.has_episodes |= bool(np.any(step.terminated) or np.any(step.truncated))
            num_steps += assignment.envs_per_group
        if isinstance(event, messages.End):
            break
    last = learner.receive()  # End is returned again and again; join() had returned it without its reason
    reason = (isinstance(last, messages.End) and last.reason) or "the learner ended it"
    _logger.info("done after %d steps in %.0f s: %s", num_steps, time.monotonic() - began, reason)


def _step(group: env_base.VectorEnv, event: messages.Actions, names: Sequence[str]) -> types.EnvStep:
    """Returns the next step of a group, in which the named bots may move."""
    if event.bot is None:
        return group.step(event.actions)
    if not hasattr(group, "with_bots"):
        raise errors.EnvironmentFailure("the learner asks for a bot's move, and these environments do not have it")
    chosen = ["", *names]
    actions = group.with_bots(event.actions, [chosen[number] for number in event.bot.tolist()])
    return group.step(actions)._replace(played=actions)


def _begin(learner: client.Client, assignment: types.Assignment, groups: Sequence[env_base.VectorEnv]) -> None:
    """Resets all groups and sends their first steps."""
    size, steps = assignment.envs_per_group, []
    for index, group in enumerate(groups):
        with env_base.failures_of(f"environments of group {index} raised in reset"):
            steps.append(group.reset(assignment.seeds[index * size : (index + 1) * size]))
    _check_alike(groups, assignment)  # it is known now whether infos contain masks
    learner.start(groups[0].spec)
    for index, step in enumerate(steps):
        learner.send(index, step)


def _check_alike(groups: Sequence[env_base.VectorEnv], assignment: types.Assignment) -> None:
    for group in groups:
        if group.spec != groups[0].spec or group.num_envs != assignment.envs_per_group:
            raise errors.EnvironmentFailure(
                f"a group has {group.num_envs} environments with {group.spec}; expected {assignment.envs_per_group} "
                f"with {groups[0].spec}, as in the first group; make all groups alike"
            )
    env_base.check_distinct(assignment.env, [env for group in groups for env in getattr(group, "originals", ())])


_PACKAGE = str(pathlib.Path(__file__).parents[1]) + os.sep


def main(words: Sequence[str] | None = None, *, env_factory: EnvFactory | None = None) -> int:
    """Runs a worker from a command line (default: the process's); returns the exit code. See `run`."""
    try:
        options = worker_options.read(sys.argv[1:] if words is None else words)
    except errors.UsageError as error:
        printable.say(f"error: {error}")
        return errors.BAD_USAGE
    return run_process(options, env_factory=env_factory)


def run_process(options: worker_options.WorkerOptions, *, env_factory: EnvFactory | None = None) -> int:
    """Runs a worker as the process's only work, from the main thread; returns the exit code.

    SIGTERM ends it like the learner's End, with exit code 0. So does SIGINT without a supervisor; with one, the end of
    standard input does, however it came.
    """
    options = dataclasses.replace(options, worker_id=options.worker_id or default_worker_id())
    logs.show(f"seedzero worker {options.worker_id}", options.verbosity)
    stop, ended = threading.Event(), threading.Event()
    progress = WorkerProgress()
    # A second signal may interrupt the first one's handler: Event.set would wait for itself, this put does not.
    told: queue.SimpleQueue[bool] = queue.SimpleQueue()  # true: the supervisor is gone, or is ending its workers
    signal.signal(signal.SIGTERM, lambda *_: told.put(False))
    # Ctrl-C reaches all processes of the terminal, so a supervisor decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN if options.supervised else lambda *_: told.put(False))
    words = (told, stop, ended, options.close_seconds, progress)
    threading.Thread(target=_stop_when_told, args=words, name="seedzero-told", daemon=True).start()
    if sys.stderr is sys.__stderr__:
        faulthandler.enable(all_threads=False)  # says which line was running when a simulator in C++ crashes
    leave, os._exit = os._exit, functools.partial(_exit, os._exit, os.getpid(), progress)
    if options.supervised:
        descendants.at_end_of_input(lambda: told.put(True))
    try:
        return run(options, env_factory=env_factory, stop=stop, on_failure=lambda: told.put(False), progress=progress)
    finally:
        os._exit = leave
        ended.set()


def _exit(leave: Callable[[int], NoReturn], pid: int, progress: WorkerProgress, status: int) -> NoReturn:
    """Replaces `os._exit`: nothing else would say that an environment has called it.

    A process that was forked, and seedzero itself, end as usual.
    """
    frame = traceback.extract_stack(sys._getframe(1), 1)[0]
    if os.getpid() == pid and not frame.filename.startswith(_PACKAGE):
        place = f"{frame.filename}, line {frame.lineno}, in {frame.name}"
        _logger.error("EnvironmentFailure: an environment called os._exit(%s) (%s)", status, place)
        status = progress.failure_code
    leave(status)


def _stop_when_told(
    told: queue.SimpleQueue[bool],
    stop: threading.Event,
    ended: threading.Event,
    close_seconds: float,
    progress: WorkerProgress,
) -> None:
    """Stops the worker, and ends the process if the worker has not ended in time.

    close_seconds: for an environment to return, and for all to close, after a stop or a failure. Without a supervisor
    that would do so, this also ends what the environments have started.
    """
    is_alone = told.get()
    stop.set()
    if not ended.wait(close_seconds):
        if is_alone:
            descendants.kill_own()
        os._exit(progress.exit_code)
