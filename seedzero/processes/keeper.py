"""Keeps one program running inside an actor: starts it, reads its output, starts it again when it ends.

The program is a process of its own: a learner handles signals on its main thread and may be killed by the system for
its memory, and neither is the actor's to suffer. Its standard input is a pipe that it watches; when the actor ends,
however that happens, the program ends too.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from seedzero.core import errors
from seedzero.processes import supervisor

KILL_SECONDS = 5.0
"""How long a program that was terminated for a new start may take before it is killed."""
PEACE_SECONDS = 5.0
"""Pause before a program is started again that ended with exit code 0 or TRY_LATER."""
TRY_LATER = 75
"""Exit code of a learner whose run directory another one uses."""
OUTPUT_SECONDS = 1.0
"""How long a dead program's output is awaited: a process that it left behind may hold it open."""


class State(enum.StrEnum):
    """What a program is about."""

    IDLE = "idle"  # it has not been told to run
    PREPARING = "preparing"  # before its next start
    RUNNING = "running"
    FINISHED = "finished"  # its work is done
    FAILED = "failed"  # it can't run, or failed too often
    STOPPED = "stopped"  # it was told to


OVER = frozenset({State.FINISHED, State.FAILED, State.STOPPED})
"""States that last."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The state of a program at one moment.

    Attributes:
      number: of changes before.
      state: what it is about.
      starts: how often it was started.
      heard: what its announcement said, in this life of it or the last; "" where that came to none.
      status: exit code of the last end, or minus the signal; None before.
      problem: how it ended the last time, or why it does not start; "" for nothing.
    """

    number: int = 0
    state: State = State.IDLE
    starts: int = 0
    heard: str = ""
    status: int | None = None
    problem: str = ""


class Verdict(NamedTuple):
    """What the end of a program means, where it is not to be started again: FINISHED or FAILED, and why."""

    state: State
    reason: str


class Keeper:
    """One program; thread-safe."""

    def __init__(
        self,
        *,
        announcement: str,
        judge: Callable[[supervisor.Death], Verdict | None],
        write: Callable[[bytes], None],
        launch: supervisor.Launcher = supervisor.launch_process,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        """
        Args:
          announcement: regular expression with one group, looked for in every line of output.
          judge: says of each end that nobody asked for what it means; None: start it again.
          write: takes each line of output.
          launch: starts a process; raises OSError.
          clock: monotonic seconds.
          wait: waits for an event at most so many seconds and returns whether it is set.
        """
        self._announcement = re.compile(announcement.encode())
        self._judge, self._write, self._launch = judge, write, launch
        self._clock, self._wait = clock, wait
        self._changed = threading.Condition()
        self._snapshot = Snapshot()
        self._process: supervisor.Process | None = None
        self._renewed = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_line = ""

    def start(self, command: Callable[[], Sequence[str]]) -> None:
        """Starts the program, and again whenever it ends.

        Args:
          command: asked before every start, for its command line; may block.
        """
        self._thread = threading.Thread(target=self._keep_running, args=(command,), name="keeper", daemon=True)
        self._thread.start()

    def snapshot(self, *, after: int = -1, seconds: float = 0.0) -> Snapshot:
        """Returns the state, once it has changed from that of number `after` or so many seconds have passed."""
        with self._changed:
            self._changed.wait_for(lambda: self._snapshot.number != after, seconds)
            return self._snapshot

    def tell(self, problem: str) -> None:
        """Says why the next start must wait."""
        self._change(problem=problem)

    def renew(self) -> None:
        """Ends the program politely; it is started again at once."""
        with self._changed:
            process, self._renewed = self._process, self._process is not None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            timer = threading.Timer(KILL_SECONDS, process.send_signal, args=(signal.SIGKILL,))
            timer.daemon = True
            timer.start()

    def stop(self, seconds: float) -> Snapshot:
        """Terminates the program for good, kills it if it has not ended within `seconds`; returns the last state."""
        self._stopping.set()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self._changed:
                process = self._process
            if process is None or self._thread is None:
                break  # and none is started any more
            process.send_signal(number)
            self._thread.join(seconds)
        with self._changed:
            if self._snapshot.state not in OVER:
                self._set(state=State.STOPPED)
            return self._snapshot

    def _keep_running(self, command: Callable[[], Sequence[str]]) -> None:
        try:
            self._until_over(command)
        except errors.Error as error:
            self._change(state=State.FAILED, problem=str(error))
        except Exception as error:  # whatever ends this thread must be told, or nobody would know
            self._change(state=State.FAILED, problem=f"{type(error).__name__}: {error}")

    def _until_over(self, command: Callable[[], Sequence[str]]) -> None:
        restarts = supervisor.Restarts()
        while not self._stopping.is_set():
            death = self._live(command)
            if death is None:
                return
            self._change(status=death.status, problem="" if death.status == 0 else str(death))
            if self._stopping.is_set() or self._take_renewed():
                continue
            verdict = self._judge(death)
            if verdict is not None:
                self._change(state=verdict.state, problem=verdict.reason)
                return
            delay = _delay_seconds(restarts, self._clock(), death)
            if delay is None:
                self._change(state=State.FAILED, problem=_gave_up(death))
                return
            self._change(state=State.PREPARING)
            self._wait(self._stopping, delay)

    def _live(self, command: Callable[[], Sequence[str]]) -> supervisor.Death | None:
        """Runs the program once; returns how it ended, None where it was stopped before."""
        self._change(state=State.PREPARING)
        words = command()
        began = self._clock()
        with self._changed:
            if self._stopping.is_set():
                return None
            self._last_line = ""
            try:
                self._process = process = self._launch(words)
            except OSError as error:
                return supervisor.Death(None, 0.0, f"{error.strerror}: {error.filename}")
            self._set(state=State.RUNNING, starts=self._snapshot.starts + 1, heard="", problem="")
        reader = threading.Thread(target=self._read, args=(process,), name="keeper-output", daemon=True)
        reader.start()
        status = process.wait()
        lived_seconds = self._clock() - began
        with self._changed:
            self._process = None
        process.close_input()
        reader.join(OUTPUT_SECONDS)
        return supervisor.Death(status, lived_seconds, self._last_line)

    def _read(self, process: supervisor.Process) -> None:
        for line in process.lines():
            self._write(line)
            self._last_line = line.decode(errors="replace").strip() or self._last_line
            found = self._announcement.search(line)
            if found and self._process is process:
                self._change(heard=found[1].decode())

    def _take_renewed(self) -> bool:
        with self._changed:
            renewed, self._renewed = self._renewed, False
            return renewed

    def _change(self, **values: object) -> None:
        with self._changed:
            self._set(**values)

    def _set(self, **values: object) -> None:
        changed = dataclasses.replace(self._snapshot, **values)  # type: ignore[arg-type]
        if changed != self._snapshot:
            self._snapshot = dataclasses.replace(changed, number=changed.number + 1)
            self._changed.notify_all()


def _delay_seconds(restarts: supervisor.Restarts, now: float, death: supervisor.Death) -> float | None:
    """Returns the pause before the next start, None where the program is given up.

    One that ended in peace has mostly been told that training is over, which will be known here soon. One that found
    its run directory in use waits for a learner that still saves.
    """
    if death.status in (0, TRY_LATER):
        return PEACE_SECONDS
    return restarts.delay_seconds(now, lived_seconds=death.lived_seconds, killed=death.killed)


def _gave_up(death: supervisor.Death) -> str:
    return f"{supervisor.MAX_FAILURES} failures within {supervisor.FAILURE_WINDOW_SECONDS:g} s, at last: {death}"
