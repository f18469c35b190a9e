"""Keeps one worker process running on a machine of its own: starts it again when it fails or its learner has moved."""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
import time
import types
from collections.abc import Callable, Sequence

from seedzero.core import errors
from seedzero.processes import supervisor

_log = logging.getLogger(__name__)

POLL_SECONDS = 15.0
"""How often the learner's address is looked up."""


class Worker:
    """Runs a worker from the main thread of its process, whose output it shares.

    SIGTERM and SIGINT are passed on; then the worker's end is this one's.
    """

    def __init__(
        self,
        command: Callable[[str], Sequence[str]],
        address: Callable[[], str | None],
        *,
        poll_seconds: float = POLL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
          command: the command line for a learner's address.
          address: where the learner is now; None: it has not said so yet.
          poll_seconds: between two questions.
          clock: monotonic seconds.
        """
        self._command, self._address = command, address
        self._poll_seconds, self._clock = poll_seconds, clock
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Returns the worker's exit code when training is over, when it was told to stop, or when it keeps failing."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        restarts = supervisor.Restarts()
        while (address := self._wait_for_learner()) is not None:
            began = self._clock()
            status = self._live(address)
            if status == 0 or self._stop.is_set():
                return _exit_code(status)
            if self._ask(address) != address:
                continue
            now = self._clock()
            killed = status == -signal.SIGKILL
            pause = restarts.delay_seconds(now, lived_seconds=now - began, killed=killed)
            if pause is None:
                limit, window = supervisor.MAX_FAILURES, supervisor.FAILURE_WINDOW_SECONDS
                _log.error("the worker failed %d times within %g s; this machine gives up", limit, window)
                return _exit_code(status)
            _log.warning("the worker ended with %d; starting it again in %g s", status, pause)
            self._stop.wait(pause)
        return 0

    def _wait_for_learner(self) -> str | None:
        """Returns its address, or None when this shall stop."""
        said = False
        while not self._stop.is_set():
            if (address := self._ask(None)) is not None:
                return address
            if not said:
                _log.info("waiting for the learner to write its address")
            said = True
            self._stop.wait(self._poll_seconds)
        return None

    def _ask(self, known: str | None) -> str | None:
        """Returns the learner's address; the known one where nobody can tell."""
        try:
            return self._address()
        except errors.UsageError:
            raise
        except errors.Error as error:
            _log.warning("%s", error)
            return known

    def _live(self, address: str) -> int:
        """Runs the worker until it ends or its learner is elsewhere; returns its exit code, or minus a signal."""
        self._process = process = subprocess.Popen(self._command(address))
        if self._stop.is_set():  # the signal came before there was a process to pass it on to
            process.terminate()
        while True:
            try:
                return process.wait(self._poll_seconds)
            except subprocess.TimeoutExpired:
                if not self._stop.is_set() and (now := self._ask(address)) != address:
                    _log.info("the learner has moved from %s to %s", address, now)
                    process.terminate()
                    process.wait()
                    return -signal.SIGTERM

    def _end(self, number: int, frame: types.FrameType | None) -> None:
        self._stop.set()
        if self._process is not None:
            self._process.terminate()


def _exit_code(status: int) -> int:
    """Returns what a shell would call this end."""
    return 128 - status if status < 0 else status
