"""Keeps a program of an actor running: starts it, reads its output, and restarts it when it ends.

The program runs in a separate process, because a learner handles signals on its main thread and may be killed by the
system for its memory, and neither may affect the actor. It watches its standard input, a pipe: when the actor ends,
however that happens, the program ends, too.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import logging
import queue
import re
import signal
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from seedzero.core import errors
from seedzero.learner.processes import programs

KILL_SECONDS = 5.0
"""Time for a program to end after being terminated for a restart, before it is killed."""
PEACE_SECONDS = 5.0
"""Pause before restarting a program that ended with DONE or TRY_LATER.

After DONE training is mostly over, which this side will soon hear; with TRY_LATER a learner is still saving.
"""


class ProgramState(enum.StrEnum):
    IDLE = "idle"  # before `start`
    PREPARING = "preparing"  # waits for its next start
    RUNNING = "running"
    FINISHED = "finished"  # has done its work
    FAILED = "failed"  # cannot run, or failed too often
    STOPPED = "stopped"  # by `stop`


OVER = frozenset({ProgramState.FINISHED, ProgramState.FAILED, ProgramState.STOPPED})
"""Final states."""


@dataclasses.dataclass(frozen=True)
class ProgramSnapshot:
    number: int = 0  # counts changes
    state: ProgramState = ProgramState.IDLE
    starts: int = 0  # number of starts
    heard: str = ""  # text of the announcement in this or the last run; "" if that run made none
    status: int | None = None  # exit code of the last run, or minus the signal; None before
    problem: str = ""  # why the last run ended, or the next start is delayed; "" for no problem


class Verdict(NamedTuple):
    """What a final end means: FINISHED or FAILED, with the reason."""

    state: ProgramState
    reason: str


class Keeper:
    """Keeps a program running. Thread-safe."""

    def __init__(
        self,
        *,
        announcement: str,
        judge: Callable[[programs.Death], Verdict | None],
        write: Callable[[bytes], None],
        system: programs.System = programs.REAL,
    ) -> None:
        """Looks for the announcement, a regular expression with one group, in every line of output.

        judge: returns what an unrequested end means, or None to restart the program. write: receives each line.
        """
        self._announcement = re.compile(announcement.encode())
        self._judge, self._write = judge, write
        self._program = programs.Program(self._read, system)
        self._changed = threading.Condition()
        self._snapshot = ProgramSnapshot()
        self._renewed = False
        self._thread: threading.Thread | None = None

    def start(self, command: Callable[[], Sequence[str]]) -> None:
        """Starts the program, and restarts it whenever it ends. command: called before every start; may block."""
        self._thread = threading.Thread(target=self._keep_running, args=(command,), name="keeper", daemon=True)
        self._thread.start()

    def snapshot(self, *, after: int = -1, seconds: float = 0.0) -> ProgramSnapshot:
        """Returns the state once it differs from number `after`, or after a time in seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._snapshot.number != after, seconds)
            return self._snapshot

    def tell(self, problem: str) -> None:
        """Sets the reason why the next start has to wait."""
        self._change(problem=problem)

    def pause(self, seconds: float) -> bool:
        """Sleeps until the time is over or `stop` is called; returns whether it was."""
        return self._program.pause(seconds)

    def renew(self) -> None:
        """Terminates the program so that it is restarted at once, also one whose start is in progress."""
        with self._changed:
            process = self._program.process
            self._renewed = process is not None or self._snapshot.state is ProgramState.PREPARING
        if process is not None:
            process.send_signal(signal.SIGTERM)
            timer = threading.Timer(KILL_SECONDS, process.send_signal, args=(signal.SIGKILL,))
            timer.daemon = True
            timer.start()

    def stop(self, seconds: float) -> ProgramSnapshot:
        """Terminates the program for good and kills it after `seconds`; returns the last state."""
        self._program.finish()
        for number in (signal.SIGTERM, signal.SIGKILL):
            process = self._program.process
            if process is None or self._thread is None:
                break  # no other one will start
            process.send_signal(number)
            self._thread.join(seconds)
        with self._changed:
            if self._snapshot.state not in OVER:
                self._change(state=ProgramState.STOPPED)
            return self._snapshot

    def _keep_running(self, command: Callable[[], Sequence[str]]) -> None:
        try:
            verdict = self._until_over(command)
        except Exception as error:  # only the snapshot can show that this thread has failed
            kind = "" if isinstance(error, errors.Error) else f"{type(error).__name__}: "
            verdict = Verdict(ProgramState.FAILED, f"{kind}{error}")
        if verdict is not None:
            self._change(state=verdict.state, problem=verdict.reason)

    def _until_over(self, command: Callable[[], Sequence[str]]) -> Verdict | None:
        """Runs the program until its final end; returns None after a stop."""
        while not self._program.stopping.is_set():
            self._change(state=ProgramState.PREPARING)
            self._renewed = False  # `command` knows all so far
            death = self._program.live(command(), started=self._started)
            if death is None:
                return None
            self._change(status=death.status, problem="" if death.status == errors.DONE else str(death))
            if self._program.stopping.is_set() or self._renewed:
                continue
            if (verdict := self._judge(death)) is not None:
                return verdict
            is_peaceful = death.status in (errors.DONE, errors.TRY_LATER)
            delay = PEACE_SECONDS if is_peaceful else self._program.delay_seconds(death)
            if delay is None:
                return Verdict(ProgramState.FAILED, death.too_often)
            self._change(state=ProgramState.PREPARING)
            self._program.pause(delay)
        return None

    def _started(self) -> None:
        self._change(state=ProgramState.RUNNING, starts=self._snapshot.starts + 1, heard="", problem="")
        if self._renewed:  # since the command was made
            self.renew()

    def _read(self, line: bytes) -> None:
        self._write(line)
        if (found := self._announcement.search(line)) and self._program.process is not None:
            self._change(heard=found[1].decode())

    def _change(self, **values: object) -> None:
        with self._changed:
            if self._snapshot.state in OVER:  # a stop has come between two steps of the thread
                return
            changed = dataclasses.replace(self._snapshot, **values)  # type: ignore[arg-type]
            if changed != self._snapshot:
                self._snapshot = dataclasses.replace(changed, number=changed.number + 1)
                self._changed.notify_all()


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
        self._keeper = Keeper(announcement="(?!)", judge=_judge, write=lambda line: None, system=system)

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
        if last.state is ProgramState.FAILED:
            _log.error("the worker %s; this machine gives up", last.problem)
        return _exit_code(last)

    def _watch(self) -> ProgramSnapshot:
        """Follows the learner until the end; returns the last state."""
        last = self._keeper.snapshot()
        while last.state not in OVER:
            before, last = last, self._keeper.snapshot(after=last.number, seconds=self._poll_seconds)
            if last.problem and last.state is ProgramState.PREPARING is not before.state:
                _log.warning("the worker: %s; starting it again", last.problem)
            if last.state is ProgramState.RUNNING and not self._told.is_set():
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


def _judge(death: programs.Death) -> Verdict | None:
    over = Verdict(ProgramState.FINISHED, "training is over")
    return over if death.status == errors.DONE else None


def _exit_code(last: ProgramSnapshot) -> int:
    """Returns a shell's exit code for the last end."""
    if last.status is None:
        return errors.FAILED if last.state is ProgramState.FAILED else errors.DONE
    return 128 - last.status if last.status < 0 else last.status
