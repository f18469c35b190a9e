"""Runs a worker as a process: command line, log on stderr, signals, and the pipe from a supervisor."""

from __future__ import annotations

import dataclasses
import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence

from seedzero.config import worker_options
from seedzero.core import descendants, errors, exit_codes, logs, printable
from seedzero.worker import worker


def main(words: Sequence[str] | None = None, *, env_factory: worker.EnvFactory | None = None) -> int:
    """Runs a worker from a command line (default: the process's); returns the exit code. See `run`."""
    try:
        options = worker_options.read(sys.argv[1:] if words is None else words)
    except errors.UsageError as error:
        printable.say(f"error: {error}")
        return exit_codes.BAD_USAGE
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
    if options.supervised:
        descendants.at_end_of_input(lambda: told.put(True))
    try:
        return worker.run(options, env_factory=env_factory, stop=stop, on_failure=lambda: told.put(False))
    finally:
        ended.set()


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
        os._exit(exit_codes.FAILED)
