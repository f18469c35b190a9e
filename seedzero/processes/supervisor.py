"""Starts local workers, watches them, and starts them again when they die.

Every worker has a thread that starts it, waits for its end and decides what follows, and one that reads its output.
A worker's standard input is a pipe that it only watches: it closes when the supervisor, or its whole process, ends,
however that happens, and the worker ends with it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

FIRST_DELAY_SECONDS = 0.25
MAX_DELAY_SECONDS = 5.0
LONG_LIFE_SECONDS = 10.0
"""A worker that lived longer is started again after the first delay."""
MAX_FAILURES = 5
FAILURE_WINDOW_SECONDS = 60.0
"""So many failures of one worker within this time end training."""
MAX_LINE_BYTES = 8192
MAX_LOG_BYTES = 1_000_000
"""A log that grows beyond this becomes worker-I.log.1, in place of the older one."""
NUM_TAIL_LINES = 20
OUTPUT_SECONDS = 1.0
"""How long a dead worker's output is awaited: a process that the worker left behind may hold it open."""
KILL_SECONDS = 2.0
"""How long a worker that was told to end, by a signal, may take."""

ENVIRONMENT = {
    # One process owns the accelerator. A user's environment may import JAX or another library that would grab it.
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    # A worker has its own threads; those of numerical libraries would only fight with them.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class Process(Protocol):
    """One run of a worker."""

    @property
    def pid(self) -> int: ...
    def lines(self) -> Iterator[bytes]:
        """Yields what it writes, line by line, until it ends."""

    def wait(self) -> int:
        """Blocks until it has ended; returns its exit code, or minus the signal that killed it."""

    def close_input(self) -> None:
        """Tells it to end."""

    def send_signal(self, number: int) -> None:
        """Does nothing when it has ended."""


Launcher = Callable[[Sequence[str]], Process]


class Restarts:
    """Decides after each death of one worker when it is started again. No threads, no clock."""

    def __init__(self) -> None:
        self._deaths_in_a_row = 0
        self._failures: collections.deque[float] = collections.deque(maxlen=MAX_FAILURES)

    def delay_seconds(self, now: float, *, lived_seconds: float, killed: bool) -> float | None:
        """Returns the pause before the next start, or None when the worker is given up.

        Args:
          now: time of the death, monotonic seconds.
          lived_seconds: since the worker was started.
          killed: by SIGKILL, from outside: no failure of the worker, but it waits like one.
        """
        if lived_seconds > LONG_LIFE_SECONDS:
            self._deaths_in_a_row = 0
        if not killed:
            self._failures.append(now)
            if len(self._failures) == MAX_FAILURES and now - self._failures[0] <= FAILURE_WINDOW_SECONDS:
                return None
        delay = FIRST_DELAY_SECONDS * 2.0 ** min(self._deaths_in_a_row, 16)
        self._deaths_in_a_row += 1
        return min(delay, MAX_DELAY_SECONDS)


class WorkerLog:
    """A worker's output: a file of bounded size and the last lines in memory; thread-safe."""

    def __init__(self, path: pathlib.Path, *, max_bytes: int = MAX_LOG_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._tail: collections.deque[str] = collections.deque(maxlen=NUM_TAIL_LINES)
        self._lock = threading.Lock()

    def write(self, line: bytes) -> None:
        """Appends a line; a disk that is full loses the line in the file only."""
        text = line.decode(errors="replace").strip()
        with self._lock:
            if text:
                self._tail.append(text)
            with contextlib.suppress(OSError):
                self._append(line)

    def _append(self, line: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(line)
            num_bytes = file.tell()
        if num_bytes > self._max_bytes:
            self.path.replace(self.path.with_name(self.path.name + ".1"))

    def last_line(self) -> str:
        """Returns the last line of this life that is not empty, or ""."""
        with self._lock:
            return self._tail[-1] if self._tail else ""

    def begin_life(self) -> None:
        """Forgets the lines in memory."""
        with self._lock:
            self._tail.clear()


@dataclasses.dataclass(frozen=True)
class Death:
    """How one run of a worker ended. status: exit code, minus a signal, or None if it could not be started."""

    status: int | None
    lived_seconds: float
    last_line: str

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL

    def __str__(self) -> str:
        return f"{_ending(self.status)}: {self.last_line}" if self.last_line else _ending(self.status)


class Supervisor:
    """Keeps `num` local workers running from `start` to `finish` or `stop`."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        num: int,
        *,
        on_failure: Callable[[str], None],
        log_dir: pathlib.Path,
        report: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
        launch: Launcher | None = None,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        """
        Args:
          command: the command line of worker i; asked at every start.
          num: workers.
          on_failure: called once, with the reason, when a worker is given up; `stop` must not be called from it.
          log_dir: existing directory for worker-I.log.
          report: told of every death and restart.
          clock: monotonic seconds.
          launch: starts a process; raises OSError.
          wait: waits for an event at most so many seconds and returns whether it is set.
        """
        self._command, self._num = command, num
        self._on_failure, self._report = on_failure, report
        self._clock, self._wait = clock, wait
        self._launch = launch or launch_process
        self._logs = [WorkerLog(log_dir / f"worker-{index}.log") for index in range(num)]
        self._lock = threading.Lock()
        self._processes: dict[int, Process] = {}
        self._threads: list[threading.Thread] = []
        self._finishing = threading.Event()
        self._failed = False

    def start(self) -> None:
        """Starts the workers."""
        for index in range(self._num):
            thread = threading.Thread(target=self._keep_running, args=(index,), name=f"worker-{index}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def pids(self) -> dict[int, int]:
        """Returns the process id of each worker that runs now, by its index."""
        with self._lock:
            return {index: process.pid for index, process in self._processes.items()}

    def finish(self) -> None:
        """From now on a worker that ends stays ended: training is finished and workers leave by themselves."""
        with self._lock:
            self._finishing.set()

    def stop(self, timeout_seconds: float) -> None:
        """Ends all workers and returns when they are gone.

        Args:
          timeout_seconds: how long they may take to end by themselves once their pipes are closed; then they are
            terminated, and killed if that does not help either.
        """
        self.finish()
        for process in self._running():
            process.close_input()
        if self._join(timeout_seconds):
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._running():
                process.send_signal(number)
            if self._join(KILL_SECONDS):
                return

    def kill(self) -> None:
        """Kills all workers without waiting for anything, not even a lock: for a process that leaves at once."""
        self._finishing.set()
        for process in self._running():
            process.send_signal(signal.SIGKILL)

    def _keep_running(self, index: int) -> None:
        restarts = Restarts()
        while (death := self._live(index)) is not None:
            delay = restarts.delay_seconds(self._clock(), lived_seconds=death.lived_seconds, killed=death.killed)
            if delay is None:
                self._give_up(index, death)
                return
            self._report(f"worker local-{index} ended ({death}); starting it again in {delay:g} s")
            if self._wait(self._finishing, delay):
                return

    def _live(self, index: int) -> Death | None:
        """Runs worker `index` once; returns how it ended, or None if that is as it should be."""
        log = self._logs[index]
        log.begin_life()
        with self._lock:
            if self._finishing.is_set():
                return None
            began = self._clock()
            try:
                process = self._launch(self._command(index))
            except OSError as error:
                return Death(None, 0.0, f"{error.strerror}: {error.filename}")
            self._processes[index] = process
        reader = threading.Thread(target=_read, args=(process, log), name=f"worker-{index}-output", daemon=True)
        reader.start()
        status = process.wait()
        lived_seconds = self._clock() - began
        with self._lock:
            del self._processes[index]
        process.close_input()
        reader.join(OUTPUT_SECONDS)
        if self._finishing.is_set():
            return None
        return Death(status, lived_seconds, log.last_line())

    def _give_up(self, index: int, death: Death) -> None:
        with self._lock:
            if self._failed or self._finishing.is_set():
                return
            self._failed = True
        self._on_failure(
            f"worker local-{index} failed {MAX_FAILURES} times within {FAILURE_WINDOW_SECONDS:g} s, "
            f"at last with {death}; its output is in {self._logs[index].path}"
        )

    def _running(self) -> list[Process]:
        return list(self._processes.values())

    def _join(self, timeout_seconds: float) -> bool:
        """Waits for all workers' threads; returns whether they have ended."""
        deadline = self._clock() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._clock()))
        return not any(thread.is_alive() for thread in self._threads)


class _Child:
    """A process of the operating system."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen

    @property
    def pid(self) -> int:
        return self._popen.pid

    def lines(self) -> Iterator[bytes]:
        assert self._popen.stdout is not None
        with self._popen.stdout as stream:
            while line := stream.readline(MAX_LINE_BYTES):
                yield line

    def wait(self) -> int:
        return self._popen.wait()

    def close_input(self) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.close()

    def send_signal(self, number: int) -> None:
        self._popen.send_signal(number)


def launch_process(command: Sequence[str], environment: Mapping[str, str] = ENVIRONMENT) -> Process:
    """Starts a worker in a session of its own, so that Ctrl-C at the terminal reaches only the learner."""
    return _Child(
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    )


def _read(process: Process, log: WorkerLog) -> None:
    for line in process.lines():
        log.write(line)


def _ending(status: int | None) -> str:
    if status is None:
        return "it cannot be started"
    if status >= 0:
        return f"exit code {status}"
    names = {number.value: number.name for number in signal.Signals}
    return f"killed by {names.get(-status, f'signal {-status}')}"
