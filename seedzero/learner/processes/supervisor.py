"""Starts a learner's local workers, restarts them when they die, and ends them by closing their pipes."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import signal
import threading
from collections.abc import Callable, Sequence

from seedzero.core import plain_files
from seedzero.learner.processes import programs

MAX_LOG_BYTES = 1_000_000
"""A log that grows beyond this is renamed to worker-I.log.1, which replaces the older one."""
KILL_SECONDS = 2.0
"""Time for a worker to end after a signal."""


def write_log(path: pathlib.Path, line: bytes) -> None:
    """Appends a line of a worker's output to a file of limited size; if the disk is full, the line is lost."""
    with contextlib.suppress(OSError):
        with open(path, "ab", opener=plain_files.opener) as file:
            file.write(line)
            num_bytes = file.tell()
        if num_bytes > MAX_LOG_BYTES:
            path.replace(path.with_name(path.name + ".1"))


class Supervisor:
    """Keeps `num` local workers running from `start` until `finish` or `stop`, each on its own thread."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        num: int,
        *,
        on_failure: Callable[[str], None],
        log_dir: pathlib.Path,
        report: Callable[[str], None] = lambda text: None,
        name: Callable[[int], str] = "local-{}".format,
        system: programs.System = programs.REAL,
    ) -> None:
        """Prepares the workers.

        Args:
          command: returns the command of worker i; called at every start.
          log_dir: existing directory for worker-I.log.
          on_failure: called once, with the reason, when a worker fails too often; must not call `stop`.
          report: receives a message about every death, with the worker's `name`.
        """
        self._command, self._clock = command, system.clock
        self._on_failure, self._report, self._name = on_failure, report, name
        self._logs = [log_dir / f"worker-{index}.log" for index in range(num)]
        self._programs = [programs.Program(functools.partial(write_log, log), system) for log in self._logs]
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._failed = False

    def start(self) -> None:
        for index in range(len(self._programs)):
            thread = threading.Thread(target=self._keep_running, args=(index,), name=f"worker-{index}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def restart(self, name: str) -> None:
        """Kills the named worker, if present, so that it is restarted, because its environments hang."""
        for index, worker in enumerate(self._programs):
            if self._name(index) == name:
                worker.kill()

    def finish(self) -> None:
        """Stops restarting workers, because training is over and they leave by themselves."""
        for worker in self._programs:
            worker.finish()

    def stop(self, timeout_seconds: float) -> None:
        """Ends all workers, by signals if necessary, and returns when they are gone.

        timeout_seconds: time for them to end by themselves once their pipes are closed.
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
        """Kills all workers without waiting for anything, not even a lock, for a process that leaves at once."""
        for worker in self._programs:
            worker.stopping.set()
        for process in self._running():
            process.kill_group()

    def _running(self) -> list[programs.Process]:
        return [process for worker in self._programs if (process := worker.process)]

    def _keep_running(self, index: int) -> None:
        worker = self._programs[index]
        while (death := worker.live(self._command(index))) is not None and not worker.stopping.is_set():
            if (delay := worker.delay_seconds(death)) is None:
                return self._give_up(index, death)
            self._report(f"worker {self._name(index)} ended ({death}); starting it again in {delay:g} s")
            worker.pause(delay)

    def _give_up(self, index: int, death: programs.Death) -> None:
        with self._lock:
            if self._failed or self._programs[index].stopping.is_set():
                return
            self._failed = True
        self._on_failure(f"worker {self._name(index)} {death.too_often}; its output is in {self._logs[index]}")

    def _join(self, timeout_seconds: float) -> bool:
        """Waits for the threads of all workers; returns whether all have ended."""
        deadline = self._clock() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._clock()))
        return not any(thread.is_alive() for thread in self._threads)
