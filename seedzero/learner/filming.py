"""Makes videos of evaluations for TensorBoard in a separate process, so that training neither waits nor changes."""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence

from seedzero.core import errors
from seedzero.learner.processes import programs
from seedzero.monitoring.metrics import counts

MAX_SECONDS = 900.0
"""Longest time that a video may take."""


class Filmer:
    """Films an episode with the newest checkpoint after every Nth evaluation. Only one thread may call `evaluated`.

    Videos are made one at a time, so an evaluation in the meantime has none. After a failure no more are made.
    """

    def __init__(
        self,
        run_dir: pathlib.Path,
        every: int,
        *,
        write: Callable[[bytes, int], None],
        say: Callable[[str], None],
        launch: Callable[[Sequence[str]], programs.Process] = programs.launch,
    ) -> None:
        """every: N, or 0 for never.

        write: takes a .gif file and the training steps of its checkpoint, on any thread.
        """
        self._run_dir, self._every = run_dir, every
        self._write, self._say = write, say
        self._program = programs.Program(lambda line: None, programs.System(launch=launch))
        self._num_evaluations, self._has_told = 0, False
        self._thread: threading.Thread | None = None

    def evaluated(self, durable_update: int | None) -> None:
        """Counts an evaluation, and begins a video if one is due. durable_update: that of the newest checkpoint."""
        self._num_evaluations += 1
        is_due = bool(self._every) and self._num_evaluations % self._every == 0
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_due and not durable_update and not self._has_told:
            self._has_told = True
            self._say("videos of evaluations begin after the first checkpoint, see --checkpoint.every_seconds")
        if is_due and durable_update and not is_busy and not self._program.stopping.is_set():
            self._thread = threading.Thread(target=self._film, name="film", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends a video that is being made."""
        self._program.finish()
        self._program.kill()
        if self._thread is not None:
            self._thread.join()

    def _film(self) -> None:
        with tempfile.TemporaryDirectory(prefix="seedzero-film-") as folder:
            target = pathlib.Path(folder) / "evaluation.gif"
            death = self._run([sys.executable, "-m", "seedzero.acting.tables", str(self._run_dir), str(target)])
            if death is None or self._program.stopping.is_set():
                return
            if death.status != errors.DONE:
                return self._give_up(str(death))
            try:
                self._write(target.read_bytes(), counts.env_steps_of(json.loads(death.last_line)))
            except (OSError, ValueError, LookupError, TypeError) as error:
                self._give_up(str(error) if isinstance(error, OSError) else death.last_line)

    def _run(self, command: Sequence[str]) -> programs.Death | None:
        """Describes how a process ended, whose children end with it; None after `stop`."""
        late = threading.Timer(MAX_SECONDS, self._program.kill)
        late.daemon = True
        try:
            return self._program.live(command, niceness=programs.IDLE, started=late.start)
        finally:
            late.cancel()

    def _give_up(self, reason: str) -> None:
        self._program.finish()
        self._say(f"no videos of evaluations: {reason}; --evaluation.video_every=0 turns them off")
