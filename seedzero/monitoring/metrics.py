"""Metrics: means between two rows, rows of metrics.jsonl, scalars for TensorBoard."""

from __future__ import annotations

import collections
import os
import pathlib
import threading
import time
from collections.abc import Callable, Mapping

from seedzero.checkpoints import run_dir as run_dirs
from seedzero.config import config as configs
from seedzero.core import plain_files
from seedzero.monitoring import event_file

Value = float | int | str | None

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_DIRECTORY = "tensorboard"
FIRST_KEYS = ("update", "env_steps", "seconds")
"""Every row begins with these: updates, training steps, seconds of this run."""
RECENT_EPISODES = 100


class MetricsLog:
    """Appends rows to metrics.jsonl and TensorBoard; thread-safe.

    A full or read-only disk does not end training: the row is lost, and the first failure is reported.
    """

    def __init__(
        self,
        run_dir: pathlib.Path,
        *,
        tensorboard: bool,
        report: Callable[[str], None],
        wall_clock: Callable[[], float] = time.time,
        config: configs.Config | None = None,
    ) -> None:
        """report: receives a sentence when writing begins to fail, and when it works again.

        config: of the run, shown by TensorBoard beside its numbers; None: nothing is shown.
        """
        self._path = run_dir / METRICS_FILE
        self._report = report
        self._failing = False
        self._lock = threading.Lock()
        directory = run_dir / TENSORBOARD_DIRECTORY
        self._tensorboard = event_file.EventFile(directory, report, wall_clock, config) if tensorboard else None

    def write(self, row: Mapping[str, Value]) -> None:
        """Appends a row; "update" and "env_steps" are required."""
        ordered = {key: row[key] for key in FIRST_KEYS if key in row} | dict(row)

        def append() -> None:
            event_file.append(self._path, (run_dirs.encode(ordered) + "\n").encode())
            if self._tensorboard:
                self._tensorboard.write(ordered)

        self._try(append)

    def write_video(self, gif: bytes, env_steps: int) -> None:
        """Appends a video of an evaluation to TensorBoard's file, if there is one. env_steps: training steps then."""
        tensorboard = self._tensorboard
        if tensorboard is not None:
            self._try(lambda: tensorboard.write_video(gif, env_steps))

    def _try(self, write: Callable[[], None]) -> None:
        with self._lock:
            problem = ""
            try:
                write()
            except OSError as error:
                problem = f"metrics cannot be written to {self._path.parent}: {error.strerror}; training goes on"
            if bool(problem) != self._failing:
                self._report(problem or "metrics are written again")
            self._failing = bool(problem)

    def size_bytes(self) -> int:
        """Returns the bytes of metrics.jsonl; a resume from this moment cuts the file there."""
        with self._lock:
            return self._path.stat().st_size if self._path.exists() else 0

    def truncate(self, size_bytes: int, env_steps: int) -> None:
        """Cuts metrics.jsonl back to its size at a checkpoint, as a resume must; 0 drops all. Raises OSError.

        Call it before the first `write`, which also hides TensorBoard's later points. env_steps: training steps at the
        checkpoint; -1: there is none.
        """
        if self._tensorboard:
            self._tensorboard.purge_step = env_steps + 1
        if not self._path.exists():
            return
        with open(self._path, "r+b", opener=plain_files.opener) as file:
            kept = file.read(size_bytes)
            file.truncate(kept.rfind(b"\n") + 1)  # a crash of the machine may have left less, and half a line
            os.fsync(file.fileno())


class Aggregator:
    """Collects means and totals between two rows, as one sum for each name; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sums: dict[str, float] = {}
        self._counts: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._recent: collections.deque[float] = collections.deque(maxlen=RECENT_EPISODES)

    def add_means(self, values: Mapping[str, float], weight: float = 1.0) -> None:
        """Adds to the means of the row: an update's loss, a policy's age. weight: number of values."""
        with self._lock:
            for name, value in values.items():
                self._sums[name] = self._sums.get(name, 0.0) + weight * float(value)
                self._counts[name] = self._counts.get(name, 0.0) + weight

    def add_totals(self, values: Mapping[str, float]) -> None:
        """Adds to the sums of the row: seconds of waiting, episodes."""
        with self._lock:
            for name, value in values.items():
                self._totals[name] = self._totals.get(name, 0.0) + value

    def add_batch(self, num_rows: int, batch_size: int, wait_seconds: float) -> None:
        """Adds an acting batch: rows, padded size, the waiting time of the oldest row."""
        fill = num_rows / batch_size
        self.add_means({"batch_rows": num_rows, "batch_fill": fill, "batch_wait_seconds": wait_seconds})

    def add_episode(self, episode_return: float, length: int, *, num_players: int = 1, task: str = "") -> None:
        """Adds an episode: undiscounted return (of two players: the first mover's), steps, the task's name."""
        name = "episode_return" if num_players == 1 else "first_mover_return"
        self.add_means({name: episode_return, "episode_length": length})
        if task:
            self.add_means({f"{name}/{task}": episode_return})
        self.add_totals({"episodes": 1})
        with self._lock:
            self._recent.append(episode_return)

    def recent_return(self) -> float | None:
        """Returns the mean return of this process's last training episodes, across rows; None before the first."""
        with self._lock:
            return sum(self._recent) / len(self._recent) if self._recent else None

    def means(self) -> dict[str, float]:
        """Returns the means since the last `drain`, without a new beginning."""
        with self._lock:
            return {name: total / self._counts[name] for name, total in self._sums.items() if self._counts[name] > 0}

    def drain(self) -> dict[str, float]:
        """Returns means and totals since the last call, in the order of their names, and starts anew."""
        with self._lock:
            values = self.means() | self._totals
            self._sums, self._counts, self._totals = {}, {}, {}
        return dict(sorted(values.items()))
