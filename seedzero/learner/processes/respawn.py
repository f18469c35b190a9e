"""Keeps a worker running on a separate machine: restarts it after a failure, or after the learner has moved."""

from __future__ import annotations

import functools
import logging
import queue
import signal
import threading
from collections.abc import Callable, Sequence

from seedzero.core import errors
from seedzero.learner.processes import keepers, programs

_log = logging.getLogger(__name__)

POLL_SECONDS = 15.0
"""Time between two look-ups of the learner's address."""
LEAVE_SECONDS = 30.0
"""Time for a stopped worker to leave before it is killed."""


class Respawner:
    """Runs a worker from the main thread, with the same output; forwards SIGTERM and SIGINT."""

    def __init__(
        self,
        command: Callable[[str], Sequence[str]],
        address: Callable[[], str | None],
        *,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """address: returns the learner's address, None until it is written.

        command: returns the command line for it.
        """
        self._command, self._address, self._poll_seconds = command, address, poll_seconds
        self._signals: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._told = threading.Event()
        self._server = ""
        # In another session, so that simulators which a crashed worker has started end with it.
        system = programs.System(functools.partial(programs.Process, start_new_session=True))
        self._keeper = keepers.Keeper(announcement="(?!)", judge=_judge, write=lambda line: None, system=system)

    def run(self) -> int:
        """Returns the worker's exit code when training is over, after a stop, or after repeated failures."""
        for number in (signal.SIGTERM, signal.SIGINT):
            # A second signal may interrupt the first one's handler: Event.set would wait for itself.
            signal.signal(number, lambda *_: self._signals.put(None))
        threading.Thread(target=self._stop_when_told, name="stop", daemon=True).start()
        self._look_up()
        self._keeper.start(self._words)
        try:
            last = self._watch()
        finally:
            self._keeper.stop(LEAVE_SECONDS)  # so that an error leaves no worker running
        if last.state is keepers.ProgramState.FAILED:
            _log.error("the worker %s; this machine gives up", last.problem)
        return _exit_code(last)

    def _watch(self) -> keepers.ProgramSnapshot:
        """Follows the learner until the end; returns the last state."""
        last = self._keeper.snapshot()
        while last.state not in keepers.OVER:
            before, last = last, self._keeper.snapshot(after=last.number, seconds=self._poll_seconds)
            if last.problem and last.state is keepers.ProgramState.PREPARING is not before.state:
                _log.warning("the worker: %s; starting it again", last.problem)
            if last.state is keepers.ProgramState.RUNNING and not self._told.is_set():
                self._follow()
        return last

    def _stop_when_told(self) -> None:
        self._signals.get()
        self._told.set()
        self._keeper.stop(LEAVE_SECONDS)

    def _words(self) -> Sequence[str]:
        """Returns the worker's command line once there is a learner."""
        if not self._server:
            _log.info("waiting for the learner to write its address")
        while not self._server and not self._keeper.pause(self._poll_seconds):
            self._look_up()
        return self._command(self._server)

    def _follow(self) -> None:
        server = self._server
        self._look_up()
        if self._server != server:
            _log.info("the learner has moved from %s to %s", server, self._server)
            self._keeper.renew()

    def _look_up(self) -> None:
        """Looks up the learner's address; without an answer, the known one is kept."""
        try:
            self._server = self._address() or self._server
        except errors.UsageError:
            raise
        except errors.Error as error:
            _log.warning("%s", error)


def _judge(death: programs.Death) -> keepers.Verdict | None:
    over = keepers.Verdict(keepers.ProgramState.FINISHED, "training is over")
    return over if death.status == errors.DONE else None


def _exit_code(last: keepers.ProgramSnapshot) -> int:
    """Returns a shell's exit code for the last end."""
    if last.status is None:
        return errors.FAILED if last.state is keepers.ProgramState.FAILED else errors.DONE
    return 128 - last.status if last.status < 0 else last.status
