"""Keeps the history of a run in memory: reads it piece by piece, and finds places in it by cursors."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from seedzero.core import errors, plain_files
from seedzero.interfaces.page import columns
from seedzero.monitoring import metrics_log

PIECE_SECONDS = 0.4
"""Approximate time limit of a call of `refresh`."""
MAX_NEW_ROWS = 500
"""Most rows that follow a cursor one by one; readers further behind get a thinned series again."""
MAX_LINE_BYTES = 4 << 20
_CHUNK_BYTES = 4 << 20
_MARK_BYTES = 256


class Cursor(NamedTuple):
    """A place in a history. generation: changes when rows are removed."""

    generation: str
    num_rows: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.num_rows}"


def parse_cursor(text: str) -> Cursor | None:
    """Parses a cursor; returns None for any other text."""
    generation, _, number = text.partition("-")
    return Cursor(generation, int(number)) if number.isascii() and number.isdigit() and len(number) < 12 else None


@contextlib.contextmanager
def opened(file: pathlib.Path) -> Iterator[BinaryIO]:
    """Opens a file of a run directory for reading. Raises OSError, also for a link, a pipe or a device."""
    with plain_files.opened(file, follow=False) as stream:
        yield stream


class History:
    """The rows of a run directory. Thread-safe."""

    def __init__(self, run_dir: pathlib.Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = run_dir / metrics_log.METRICS_FILE, clock
        self._lock = threading.Lock()
        self._start()
        self._size = 0  # of the file when it was last read

    def _start(self) -> None:
        self._columns, self._generation = columns.Columns(), secrets.token_hex(4)
        self._offset, self._mark, self._inode = 0, b"", 0
        self._is_read = False

    def refresh(self) -> float:
        """Reads new lines of the file for a moment; returns the share read so far, 1 for all.

        A truncated file is read again, under a new generation. Raises ResumeError if it cannot be read.
        """
        with self._lock:
            try:
                with opened(self._file) as stream:
                    self._read(stream)
            except FileNotFoundError:
                if self._offset:
                    self._start()
                self._is_read = True
            except OSError as error:
                raise errors.ResumeError(f"cannot read {self._file.name}: {error.strerror or error}") from None
            return 1.0 if self._is_read else min(0.999, self._offset / max(1, self._size))

    def _read(self, stream: BinaryIO) -> None:
        found = os.fstat(stream.fileno())
        if found.st_ino != self._inode or not self._is_continued(stream, found.st_size):
            self._start()
        self._inode, self._size = found.st_ino, found.st_size
        end = self._clock() + PIECE_SECONDS
        stream.seek(self._offset)
        while content := stream.read(_CHUNK_BYTES):
            whole = content[: content.rfind(b"\n") + 1]
            if not whole and len(content) == _CHUNK_BYTES:
                content += stream.readline(MAX_LINE_BYTES)
                if not content.endswith(b"\n"):
                    raise OSError(0, f"a line has more than {MAX_LINE_BYTES} bytes")
                whole = content
            if not whole:
                break  # the last line is incomplete
            self._columns.append(whole)
            self._offset += len(whole)
            self._mark = whole[-_MARK_BYTES:]
            stream.seek(self._offset)
            if self._clock() > end and self._offset < self._size:
                self._is_read = False
                return
        self._is_read = True

    def _is_continued(self, stream: BinaryIO, size: int) -> bool:
        """Returns whether the file still begins with the lines read before."""
        if size < self._offset:
            return False
        stream.seek(self._offset - len(self._mark))
        return stream.read(len(self._mark)) == self._mark

    @property
    def num_bytes(self) -> int:
        """Memory that the rows take."""
        return self._columns.num_bytes

    def overview(self) -> dict[str, Any]:
        """Returns the cursor, the names of the metrics, the seconds of all processes, and the numbers of lines."""
        with self._lock:
            found = self._columns
            facts = {
                "metrics": found.names,
                "seconds": found.seconds,
                "rows": len(found),
                "damaged": found.num_damaged,
            }
            return {"cursor": str(Cursor(self._generation, len(found))), **facts}

    def series(
        self, names: list[str], x: str, num_buckets: int, low: float | None = None, high: float | None = None
    ) -> dict[str, Any]:
        """Returns the cursor, and thinned series of metrics over `x`."""
        with self._lock:
            found = {name: self._columns.series(name, x, num_buckets, low, high) for name in names}
            few = self._columns.few_until(x)
            return {"cursor": str(Cursor(self._generation, len(self._columns))), "few_until": few, "series": found}

    def curve(self, name: str, x: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns x [T] and values [T] of a metric, as `columns.Columns.curve`."""
        with self._lock:
            return self._columns.curve(name, x)

    def since(self, cursor: Cursor | None) -> dict[str, Any] | None:
        """Returns the rows after a cursor, and the next cursor; None if there are no new rows.

        Returns {"reset": true} instead of rows if some were removed or there are too many; then read the series again.
        """
        with self._lock:
            number = len(self._columns)
            now = Cursor(self._generation, number)
            if cursor == now or not self._is_read:
                return None
            if cursor is None or cursor.generation != now.generation or not 0 <= number - cursor[1] <= MAX_NEW_ROWS:
                return {"cursor": str(now), "reset": True}
            return {"cursor": str(now), **self._columns.since(cursor.num_rows)}
