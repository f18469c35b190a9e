"""Runs a worker as a process: command line, log on stderr, signals, and the pipe from a supervisor."""

from __future__ import annotations

import dataclasses
import faulthandler
import functools
import logging
import os
import pathlib
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from seedzero.config import worker_options
from seedzero.core import descendants, errors, logs, printable
from seedzero.worker import worker

_logger = logging.getLogger(__name__)
_PACKAGE = str(pathlib.Path(__file__).parents[1]) + os.sep


def main(words: Sequence[str] | None = None, *, env_factory: worker.EnvFactory | None = None) -> int:
    """Runs a worker from a command line (default: the process's); returns the exit code. See `run`."""
    try:
        options = worker_options.read(sys.argv[1:] if words is None else words)
    except errors.UsageError as error:
        printable.say(f"error: {error}")
        return errors.BAD_USAGE
    return run(options, env_factory=env_factory)


def run(options: worker_options.WorkerOptions, *, env_factory: worker.EnvFactory | None = None) -> int:
    """Runs a worker as the process's only work, from the main thread; returns the exit code.

    SIGTERM ends it like the learner's End, with exit code 0. So does SIGINT without a supervisor; with one, the end of
    standard input does, however it came.
    """
    options = dataclasses.replace(options, worker_id=options.worker_id or worker.default_worker_id())
    logs.show(f"seedzero worker {options.worker_id}", options.verbosity)
    stop, ended = threading.Event(), threading.Event()
    # A second signal may interrupt the first one's handler: Event.set would wait for itself, this put does not.
    told: queue.SimpleQueue[bool] = queue.SimpleQueue()  # true: the supervisor is gone, or is ending its workers
    signal.signal(signal.SIGTERM, lambda *_: told.put(False))
    # Ctrl-C reaches all processes of the terminal, so a supervisor decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN if options.supervised else lambda *_: told.put(False))
    words = (told, stop, ended, options.close_seconds)
    threading.Thread(target=_stop_when_told, args=words, name="seedzero-told", daemon=True).start()
    progress = worker.WorkerProgress()
    if sys.stderr is sys.__stderr__:
        faulthandler.enable(all_threads=False)  # says which line was running when a simulator in C++ crashes
    leave, os._exit = os._exit, functools.partial(_exit, os._exit, os.getpid(), progress)
    if options.supervised:
        descendants.at_end_of_input(lambda: told.put(True))
    try:
        return worker.run(
            options, env_factory=env_factory, stop=stop, on_failure=lambda: told.put(False), progress=progress
        )
    finally:
        os._exit = leave
        ended.set()


def _exit(leave: Callable[[int], NoReturn], pid: int, progress: worker.WorkerProgress, status: int) -> NoReturn:
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
    told: queue.SimpleQueue[bool], stop: threading.Event, ended: threading.Event, close_seconds: float
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
        os._exit(errors.FAILED)
