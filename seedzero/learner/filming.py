"""Videos of evaluations for TensorBoard, made by a separate process: training neither waits nor changes."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence

from seedzero.processes import program as programs

NICENESS = 19
"""Priority of the process: of the machine's cores it takes what training leaves."""
MAX_SECONDS = 900.0
"""Longest time for a video."""


class Filmer:
    """Films an episode with the newest checkpoint after every Nth evaluation; `evaluated` is for a single thread.

    Videos are made one at a time: an evaluation meanwhile has none. After a failure none is made any more.
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
        """every: N; 0: never. write: takes a .gif file and the training steps of its checkpoint, on any thread."""
        self._run_dir, self._every = run_dir, every
        self._write, self._say, self._launch = write, say, launch
        self._num_evaluations = 0
        self._stopping = threading.Event()
        self._process: programs.Process | None = None
        self._thread: threading.Thread | None = None

    def evaluated(self, durable_update: int | None) -> None:
        """Counts an evaluation, and begins a video where one is due. durable_update: of the newest checkpoint."""
        self._num_evaluations += 1
        is_due = bool(self._every) and self._num_evaluations % self._every == 0
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_due and durable_update and not is_busy and not self._stopping.is_set():
            self._thread = threading.Thread(target=self._film, name="film", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends a video in the making."""
        self._stopping.set()
        if (process := self._process) is not None:
            process.kill_group()
        if self._thread is not None:
            self._thread.join()

    def _film(self) -> None:
        with tempfile.TemporaryDirectory(prefix="seedzero-film-") as folder:
            target = pathlib.Path(folder) / "evaluation.gif"
            command = [sys.executable, "-m", "seedzero.evaluation", str(self._run_dir), str(target)]
            try:
                last = self._run(command)
                if not self._stopping.is_set():
                    self._write(target.read_bytes(), int(json.loads(last)["env_steps"]))
            except (OSError, ValueError, LookupError, TypeError) as error:
                self._give_up(str(error) if isinstance(error, OSError) else last)

    def _run(self, command: Sequence[str]) -> str:
        """Returns the last line of a process's output; OSError: no start."""
        self._process = process = self._launch(command)
        if self._stopping.is_set():  # it came before there was a process to kill
            process.kill_group()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        late = threading.Timer(MAX_SECONDS, process.kill_group)
        late.daemon = True
        late.start()
        last = b""
        for line in process.lines():
            last = line.strip() or last
        late.cancel()
        process.wait()
        process.close_input()
        self._process = None
        return last.decode(errors="replace")

    def _give_up(self, reason: str) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self._say(f"no videos of evaluations: {reason}; --evaluation.video_every=0 turns them off")
