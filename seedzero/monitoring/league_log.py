"""The history of a league, league.jsonl: a line for each decision, and for the matches of an interval of updates.

Checkpoints are the truth; this file shows its curve. It has no times, so that deterministic runs have equal ones.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from seedzero.core import json_object
from seedzero.monitoring import rows

LEAGUE_FILE = "league.jsonl"
NASH_FILE = "nash.json"
"""The NashConv of the run's players, as `seedzero league nash` found it last, for the page."""
FREEZE, MATCHES = "freeze", "matches"
"""Events of lines."""


def read(run_dir: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the lines of a run's league.jsonl; none without the file, and no damaged lines. Raises ResumeError."""
    return list(rows.read(run_dir / LEAGUE_FILE))


class LeagueLog:
    """Appends lines to league.jsonl; thread-safe. Without a league nothing is written.

    A full or read-only disk does not end training: its first failure is reported, and lines wait until it works again.
    """

    def __init__(self, run_dir: pathlib.Path, report: Callable[[str], None]) -> None:
        """report: receives a sentence when writing begins to fail, and when it works again."""
        path = run_dir / LEAGUE_FILE
        name = f"the league's history cannot be written to {path}"
        self._file = rows.RowFile(path, name, report, works="the league's history is written again")
        self.size_bytes = self._file.size_bytes
        self._waiting = b""  # lines that the disk has not taken
        self._update = 0  # of the newest line of matches
        self._matches: dict[str, int] = {}  # in the lines so far, by type

    def note(self, decision: Mapping[str, object]) -> None:
        """Appends a decision, such as a new frozen player; `event` names its kind."""
        with self._file.lock:
            self._append(**decision)

    def count(self, matches: Mapping[str, int], *, update: int, env_steps: int) -> None:
        """Appends the matches since the newest such line, if there are any. matches: of the run so far, by type."""
        with self._file.lock:
            new = {name: count - self._matches.get(name, 0) for name, count in matches.items()}
            if any(new.values()):
                self._append(event=MATCHES, since_update=self._update, update=update, env_steps=env_steps, types=new)
                self._update, self._matches = update, dict(matches)

    def truncate(self, size_bytes: int) -> None:
        """Cuts league.jsonl back to its size at a checkpoint, as a resume must; 0 drops all. Raises OSError.

        Call it before the first line; the next one counts the matches that the rest lacks.
        """
        with self._file.lock:
            for row in rows.RowReader(rows.cut(self._file.path, size_bytes).splitlines()):
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # damaged by another hand
                    if row["event"] == MATCHES:
                        self._update = int(row["update"])
                        for name, count in row["types"].items():
                            self._matches[name] = self._matches.get(name, 0) + int(count)

    def _append(self, **values: object) -> None:
        self._waiting += (json_object.encode(values) + "\n").encode()

        def append() -> None:
            rows.append(self._file.path, self._waiting)
            self._waiting = b""

        self._file.attempt(append)
