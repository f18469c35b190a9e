"""Metrics: means between two rows, rows of metrics.jsonl, scalars for TensorBoard."""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import pathlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping

from seedzero.checkpoints import run_dir as run_dirs
from seedzero.core import plain_files
from seedzero.monitoring import tags

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
    ) -> None:
        """report: receives a sentence when writing begins to fail, and when it works again."""
        self._path = run_dir / METRICS_FILE
        self._report = report
        self._failing = False
        self._lock = threading.Lock()
        self._tensorboard = _TensorBoard(run_dir / TENSORBOARD_DIRECTORY, report, wall_clock) if tensorboard else None

    def write(self, row: Mapping[str, Value]) -> None:
        """Appends a row; "update" and "env_steps" are required."""
        ordered = {key: row[key] for key in FIRST_KEYS if key in row} | dict(row)
        with self._lock:
            problem = ""
            try:
                _append(self._path, (run_dirs.encode(ordered) + "\n").encode())
                if self._tensorboard:
                    self._tensorboard.write(ordered)
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


class _TensorBoard:
    """Appends to an event file on the caller's thread, over environment steps and with grouped names (`tags`).

    tensorboardX's own SummaryWriter uses a thread that ends on a full disk; then the writer blocks for good.
    """

    def __init__(self, path: pathlib.Path, report: Callable[[str], None], wall_clock: Callable[[], float]) -> None:
        self.purge_step: int | None = None
        self._directory, self._report, self._wall_clock = path, report, wall_clock
        self._file: pathlib.Path | None = None
        self._unavailable = False

    def write(self, row: Mapping[str, Value]) -> None:
        """Appends the numbers of a row, or nothing. Raises OSError."""
        if self._unavailable:
            return
        try:
            records = self._records(row)
        except ImportError as error:
            self._unavailable = True
            self._report(f"no TensorBoard files: {error}; install tensorboardX or set --metrics.tensorboard=false")
            return
        self._directory.mkdir(exist_ok=True)
        # Names begin with the time, because TensorBoard reads files in the order of their names.
        name = f"events.out.tfevents.{int(self._wall_clock()):010}.{socket.gethostname()}.{os.getpid()}"
        file = self._file or self._directory / name
        _append(file, records)
        self._file = file

    def _records(self, row: Mapping[str, Value]) -> bytes:
        from tensorboardX.proto import event_pb2, summary_pb2  # type: ignore[import-untyped]

        now = self._wall_clock()
        events = []
        if self._file is None:
            events.append(event_pb2.Event(wall_time=now, file_version="brain.Event:2"))
            if self.purge_step is not None:
                started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                events.append(event_pb2.Event(wall_time=now, step=self.purge_step, session_log=started))
        scalars = [
            summary_pb2.Summary.Value(tag=tags.tag(key), simple_value=value)
            for key, value in row.items()
            if isinstance(value, (int, float))
        ]
        summary = summary_pb2.Summary(value=scalars)
        events.append(event_pb2.Event(wall_time=now, step=int(row["env_steps"] or 0), summary=summary))
        return b"".join(_record(event.SerializeToString()) for event in events)


def _record(data: bytes) -> bytes:
    """Returns one record of TensorFlow's record format: length, checksum of the length, data, checksum of the data."""
    from tensorboardX import record_writer  # type: ignore[import-untyped]

    parts = struct.pack("<Q", len(data)), data
    return b"".join(part + struct.pack("<I", record_writer.masked_crc32c(part)) for part in parts)


def _append(path: pathlib.Path, line: bytes) -> None:
    """Appends a whole line or nothing. Raises OSError."""
    with open(path, "ab", buffering=0, opener=plain_files.opener) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(end)
            raise
