"""Runs a worker on a thread of the learner's process, so that breakpoints and prints of environments work."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from seedzero.core import errors

Worker = Callable[[str, threading.Event], int]
"""Steps environments for the learner at an address until told to stop; returns the exit code."""


class InProcess:
    """The only local worker, with the methods of `Supervisor`; it is not started again."""

    def __init__(
        self, work: Worker, server: str, on_failure: Callable[[str], None], environment: dict[str, str]
    ) -> None:
        """on_failure: called with a reason when the worker fails. environment: variables that the worker reads."""
        self._work, self._server, self._on_failure, self._environment = work, server, on_failure, environment
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name="environments", daemon=True)

    def start(self) -> None:
        os.environ.update(self._environment)
        self._thread.start()

    def restart(self, name: str) -> None:
        """Leaves the worker alone: its environments may wait at a breakpoint."""

    def finish(self) -> None:
        """Has nothing to do: the worker leaves by itself."""

    def stop(self, timeout_seconds: float) -> None:
        """Asks the worker to end, and waits for it; one at a breakpoint is abandoned."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def kill(self) -> None:
        self._stop.set()

    def _live(self) -> None:
        code = errors.FAILED
        try:
            code = self._work(self._server, self._stop)
        finally:
            if code != errors.DONE:
                self._on_failure("the environments of --debug failed")
