"""Writes to the console on a separate thread, for all threads of the learner.

Output that nobody reads blocks its writer, as a full pipe does, or a terminal stopped by Ctrl-S. Here only this thread
waits then, and lines beyond a limit are dropped and counted.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import pathlib
import queue
import threading
import traceback
from collections.abc import Callable

from seedzero.core import errors
from seedzero.monitoring import console

MAX_WAITING = 1000
"""Most lines that wait to be shown."""
IDLE_SECONDS = 1.0
"""After this time without anything to show, the thread asks for the state itself."""
CLOSE_SECONDS = 2.0
"""Longest wait for a blocked output when closing."""


class Screen:
    """Passes snapshots, messages and the log's warnings to a console. Any thread may call it without waiting."""

    def __init__(
        self, shown: console.Console, *, max_waiting: int = MAX_WAITING, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        """Starts the thread. shown: only that thread uses it, except for `abandon`."""
        self._look: Callable[[], console.ConsoleSnapshot] | None = None
        self._shown = shown
        self._idle_seconds = idle_seconds
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(max_waiting)
        self._lock = threading.Lock()
        self._num_dropped = 0
        self._handler = _Handler(self.message)
        logging.root.addHandler(self._handler)
        self._thread = threading.Thread(target=self._write, name="console", daemon=True)
        self._thread.start()

    def follow(self, look: Callable[[], console.ConsoleSnapshot]) -> None:
        """Lets the console's thread ask for the state while the main thread is busy, until the last snapshot."""
        self._look = look

    def update(self, snapshot: console.ConsoleSnapshot, *, last: bool = False) -> None:
        """Shows a snapshot, unless one was shown just before and another will follow."""
        if last:
            self._look = None
        self._put(functools.partial(self._shown.update, snapshot, last=last))

    def keep(self, path: pathlib.Path) -> None:
        """Adds messages from now on to the end of a file, with a line of the state a minute."""
        try:
            self._put(functools.partial(self._shown.keep, path.open("ab", buffering=0)))
        except OSError as error:
            self.message(f"{path} cannot be written: {error.strerror}; this console is not kept there")

    def log_failure(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Writes an exception that leaves a `with` block to that file; for `ExitStack.push`."""
        if error is not None:
            known = isinstance(error, errors.Error)
            text = f"error: {error}" if known else "".join(traceback.format_exception(error)).rstrip()
            self._put(functools.partial(self._shown.log, text))

    def message(self, text: str, command: str = "") -> None:
        """Prints a separate line, with a command line at the end."""
        self._put(functools.partial(self._shown.message, text, command))

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Ends the live line and the thread; gives up if the output is blocked."""
        logging.root.removeHandler(self._handler)
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=timeout_seconds)
            self._thread.join(timeout_seconds)

    def abandon(self, text: str) -> None:
        """Restores the terminal and prints a last line without waiting, for a process that exits at once."""
        self._shown.abandon(text)

    def _put(self, show: Callable[[], None]) -> None:
        try:
            self._waiting.put_nowait(show)
        except queue.Full:
            with self._lock:
                self._num_dropped += 1

    def _write(self) -> None:
        while (show := self._next()) is not None:
            try:
                show()
            except Exception as error:  # a line that cannot be shown must not stop the lines after it
                self._shown.message(f"a line cannot be shown: {type(error).__name__}: {error}")
            with self._lock:
                num_dropped, self._num_dropped = self._num_dropped, 0
            if num_dropped:
                self._shown.message(f"{num_dropped} lines are not shown here: the output was not read in time")
        self._shown.close()

    def _next(self) -> Callable[[], None] | None:
        """Waits for something to show; returns None at the end."""
        try:
            return self._waiting.get(timeout=self._idle_seconds)
        except queue.Empty:
            return self._show_state

    def _show_state(self) -> None:
        look = self._look  # another thread may set it to None
        if look is not None:
            self._shown.update(look())


class _Handler(logging.Handler):
    """Shows the log's warnings and errors; indents further lines of a traceback, so that none looks like ours."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        try:
            first, *rest = self.format(record).splitlines() or [""]
        except Exception:  # a wrong format string in a library must not end training
            self.handleError(record)
            return
        for line in (first, *(f"    {line}" for line in rest)):
            self._report(line)
