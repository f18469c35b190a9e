"""What is seen of a run while it goes on: the line on the console, the status, and rows of metrics."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seedzero.checkpoints import run_dir
from seedzero.config import config as config_lib
from seedzero.core import types
from seedzero.monitoring import console, counts, exporter, metrics, rates

_STALL_SECONDS = 30.0


class View:
    """Gathers what others count, and shows it. Any thread may ask; the learner says what it knows best.

    Attributes:
      spec: of the environments; None: not known yet.
      look: returns the device loop's counters; None: there is nothing to train yet.
      durable_update: of the newest checkpoint; None: there is none.
      finished: why the run is finished; None: it is not.
    """

    def __init__(
        self,
        config: config_lib.Config,
        directory: run_dir.RunDir,
        screen: console.Console,
        workers: Callable[[], Sequence[int]],
        gathered: metrics.Aggregator,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._directory = directory
        self._screen = screen
        self._workers = workers
        self._gathered = gathered
        self._clock = clock
        self._started = clock()
        self.spec: types.EnvSpec | None = None
        self.look: Callable[[], counts.Snapshot] | None = None
        self.durable_update: int | None = None
        self.finished: str | None = None
        self._rates = rates.Rates()
        self._log = metrics.MetricsLog(directory.path, tensorboard=config.metrics.tensorboard, report=screen.message)
        self._log_lock = threading.Lock()
        self._newest_row: Mapping[str, metrics.Value] = {}
        self._last_progress = (0, 0)
        self._last_progress_time = self._started

    def observe(self, now: float) -> None:
        """Brings rates and the console's line up to date."""
        assert self.look is not None
        snapshot = self.look()
        stored, updates = snapshot.counts.stored, snapshot.num_updates
        self._rates.add(now, stored, updates, snapshot.num_reanalysed)
        if (stored, updates) != self._last_progress:
            self._last_progress, self._last_progress_time = (stored, updates), now
        steps_per_second, updates_per_second, _ = self._rates.per_second()
        recent = self._gathered.means()
        seconds = now - self._started
        evaluated = snapshot.last_evaluation
        self._screen.update(
            console.Snapshot(
                seconds=seconds,
                env_steps=stored,
                updates=updates,
                frames_per_second=steps_per_second * (self.spec.frames_per_step if self.spec else 1),
                updates_per_second=updates_per_second,
                mean_return=self._gathered.recent_return(),
                num_players=self.spec.num_players if self.spec else 1,
                evaluation=evaluated["mean_return"] if evaluated else None,
                samples_per_insert=self._samples_per_insert(stored, updates),
                batch_fill=recent.get("batch_fill"),
                policy_age=recent.get("policy_age"),
                eta_seconds=console.eta_seconds(
                    self._config.run,
                    seconds=seconds,
                    env_steps=stored,
                    updates=updates,
                    env_steps_per_second=steps_per_second,
                    updates_per_second=updates_per_second,
                ),
                durable_update=self.durable_update,
                note=self.stalled() or "",
            )
        )

    def _samples_per_insert(self, stored: int, updates: int) -> float:
        return updates * self._config.replay.batch_size / max(1, stored)

    def stalled(self) -> str | None:
        """Returns why nothing happens, or None."""
        if self.look is None:
            return "waiting for the first worker" if self.spec is None else "building the networks"
        if not self._workers():
            return "no training worker is connected"
        if not self.look().is_compiled:
            return "compiling"
        still = self._clock() - self._last_progress_time
        return f"no step or update for {still:.0f} s" if still > _STALL_SECONDS else None

    def seen(self) -> exporter.Seen:
        """Any thread: what Prometheus is shown."""
        return exporter.Seen(self.status(), self._newest_row)

    def status(self) -> dict[str, object]:
        """Returns what `seedzero status` shows."""
        snapshot = self.look() if self.look else None
        steps = snapshot.counts if snapshot else counts.Counts()
        updates = snapshot.num_updates if snapshot else 0
        steps_per_second, updates_per_second, _ = self._rates.per_second()
        workers = self._workers()
        return {
            "env_steps": steps.stored,
            "updates": updates,
            "weights_version": snapshot.version if snapshot else 0,
            "durable_update": self.durable_update,
            "workers": len(workers),
            "environments": sum(workers),
            "steps_acknowledged": steps.acknowledged,
            "steps_stored": steps.stored,
            "steps_pending": steps.pending,
            "steps_discarded": {counts.WORKER_LOST: 0, **steps.discarded},
            "samples_per_insert": self._samples_per_insert(steps.stored, updates),
            "env_steps_per_second": steps_per_second,
            "updates_per_second": updates_per_second,
            "stalled": self.stalled(),
            "last_evaluation": snapshot.last_evaluation if snapshot else None,
            "finished": self.finished,
        }

    def write_status(self, *, alive: bool) -> None:
        """Leaves the status in the run directory."""
        problem = self._directory.write_status({**self.status(), "alive": alive})
        if problem:
            self._screen.message(problem)

    def tell_finished(self, reason: str) -> None:
        """Says in the last status that the run is finished now: a budget may have been lowered."""
        last = run_dir.read_status(self._directory.path) or {}
        problem = self._directory.write_status({**last, "alive": False, "finished": reason})
        if problem:
            self._screen.message(problem)

    def write_row(self, values: Mapping[str, Any], *, gathered: bool = True) -> None:
        """Writes a row of metrics; `values` replace and add to the usual ones."""
        assert self.look is not None
        snapshot = self.look()
        steps_per_second, updates_per_second, reanalysed_per_second = self._rates.per_second()
        stored, updates = snapshot.counts.stored, snapshot.num_updates
        usual: dict[str, Any] = {
            "update": updates,
            "env_steps": stored,
            "seconds": round(self._clock() - self._started, 3),
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        if gathered:
            frames = self.spec.frames_per_step if self.spec else 1
            usual |= {
                "env_steps_per_second": steps_per_second,
                "frames_per_second": steps_per_second * frames,
                "updates_per_second": updates_per_second,
                "samples_per_insert": self._samples_per_insert(stored, updates),
                "weights_version": snapshot.version,
                **self._gathered.drain(),
            }
            if self._config.reanalyse.per_insert:
                usual["reanalysed_per_second"] = reanalysed_per_second
                usual["reanalysed_per_insert"] = snapshot.num_reanalysed / max(1, stored)
        with self._log_lock:
            self._log.write({**usual, **values})
        if gathered:
            self._newest_row = usual

    def num_row_bytes(self) -> int:
        """Returns the size of all rows so far: what a checkpoint of this moment has seen."""
        with self._log_lock:
            return self._log.size_bytes()

    def truncate_rows(self, num_bytes: int, update: int) -> None:
        """Forgets the rows of a future that a resume gave up, and the TensorBoard files' after this update."""
        self._log.truncate(num_bytes, update)
