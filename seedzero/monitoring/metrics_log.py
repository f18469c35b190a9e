"""Writes rows of metrics to metrics.jsonl, and as scalars for TensorBoard."""

from __future__ import annotations

import importlib.util
import math
import os
import pathlib
import socket
import struct
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from seedzero.config import configs, options
from seedzero.core import json_object, printable
from seedzero.monitoring import link_lines, rows, usage
from seedzero.monitoring.metrics import counts

# Names of metrics in TensorBoard and Weights & Biases, which have groups, unlike in metrics.jsonl and Prometheus.
_ROLLOUT = {"episode_return", "first_mover_return", "episode_length", "episodes"}
_TIME = {"update", "env_steps", "seconds", "weights_version", "batch_rows", "batch_fill", link_lines.HIDING}
_EVALUATION = "evaluation_"
MATCHES = "matches/"
"""Prefix of the number of a league's matches, by type."""


def tag_of(name: str) -> str:
    """Returns a metric's name with its group.

    eval/: evaluations; rollout/: training episodes; matches/: a league's; time/: counters, rates, acting batches;
    system/: processors and memory; train/: updates; info/: numbers that environments report.
    """
    if name.startswith(_EVALUATION):
        return f"eval/{name.removeprefix(_EVALUATION)}"
    if name.startswith((MATCHES, counts.INFO)):
        return name
    if (counter := name.partition("/")[0]) in _ROLLOUT:
        return f"rollout/{name}"
    if counter in _TIME or name.endswith(("_seconds", "_per_second")):
        return f"time/{name}"
    if name.endswith((usage.CPU, usage.MEMORY)):
        return f"system/{name}"
    return f"train/{name}"


# Writes TensorBoard's event file: a run's configuration, scalars over environment steps, and videos.
SCORES = ("evaluation_mean_return", "evaluation_best_score", "episode_return")
"""Metrics in the table of hyperparameters: the last value of evaluations, and of training episodes."""
VIDEO = "eval/video"
"""Tag of an evaluation's videos."""

_MESSAGES = ("api", "event", "plugin_hparams", "summary", "tensor")
_OF_MACHINES = {"transport", "tls", "metrics", "bucket", "checkpoint", "batcher", "worker", "evaluation"}
_OF_BUDGETS = {"run.max_env_steps", "run.max_updates", "run.max_seconds", "run.stop_at_return"}


class EventFile:
    """Appends events on the caller's thread, with metrics in groups (`tag_of`); each process writes a new file."""

    def __init__(
        self,
        path: pathlib.Path,
        report: Callable[[str], None],
        wall_clock: Callable[[], float],
        config: configs.Config | None = None,
    ) -> None:
        """path: directory of the files. report: receives a message. config: shown as text and as hyperparameters."""
        self._purge_step: int | None = None
        self._directory, self._report, self._wall_clock, self._config = path, report, wall_clock, config
        self._file: pathlib.Path | None = None
        self._unavailable = False

    def hide(self, first_step: int) -> None:
        """Makes TensorBoard hide earlier files' points from a step on; call it before the first `write`."""
        self._purge_step = first_step

    def write(self, row: Mapping[str, Any]) -> None:
        """Appends the numbers of a row as a whole or not at all. Raises OSError."""
        numbers = {tag_of(key): value for key, value in row.items() if isinstance(value, (int, float))}
        self._append(int(row["env_steps"] or 0), [dict(tag=tag, simple_value=value) for tag, value in numbers.items()])

    def write_video(self, gif: bytes, env_steps: int) -> None:
        """Appends a moving picture as a whole or not at all. Raises OSError."""
        width, height = struct.unpack("<HH", gif[6:10])  # of the file's header
        image = dict(height=height, width=width, colorspace=3, encoded_image_string=gif)
        self._append(env_steps, [dict(tag=VIDEO, image=image)])

    def _append(self, env_steps: int, values: list[dict[str, Any]]) -> None:
        if self._unavailable:
            return
        try:
            records = self._records(env_steps, values)
        except ImportError as error:
            self._unavailable = True
            self._report(f"no TensorBoard files: {error}; install tensorboardX or set --metrics.tensorboard=false")
            return
        self._directory.mkdir(exist_ok=True)
        # Names begin with the time because TensorBoard reads files in the order of their names.
        name = f"events.out.tfevents.{int(self._wall_clock()):010}.{socket.gethostname()}.{os.getpid()}"
        file = self._file or self._directory / name
        rows.append(file, records)
        self._file = file

    def _records(self, env_steps: int, values: list[dict[str, Any]]) -> bytes:
        tb = _load()
        event_pb2, summary_pb2 = tb.event_pb2, tb.summary_pb2
        now = self._wall_clock()
        events = []
        if self._file is None:
            events.append(event_pb2.Event(wall_time=now, file_version="brain.Event:2"))
            if self._purge_step is not None:
                started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                events.append(event_pb2.Event(wall_time=now, step=self._purge_step, session_log=started))
            if self._config is not None:
                shown = summary_pb2.Summary(value=_description(tb, self._config, now))
                events.append(event_pb2.Event(wall_time=now, step=env_steps, summary=shown))
        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(**value) for value in values])
        events.append(event_pb2.Event(wall_time=now, step=env_steps, summary=summary))
        return b"".join(_record(tb.crc32c, event.SerializeToString()) for event in events)


def settings_of(config: configs.Config) -> dict[str, options.Value]:
    """Returns the settings that the run's agent uses, by SECTION.KEY."""
    return {name: value for name, value in configs.flatten(config).items() if configs.is_read(name, config)}


def hyperparameters(config: configs.Config) -> dict[str, options.Value]:
    """Returns the settings of environment, agent and learning by SECTION.KEY, except empty and infinite ones."""
    return {
        name: value
        for name, value in settings_of(config).items()
        if name.partition(".")[0] not in _OF_MACHINES
        and name not in _OF_BUDGETS
        and value != ""
        and not (isinstance(value, float) and not math.isfinite(value))
    }


def _load() -> types.SimpleNamespace:
    """Returns the modules of tensorboardX for messages and checksums; raises ImportError.

    Bypasses the package's __init__, which imports PyTorch and cloud packages if they are installed; that delayed a
    training by 4 s.
    """
    modules, package = ["crc32c", *(f"proto.{name}_pb2" for name in _MESSAGES)], "tensorboardX"
    spec, is_loaded = importlib.util.find_spec(package), package in sys.modules
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    if not is_loaded:
        sys.modules[package] = importlib.util.module_from_spec(spec)
    try:
        loaded = [importlib.import_module(f"{package}.{module}") for module in modules]
    finally:
        if not is_loaded:
            del sys.modules[package]
    return types.SimpleNamespace(**{module.__name__.rpartition(".")[2]: module for module in loaded})


def _description(tb: types.SimpleNamespace, config: configs.Config, now: float) -> Iterator[Any]:
    """Yields summary values: the configuration as a table, and TensorBoard's plugin of hyperparameters."""
    api_pb2, plugin_hparams_pb2, summary_pb2 = tb.api_pb2, tb.plugin_hparams_pb2, tb.summary_pb2
    shown = {name: printable.escape(options.shown(value)) for name, value in settings_of(config).items()}
    rows = ["| {} | `{}` |".format(name, text.replace("|", "\\|")) for name, text in shown.items()]
    text = "\n".join(["| setting | value |", "|---|---|", *rows])
    table = tb.tensor_pb2.TensorProto(dtype="DT_STRING", string_val=[text.encode()])
    yield summary_pb2.Summary.Value(tag="configuration", tensor=table, metadata=_metadata(summary_pb2, "text", b""))
    given, infos = hyperparameters(config), []
    start = plugin_hparams_pb2.SessionStartInfo(start_time_secs=now)
    for name, value in given.items():
        if isinstance(value, bool):
            kind, start.hparams[name].bool_value = "DATA_TYPE_BOOL", value
        elif isinstance(value, str):
            kind, start.hparams[name].string_value = "DATA_TYPE_STRING", value
        else:
            kind, start.hparams[name].number_value = "DATA_TYPE_FLOAT64", value
        infos.append(api_pb2.HParamInfo(name=name, type=kind))
    scores = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag_of(name))) for name in SCORES]
    experiment = api_pb2.Experiment(hparam_infos=infos, metric_infos=scores, time_created_secs=now)
    for part in (dict(experiment=experiment), dict(session_start_info=start)):
        content = plugin_hparams_pb2.HParamsPluginData(version=0, **part).SerializeToString()
        yield summary_pb2.Summary.Value(
            tag=f"_hparams_/{next(iter(part))}", metadata=_metadata(summary_pb2, "hparams", content)
        )


def _metadata(summary_pb2: Any, plugin: str, content: bytes) -> Any:
    data = summary_pb2.SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    return summary_pb2.SummaryMetadata(plugin_data=data)


def _record(crc32c: Any, data: bytes) -> bytes:
    """Returns a record in TensorFlow's record format: length, checksum of the length, data, checksum of the data."""

    def masked(part: bytes) -> int:
        checksum: int = crc32c.crc32c(part)
        return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF

    parts = struct.pack("<Q", len(data)), data
    return b"".join(part + struct.pack("<I", masked(part)) for part in parts)


Value = float | int | str | None

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_DIRECTORY = "tensorboard"
FIRST_KEYS = ("update", "env_steps", "seconds")
"""Every row begins with the number of updates, training steps, and seconds of this process."""
UNFINISHED = "evaluation_unfinished"
"""Only a row of an evaluation that was cut short has it, whose score means little."""


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
        self._tensorboard = EventFile(directory, report, wall_clock, config) if tensorboard else None

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
