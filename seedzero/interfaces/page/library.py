"""Keeps the histories of the most recently requested runs in memory."""

from __future__ import annotations

import pathlib
import threading

from seedzero.interfaces.page import history

MAX_BYTES = 1 << 30


class Library:
    """Histories by run directory. Thread-safe."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        """max_bytes: memory for all histories; the most recently requested one is always kept."""
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._histories: dict[pathlib.Path, history.History] = {}  # the least recently requested first

    def of(self, run_dir: pathlib.Path) -> history.History:
        """Returns the history of a run directory, with the rows read so far."""
        with self._lock:
            found = self._histories.pop(run_dir, None) or history.History(run_dir)
            self._histories[run_dir] = found
            while (
                len(self._histories) > 1 and sum(one.num_bytes for one in self._histories.values()) > self._max_bytes
            ):
                del self._histories[next(iter(self._histories))]
            return found
