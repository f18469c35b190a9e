"""Writes rows of metrics to metrics.jsonl, and as scalars for TensorBoard."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Mapping

from seedzero.config import configs
from seedzero.core import json_object
from seedzero.monitoring import event_file, rows

Value = float | int | str | None

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_DIRECTORY = "tensorboard"
FIRST_KEYS = ("update", "env_steps", "seconds")
"""Every row begins with the number of updates, training steps, and seconds of this process."""


def read(run_dir: pathlib.Path) -> rows.RowReader:
    """Returns the rows of a run's metrics.jsonl, none without the file. Raises ResumeError as `rows.read`."""
    return rows.read(run_dir / METRICS_FILE)


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
        """report: receives a message when writing begins to fail, and when it works again.

        config: the run's, which TensorBoard shows next to its numbers, or None.
        """
        name, works = f"metrics cannot be written to {run_dir}", "metrics are written again"
        self._file = rows.RowFile(run_dir / METRICS_FILE, name, report, works=works)
        self.size_bytes = self._file.size_bytes
        directory = run_dir / TENSORBOARD_DIRECTORY
        self._tensorboard = event_file.EventFile(directory, report, wall_clock, config) if tensorboard else None

    def write(self, row: Mapping[str, Value]) -> None:
        """Appends a row, which must have "update" and "env_steps"."""
        ordered = {key: row[key] for key in FIRST_KEYS if key in row} | dict(row)

        def append() -> None:
            rows.append(self._file.path, (json_object.encode(ordered) + "\n").encode())
            if self._tensorboard:
                self._tensorboard.write(ordered)

        self._file.attempt(append)

    def write_video(self, gif: bytes, env_steps: int) -> None:
        """Appends an evaluation's video to TensorBoard's file, if there is one.

        env_steps: training steps at that time.
        """
        tensorboard = self._tensorboard
        if tensorboard is not None:
            self._file.attempt(lambda: tensorboard.write_video(gif, env_steps))

    def truncate(self, size_bytes: int, env_steps: int) -> None:
        """Truncates metrics.jsonl to its size at a checkpoint, as a resume must; 0 removes everything. Raises OSError.

        Call it before the first `write`, which also hides TensorBoard's later points. env_steps: training steps at the
        checkpoint; -1 without one.
        """
        if self._tensorboard:
            self._tensorboard.hide(env_steps + 1)
        rows.cut(self._file.path, size_bytes)
