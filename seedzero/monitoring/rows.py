"""Rows of a run's files, metrics.jsonl and league.jsonl: JSON objects, one on each line."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Iterable, Iterator
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
