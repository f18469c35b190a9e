"""Reads and writes a run's files of rows, metrics.jsonl and league.jsonl, with a JSON object on each line."""

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
    """Iterates over the rows in lines, skipping damaged lines.

    num_damaged: skipped lines so far, without an unfinished last line, because a running learner appends.
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
    """Returns the rows of a file, none if it is missing. Iterating raises ResumeError if it cannot be read.

    most_bytes: later lines are ignored.
    """
    return RowReader(_lines(file, most_bytes))


def parse(line: bytes) -> dict[str, Any]:
    """Returns the row in a line. Raises ValueError for anything but an object, or for too deep nesting."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:  # also for NaN, Infinity, and integers with hundreds of digits
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
    """A file of rows to append to; thread-safe.

    Failures to write do not end training; they are reported once.
    """

    def __init__(self, path: pathlib.Path, name: str, report: Callable[[str], None], *, works: str) -> None:
        """name: says what the rows are and where.

        report: receives a message when writing begins to fail, and then `works`.
        """
        self.path, self.lock = path, threading.RLock()
        self._name, self._report, self._works = name, report, works
        self._is_failing = False

    def attempt(self, write: Callable[[], None]) -> None:
        """Calls `write`; reports its first OSError, and the end of the failures."""
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
        """Returns the bytes of the file, to which a resume from this moment truncates it."""
        with self.lock:
            return self.path.stat().st_size if self.path.exists() else 0


def append(path: pathlib.Path, content: bytes, *, durably: bool = False) -> None:
    """Appends bytes to a file, all or none. durably: waits until a lost machine has them. Raises OSError."""
    with open(path, "ab", buffering=0, opener=plain_files.opener) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durably:
                os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(end)
            raise


def cut(path: pathlib.Path, size_bytes: int) -> bytes:
    """Truncates a file of lines to an earlier size; returns what is left, whole lines.

    Returns b"" without a file. Raises OSError.
    """
    if not path.exists():
        return b""
    with open(path, "r+b", opener=plain_files.opener) as file:
        kept = file.read(size_bytes)
        kept = kept[: kept.rfind(b"\n") + 1]  # a crash of the machine may have left less, ending with half a line
        file.truncate(len(kept))
        os.fsync(file.fileno())
    return kept
