"""Starts the page's thinking process at the first question, asks it one question at a time, and ends it when idle."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from starlette import requests

from seedzero.core import errors, json_object, printable
from seedzero.interfaces.page import catalogue, recordings, thoughts
from seedzero.learner.processes import programs
from seedzero.storage.checkpoints import manifest, player_files, saved_files

IDLE_SECONDS = 600.0
"""The process ends after this time without a question."""
ANSWER_SECONDS = 180.0
"""Time limit for an answer, in which a large network can be compiled."""
MAX_WAITING = 4
"""Most questions that may wait for their turn."""
MAX_SIMULATIONS = 4096
MAX_PLAYERS = 200
"""Most frozen players to choose from."""
_MAX_ANSWER_BYTES = 16 << 20


class ThinkingFailure(errors.Error):
    """The thinking process gave no answer."""


class Thinker:
    """A process of `python -m seedzero.interfaces.page`. Thread-safe."""

    def __init__(
        self,
        *,
        launch: Callable[[Sequence[str]], programs.Process] = programs.launch,
        idle_seconds: float = IDLE_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._launch, self._idle_seconds, self._answer_seconds = launch, idle_seconds, answer_seconds
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(1 + MAX_WAITING)
        self._process: programs.Process | None = None
        self._pause: threading.Timer | None = None
        self._is_over = False

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer. Raises ThinkingFailure."""
        if not self._places.acquire(blocking=False):
            raise ThinkingFailure(f"{1 + MAX_WAITING} questions wait already; ask again when one is answered")
        try:
            with self._turn:
                return self._ask(question)
        finally:
            self._places.release()

    def stop(self) -> None:
        """Kills the process and rejects further questions; returns at once."""
        self._is_over = True
        if (process := self._process) is not None:
            process.kill_group()

    def close(self) -> None:
        """Ends the process and rejects further questions."""
        self.stop()
        with self._turn:
            self._end()

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        if self._pause is not None:
            self._pause.cancel()
        if self._is_over:
            raise ThinkingFailure("the page ends")
        if self._process is None or self._process.poll() is not None:
            self._end()
            try:
                self._process = self._launch([sys.executable, "-m", "seedzero.interfaces.page"])
            except OSError as error:
                raise ThinkingFailure(f"no process can be started to think: {error.strerror}") from None
            if self._is_over:
                self._process.kill_group()
        with self._limit(self._process) as is_late:
            answer, last_line = self._exchange(self._process, question)
        if answer is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(programs.OUTPUT_SECONDS)  # its output ends a moment before it does
            status = self._end()
            if is_late.is_set():
                raise ThinkingFailure(f"no answer within {self._answer_seconds:g} s; ask for fewer simulations")
            death = programs.Death(status, 0.0, printable.escape(last_line[:500]))
            raise ThinkingFailure(f"the process that thinks has ended, {death}; ask again to start it")
        self._pause = threading.Timer(self._idle_seconds, self._rest)
        self._pause.daemon = True
        self._pause.start()
        return answer

    @contextlib.contextmanager
    def _limit(self, process: programs.Process) -> Iterator[threading.Event]:
        """Kills the process if the context lasts too long, and sets the event it yields."""
        is_late = threading.Event()

        def kill() -> None:
            is_late.set()
            process.kill_group()

        timer = threading.Timer(self._answer_seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            yield is_late
        finally:
            timer.cancel()

    def _exchange(self, process: programs.Process, question: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """Returns the answer (None if the process ended), and the last line of its other output."""
        assert process.stdin is not None and process.stdout is not None
        last_line = ""
        with contextlib.suppress(OSError):
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
            while line := process.stdout.readline(_MAX_ANSWER_BYTES):
                if line.startswith(thoughts.MARK):
                    with contextlib.suppress(ValueError):
                        return json_object.parse(line[1:]), ""
                    break
                last_line = line.decode(errors="replace").strip() or last_line
        return None, last_line

    def _rest(self) -> None:
        if self._turn.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._turn.release()

    def _end(self) -> int | None:
        """Ends the process and its children; returns its exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        status = process.poll()
        process.kill_group()
        status = process.wait() if status is None else status
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return status


class ThoughtAnswers:
    """Answers requests about checkpoints and thoughts of the runs below a directory."""

    def __init__(self, root: pathlib.Path, thinker: Thinker, *, trusted: bool) -> None:
        """trusted: whether the user trusts the makers of all these runs, see `own_runs.check_consent`."""
        self._root, self._thinker, self._trusted = root, thinker, trusted

    def answers(self) -> Mapping[str, Callable[[requests.Request], dict[str, Any]]]:
        """Returns the endpoints by path."""
        return {"/api/checkpoints": self.checkpoints, "/api/thought": self.thought}

    def checkpoints(self, request: requests.Request) -> dict[str, Any]:
        """Returns the updates of a run's checkpoints and of the best one, and its frozen players, the newest first."""
        place = catalogue.locate(self._root, request.query_params.get("run", "")) / "checkpoints"
        best = saved_files.finished(place / saved_files.BEST)
        steps = saved_files.finished(place / saved_files.STEPS)
        return {"steps": steps, "best": max(best, default=None), "players": _newest(place)}

    def thought(self, request: requests.Request) -> dict[str, Any]:
        """Returns what a checkpoint thinks about a step of a record.

        The checkpoint is an update's number, best, last, or the name of a frozen player.
        """
        run_dir = catalogue.locate(self._root, request.query_params.get("run", ""))
        record = recordings.locate(run_dir, request.query_params.get("record", ""))
        wanted = request.query_params.get("checkpoint", "last")
        is_number = wanted.isascii() and wanted.isdigit() and len(wanted) < 16
        player = wanted if saved_files.FROZEN_NAME.fullmatch(wanted) else None
        if not is_number and wanted not in ("best", "last", player):
            raise catalogue.BadQuery(
                "checkpoint: expected the number of an update, best, last or the name of a frozen player"
            )
        question = {
            "run_dir": os.fspath(run_dir),
            "record": os.fspath(record),
            "number": catalogue.query_count(request, "step", 0, 10**9),
            "step": int(wanted) if is_number else None if player else wanted,
            "player": player,
            "trusted": self._trusted,
            "num_simulations": catalogue.query_count(request, "simulations", 0, MAX_SIMULATIONS) or None,
        }
        answer = self._thinker.ask(question)
        if "error" in answer:
            raise ThinkingFailure(str(answer["error"]))
        return answer


def _newest(directory: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the newest frozen players below a directory of checkpoints, with the update each was frozen at."""
    found = list[dict[str, Any]]()
    for name in player_files.names(directory):
        with contextlib.suppress(errors.CheckpointError):
            step = manifest.read(directory / saved_files.FROZEN / name, has_step=False).step
            found.append({"name": name, "step": step})
    return sorted(found, key=lambda one: -one["step"])[:MAX_PLAYERS]
