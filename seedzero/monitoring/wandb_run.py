"""Sends rows of metrics to Weights & Biases on a separate thread, so that a dead network never delays training."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import queue
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any

from seedzero.core import errors, json_object, packages, plain_files
from seedzero.monitoring import metrics_log
from seedzero.storage.checkpoints import run_dirs, run_lock

FILE = "wandb.json"
"""File in the run directory with project and id, by which a resume continues the same W&B run."""
MAX_WAITING = 10_000
"""Most rows that wait for the network; later ones are dropped and counted."""
FINISH_SECONDS = 20.0
"""Time limit for uploads at the end of a run; the rest stays on disk for `wandb sync`."""
CLOSE_SECONDS = 30.0
"""Longest wait for the thread."""

_WITHOUT_LOGIN = ("offline", "disabled", "dryrun")
_STEPS = metrics_log.tag_of("env_steps")


def check() -> None:
    """Raises ConfigError if the package is missing, or nobody is logged in although the mode requires it."""
    if importlib.util.find_spec("wandb") is None:
        command = packages.install_command("wandb")
        raise errors.ConfigError(f"--metrics.wandb needs the package wandb, which is not installed here: {command}")
    os.environ.setdefault("WANDB_SILENT", "true")  # its messages would appear between ours
    import wandb

    if os.environ.get("WANDB_MODE") not in _WITHOUT_LOGIN and not wandb.login(prompt=False, verify=False):
        raise errors.ConfigError(
            "--metrics.wandb: nobody is logged in at Weights & Biases here; run `wandb login`, set WANDB_API_KEY, or "
            "set WANDB_MODE=offline"
        )


class WandbRun:
    """A run at Weights & Biases, which follows WANDB_MODE. Any thread may call `write`."""

    def __init__(
        self, project: str, directory: pathlib.Path, config: Mapping[str, Any], report: Callable[[str], None]
    ) -> None:
        """Starts the thread.

        Args:
          project: PROJECT or ENTITY/PROJECT.
          directory: of the training run; files for `wandb sync` go there, too.
          config: settings to show, by SECTION.KEY.
          report: shows the user a message; called on any thread.
        """
        self._project, self._directory, self._config, self._report = project, directory, config, report
        self._id = _run_id(directory, project)
        self._waiting: queue.Queue[Mapping[str, metrics_log.Value] | None] = queue.Queue(MAX_WAITING)
        self._num_lost = 0
        # No daemon: if it hangs, `program` ends the process at once, without wandb's wait at exit.
        self._thread = threading.Thread(target=self._send, name="wandb")
        self._thread.start()

    def write(self, row: Mapping[str, metrics_log.Value]) -> None:
        """Sends a row, which must have "env_steps", without waiting."""
        try:
            self._waiting.put_nowait(row)
        except queue.Full:
            self._num_lost += 1

    def close(self) -> None:
        """Sends waiting rows for a limited time, and finishes the run there."""
        while True:
            try:
                self._waiting.put(None, timeout=CLOSE_SECONDS)
                break
            except queue.Full:  # drop the oldest row to make room
                with contextlib.suppress(queue.Empty):
                    self._waiting.get_nowait()
                    self._num_lost += 1
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self._report("Weights & Biases does not answer; the newest rows are only in metrics.jsonl")
        elif self._num_lost:
            self._report(f"{self._num_lost} rows did not reach Weights & Biases; metrics.jsonl has them")

    def _send(self) -> None:
        try:
            run = self._open()
            while (row := self._waiting.get()) is not None:
                run.log(
                    {metrics_log.tag_of(name): value for name, value in row.items() if isinstance(value, (int, float))}
                )
        except Exception as error:  # a third party's errors must not end training
            self._report(f"Weights & Biases gets no more rows: {_first_line(error)}; metrics.jsonl has them all")
            while self._waiting.get() is not None:
                self._num_lost += 1
        else:
            self._finish(run)

    def _finish(self, run: Any) -> None:
        try:
            run.finish()
        except TimeoutError:
            self._report(f"Weights & Biases: not all is uploaded; later: wandb sync {run.settings.sync_dir}")
        except Exception as error:  # as above
            self._report(f"Weights & Biases: the end of the run is not there: {_first_line(error)}")

    def _open(self) -> Any:
        """Starts wandb's run, or without a network one that is kept on disk."""
        import wandb

        try:
            run = self._init()
        except wandb.errors.CommError as error:
            self._report(f"Weights & Biases cannot be reached ({_first_line(error)}); training continues")
            wandb.teardown()  # otherwise its service would take the id for one in use
            run = self._init(mode="offline")
        run.define_metric("*", step_metric=_STEPS)
        place = f"offline; later: wandb sync {run.settings.sync_dir}" if run.offline else run.url
        self._report(f"Weights & Biases: {place}")
        return run

    def _init(self, **mode: str) -> Any:
        import wandb

        entity, _, project = self._project.rpartition("/")
        limits = dict(finish_timeout=FINISH_SECONDS, finish_timeout_raises=True)
        return wandb.init(
            project=project,
            entity=entity or None,
            dir=self._directory,
            id=self._id,
            resume="allow",
            name=os.environ.get("WANDB_NAME", self._directory.absolute().name),
            config=dict(self._config),
            allow_val_change=True,  # a resume may change settings
            settings=wandb.Settings(console="off", silent=True, **limits),
            **mode,
        )


def _run_id(directory: pathlib.Path, project: str) -> str:
    """Returns the id of a run in a project, which is kept on disk. Raises ResumeError if the disk is not writable."""
    file = directory / FILE
    try:
        with run_lock.as_resume_errors(file, "cannot read {}"):
            saved = json_object.parse(plain_files.read(file)) if file.exists() else {}
    except ValueError:
        saved = {}  # then it is a new run there
    if saved.get("project") == project and isinstance(saved.get("id"), str):
        return str(saved["id"])
    made = secrets.token_hex(4)
    with run_lock.as_resume_errors(file, "cannot write {}"):
        run_dirs.write_json_atomic(file, {"project": project, "id": made})
    return made


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
