"""One program as a process of its own: its start, output and end. `Supervisor`, `Keeper` and `respawn` build on it."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from seedzero.processes import restarts

MAX_LINE_BYTES = 8192
OUTPUT_SECONDS = 1.0
"""Longest wait for a dead program's output: a process that it left behind may hold it open."""

WORKER_ENVIRONMENT = {
    # One process owns the accelerator. A user's environment may import JAX or another library that would grab it.
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    # A worker has its own threads; those of numerical libraries would only fight with them.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class Process(subprocess.Popen[bytes]):
    """One life of a program, as a process of the operating system."""

    def lines(self) -> Iterator[bytes]:
        """Yields its output, line by line, until it ends."""
        if self.stdout is not None:
            with self.stdout as stream:
                while line := stream.readline(MAX_LINE_BYTES):
                    yield line

    def close_input(self) -> None:
        """Tells it to end."""
        if self.stdin is not None:
            self.stdin.close()


def launch(command: Sequence[str], environment: Mapping[str, str] = WORKER_ENVIRONMENT) -> Process:
    """Starts a process with pipes, in a session of its own: Ctrl-C at the terminal does not reach it.

    The program watches its standard input: that pipe closes when this process ends, however that happens.
    """
    return Process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def launch_attached(command: Sequence[str]) -> Process:
    """Starts a process that shares input, output and terminal with this one."""
    return Process(command)


@dataclasses.dataclass(frozen=True)
class System:
    """The operating system's part; tests replace it.

    Attributes:
      launch: starts a process; raises OSError.
      clock: monotonic seconds.
      wait: waits for an event at most so many seconds and returns whether it is set.
    """

    launch: Callable[[Sequence[str]], Process] = launch
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait


REAL = System()


@dataclasses.dataclass(frozen=True)
class Death:
    """The end of one life. status: exit code, minus a signal, or None if the program could not be started."""

    status: int | None
    lived_seconds: float
    last_line: str

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL

    def __str__(self) -> str:
        return f"{_ending(self.status)}: {self.last_line}" if self.last_line else _ending(self.status)


class Program:
    """One program, life after life. `live`, `delay_seconds` and `pause` are for one thread, all else for any.

    `write` takes each line of output, on a thread of its own.

    Attributes:
      process: its present life, None between two.
      stopping: once set, no life begins any more.
    """

    def __init__(self, write: Callable[[bytes], None], system: System = REAL) -> None:
        self.process: Process | None = None
        self.stopping = threading.Event()
        self._write, self._system = write, system
        self._restarts = restarts.Restarts()
        self._starting = threading.Lock()
        self._last_line = ""

    def live(self, command: Sequence[str], *, started: Callable[[], None] = lambda: None) -> Death | None:
        """Runs the program once and returns its end, None where it was to stop before.

        started: called when the process runs, before its output is read.
        """
        with self._starting:
            if self.stopping.is_set():
                return None
            began, self._last_line = self._system.clock(), ""
            try:
                self.process = process = self._system.launch(command)
            except OSError as error:
                return Death(None, 0.0, f"{error.strerror}: {error.filename}")
        started()
        reader = threading.Thread(target=self._read, args=(process,), name="program-output", daemon=True)
        reader.start()
        status = process.wait()
        lived_seconds = self._system.clock() - began
        self.process = None
        process.close_input()
        reader.join(OUTPUT_SECONDS)
        return Death(status, lived_seconds, self._last_line)

    def delay_seconds(self, death: Death) -> float | None:
        """Counts a failure; returns the pause before the next life, None when it has failed too often."""
        return self._restarts.delay_seconds(
            self._system.clock(), lived_seconds=death.lived_seconds, killed=death.killed
        )

    def pause(self, seconds: float) -> bool:
        """Sleeps, at most until `stopping` is set; returns whether it is."""
        return self._system.wait(self.stopping, seconds)

    def finish(self) -> None:
        """Sets `stopping`; a start under way is completed first, so that `process` is the last one."""
        with self._starting:
            self.stopping.set()

    def _read(self, process: Process) -> None:
        for line in process.lines():
            self._last_line = line.decode(errors="replace").strip() or self._last_line
            self._write(line)


def _ending(status: int | None) -> str:
    if status is None:
        return "it cannot be started"
    if status >= 0:
        return f"exit code {status}"
    names = {number.value: number.name for number in signal.Signals}
    return f"killed by {names.get(-status, f'signal {-status}')}"
