"""Rows of a run's files, metrics.jsonl and league.jsonl: JSON objects, one on each line."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import math
import os
import pathlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from seedzero.core import errors, json_object, plain_files


@dataclasses.dataclass
class RowReader:
    """The rows in lines, in their order; others' lines are left out.

    num_damaged: lines without a row so far. An unfinished last line is none: a running learner appends.
    """

    lines: Iterable[bytes]
    num_damaged: int = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self.lines:
            try:
                row = parse(line)
            except ValueError:
                self.num_damaged += line.endswith(b"\n")
                continue
            yield row


def read(file: pathlib.Path, most_bytes: float = math.inf) -> RowReader:
    """Returns the rows of a file, of none without it; their lines raise ResumeError if it cannot be read.

    most_bytes: later lines are left out.
    """
    return RowReader(_lines(file, most_bytes))


def parse(line: bytes) -> dict[str, Any]:
    """Returns the row in a line. Raises ValueError if it holds none, or objects nested too deeply."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:  # NaN, Infinity, and integers of hundreds of digits, too
        return json_object.parse(line)
    return row if isinstance(row, dict) else json_object.parse(line)


def _lines(file: pathlib.Path, most_bytes: float) -> Iterator[bytes]:
    num_bytes = 0
    try:
        for line in plain_files.lines(file):
            num_bytes += len(line)
            if num_bytes > most_bytes:
                return
            yield line
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.ResumeError(f"cannot read {file}: {error.strerror}") from None


class RowFile:
    """A file of rows that grows; for any thread. A disk that takes nothing ends no training: it is reported once."""

    def __init__(self, path: pathlib.Path, name: str, report: Callable[[str], None], *, works: str) -> None:
        """name: of the rows and their place. report: receives a sentence when writing begins to fail, then `works`."""
        self.path, self.lock = path, threading.RLock()
        self._name, self._report, self._works = name, report, works
        self._is_failing = False

    def attempt(self, write: Callable[[], None]) -> None:
        """Writes; reports an OSError, if the last time had none, and the end of the failures."""
        with self.lock:
            problem = ""
            try:
                write()
            except OSError as error:
                problem = f"{self._name}: {error.strerror}; training continues"
            if bool(problem) != self._is_failing:
                self._report(problem or self._works)
            self._is_failing = bool(problem)

    def size_bytes(self) -> int:
        """Returns the bytes of the file; a resume from this moment cuts it there."""
        with self.lock:
            return self.path.stat().st_size if self.path.exists() else 0


def append(path: pathlib.Path, content: bytes) -> None:
    """Appends bytes to a file as a whole, or nothing. Raises OSError."""
    with open(path, "ab", buffering=0, opener=plain_files.opener) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(end)
            raise


def cut(path: pathlib.Path, size_bytes: int) -> bytes:
    """Cuts a file of lines back to an earlier size; returns the rest, whole lines. Raises OSError; b"": no file."""
    if not path.exists():
        return b""
    with open(path, "r+b", opener=plain_files.opener) as file:
        kept = file.read(size_bytes)
        kept = kept[: kept.rfind(b"\n") + 1]  # a crash of the machine may have left less, and half a line
        file.truncate(len(kept))
        os.fsync(file.fileno())
    return kept
