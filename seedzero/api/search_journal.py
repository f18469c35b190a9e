"""The journal of a search: lines of JSON as Optuna's own, which a full disk or a lost machine does not end."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from seedzero.core import errors, plain_files
from seedzero.monitoring import rows


class SearchJournal:
    """The operations of a study, in memory and in a file that no other process writes meanwhile.

    It is a backend of Optuna's `JournalStorage`. What cannot be written is kept for the next write. A crash may leave
    half a line, or zeros, at the end of the file; these are cut when it is opened.
    """

    def __init__(self, path: pathlib.Path, say: Callable[[str], None]) -> None:
        """Raises ResumeError if any line but the last is damaged, or the file cannot be read or repaired."""
        self._file = rows.RowFile(
            path, f"{path} cannot be written", say, works=f"{path} is written again; it lacks nothing"
        )
        self._unsaved = b""
        try:
            lines = list(plain_files.lines(path)) if path.exists() else []
            self._logs = _parse(path, lines)
            if len(self._logs) < len(lines):
                rows.cut(path, sum(map(len, lines[:-1])))
                say(f"cut an incomplete last line, of {len(lines[-1]):,} bytes, from {path}")
        except OSError as error:
            raise errors.ResumeError(f"cannot read {path}: {error.strerror}") from None

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """Returns the operations from a number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds operations, and writes them with those that could not be written before."""
        lines = [json.dumps(log, separators=(",", ":")) + "\n" for log in logs]
        self._logs += map(json.loads, lines)
        self._unsaved += "".join(lines).encode()
        self.save()

    def save(self) -> None:
        """Writes what could not be written before, if anything; reports the first failure."""
        self._file.attempt(self._write)

    def _write(self) -> None:
        if self._unsaved:
            rows.append(self._file.path, self._unsaved, durably=True)
            self._unsaved = b""


def _parse(path: pathlib.Path, lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Returns the operations in the lines of a file, without a damaged last one."""
    found = [_operation(line) for line in lines]
    if found and found[-1] is None:
        found.pop()
    if None in found:
        number = found.index(None) + 1
        raise errors.ResumeError(
            f"line {number} of {path} is damaged: keep the lines before it (head -n {number - 1}), or give another "
            "--run_dir"
        )
    return [log for log in found if log is not None]


def _operation(line: bytes) -> dict[str, Any] | None:
    """Returns the operation in a line, None if it is damaged."""
    try:
        log = rows.parse(line)
    except ValueError:
        return None
    return log if line.endswith(b"\n") and "op_code" in log else None
