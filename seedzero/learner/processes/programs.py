"""Runs a program as a separate process; the base of `Supervisor`, `Keeper` and `Respawner`."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from seedzero.core import descendants, errors, forks

MAX_LINE_BYTES = 8192
OUTPUT_SECONDS = 1.0
"""Longest wait for a dead program's output, because a process that it started may still hold it open."""

FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.25, 5.0
"""Shortest and longest pause before a program is restarted."""
LONG_LIFE_SECONDS = 10.0
"""After a run longer than this, the first pause is used again."""
MAX_FAILURES = 5
FAILURE_WINDOW_SECONDS = 60.0
"""After this many failures within this time, the program is not restarted."""
FAILURES_OF_A_REFUSAL = 3
"""A program whose work was rejected counts as failing this often: once may be chance, but twice is the end."""

WORKER_ENVIRONMENT = {
    # One process owns the accelerator. A user's environment may import JAX or another library that would grab it.
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    # A worker has its own threads, with which those of numerical libraries would compete.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class Process(subprocess.Popen[bytes]):
    """One run of a program, as a process of the operating system."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options["env"], self._number = descendants.marked(options.get("env") or os.environ)
        super().__init__(*arguments, **options)
        # otherwise a forked child could keep the process running, or its end unnoticed
        forks.keep(self.stdin, self.stdout)

    def lines(self) -> Iterator[bytes]:
        """Yields the output line by line, until it ends."""
        if self.stdout is not None:
            with self.stdout as stream:
                yield from iter(functools.partial(stream.readline, MAX_LINE_BYTES), b"")

    def close_input(self) -> None:
        """Asks the process to end, by closing its input."""
        if self.stdin is not None:
            self.stdin.close()

    def kill_group(self) -> None:
        """Kills a process and all that it has started. The process must lead a session, and may have ended."""
        # PermissionError: macOS raises it for a group of zombies
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        descendants.kill(self._number)


def launch(command: Sequence[str], environment: Mapping[str, str] = WORKER_ENVIRONMENT) -> Process:
    """Starts a process with pipes in a new session, so that Ctrl-C at the terminal does not reach it.

    The program must watch its standard input, a pipe that closes when this process ends, however that happens.
    """
    pipes: dict[str, Any] = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return Process(command, **pipes, env={**os.environ, **environment}, start_new_session=True)


IDLE = 19
"""Niceness of a program that only observes."""


@dataclasses.dataclass(frozen=True)
class System:
    """Functions of the operating system, which tests replace. launch: raises OSError. clock: monotonic seconds."""

    launch: Callable[[Sequence[str]], Process] = launch
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait


REAL = System()


@dataclasses.dataclass(frozen=True)
class Death:
    """How a run ended. status: exit code, or minus the signal; None if the program could not be started."""

    status: int | None
    lived_seconds: float
    last_line: str

    @property
    def too_often(self) -> str:
        """Tells the user why the program is given up after this failure."""
        often = "again" if self.status == errors.REFUSED else f"{MAX_FAILURES} times"
        return f"failed {often} within {FAILURE_WINDOW_SECONDS:g} s, the last time with {self}"

    def __str__(self) -> str:
        if self.status is None:
            ending = "it cannot be started"
        elif self.status >= 0:
            ending = f"exit code {self.status}"
        else:
            names = {number.value: number.name for number in signal.Signals}
            ending = f"killed by {names.get(-self.status, f'signal {-self.status}')}"
        return f"{ending}: {self.last_line}" if self.last_line else ending


class Program:
    """A program that can be run again and again.

    One thread may call `live`, `delay_seconds` and `pause`; any thread may use the rest.

    `write` receives each line of output, on a separate thread. Between two runs `process` is None; once `stopping` is
    set, no further run begins.
    """

    def __init__(self, write: Callable[[bytes], None], system: System = REAL) -> None:
        self.process: Process | None = None
        self.stopping = threading.Event()
        self._write, self._system = write, system
        self._deaths_in_a_row = 0
        self._failures: collections.deque[float] = collections.deque(maxlen=MAX_FAILURES)
        self._starting = threading.Lock()
        self._last_line = ""

    def live(
        self, command: Sequence[str], *, niceness: int = 0, started: Callable[[], None] = lambda: None
    ) -> Death | None:
        """Runs the program once and returns how it ended, or None if `stopping` was set before.

        niceness: with `IDLE` it uses only cores that others leave idle; 0 is a normal share. started: called before
        the output is read.
        """
        with self._starting:
            if self.stopping.is_set():
                return None
            began, self._last_line = self._system.clock(), ""
            try:
                self.process = process = self._system.launch(command)
            except OSError as error:
                return Death(None, 0.0, f"{error.strerror}: {error.filename}")
        if niceness:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        started()
        reader = threading.Thread(target=self._read, args=(process,), name="program-output", daemon=True)
        reader.start()
        status = process.wait()
        lived_seconds = self._system.clock() - began
        self.process = None
        process.close_input()
        process.kill_group()
        reader.join(OUTPUT_SECONDS)
        return Death(status, lived_seconds, self._last_line)

    def delay_seconds(self, death: Death) -> float | None:
        """Counts a failure; returns the pause before the next run, or None after too many failures.

        SIGKILL comes from outside, so it does not count as a failure, but needs the same pause. A worker
        that completed episodes begins a new count.
        """
        now = self._system.clock()
        if death.status == errors.FAILED_LATER:
            self._failures.clear()
        if death.lived_seconds > LONG_LIFE_SECONDS or death.status == errors.FAILED_LATER:
            self._deaths_in_a_row = 0
        if death.status != -signal.SIGKILL:
            self._failures.extend([now] * (FAILURES_OF_A_REFUSAL if death.status == errors.REFUSED else 1))
            if len(self._failures) == MAX_FAILURES and now - self._failures[0] <= FAILURE_WINDOW_SECONDS:
                return None
        delay = FIRST_DELAY_SECONDS * 2.0 ** min(self._deaths_in_a_row, 16)
        self._deaths_in_a_row += 1
        return min(delay, MAX_DELAY_SECONDS)

    def pause(self, seconds: float) -> bool:
        """Sleeps until the time is over or `stopping` is set; returns whether it is."""
        return self._system.wait(self.stopping, seconds)

    def finish(self) -> None:
        """Sets `stopping`, after a start in progress; `process` is the last one then."""
        with self._starting:
            self.stopping.set()

    def kill(self) -> None:
        """Kills the present run, if any, with all that it has started."""
        if (process := self.process) is not None:  # another thread may set it to None
            process.kill_group()

    def _read(self, process: Process) -> None:
        crash = ""  # what `faulthandler` calls the signal; below it are the frames, the innermost one first
        for line in process.lines():
            text = line.decode(errors="replace").strip()
            if text.startswith("Fatal Python error: "):
                self._last_line = crash = text
            elif not crash:
                self._last_line = text or self._last_line
            elif self._last_line == crash and text.startswith("File "):
                self._last_line = f"{crash} ({text})"
            self._write(line)
