"""Writes a league's history, league.jsonl, with a line per decision and a line per interval of matches.

Checkpoints are authoritative; this file shows how they came about. It has no times, so that deterministic runs have
equal files.
"""

from __future__ import annotations

import contextlib
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from seedzero.core import json_object
from seedzero.monitoring import rows
from seedzero.monitoring.metrics import counts

# Reports a league on the console.
EVERY_SECONDS = 60.0
"""Time between two lines."""
FROZEN_SECONDS = 10.0
"""The same after a new frozen player."""
_VOID = "void"


class LeagueLine:
    """Reports now and then how a league is doing."""

    def __init__(self) -> None:
        self._told_at = -math.inf
        self._matches, self._num_frozen = 0, 0

    def observe(self, now: float, snapshot: counts.Snapshot) -> str:
        """Returns a message for the user, or "". now: in seconds."""
        num_matches = sum(count for name, count in snapshot.matches.items() if name != _VOID)
        is_new = snapshot.num_frozen != self._num_frozen
        since = now - self._told_at
        is_due = since >= (FROZEN_SECONDS if is_new else EVERY_SECONDS)
        if not is_due or (num_matches == self._matches and not is_new):
            return ""
        self._told_at, self._matches, self._num_frozen = now, num_matches, snapshot.num_frozen
        return line_of(snapshot)


def line_of(snapshot: counts.Snapshot) -> str:
    """Returns the message: frozen players, matches by type, win rate against the active set."""
    counted = {name: count for name, count in snapshot.matches.items() if count}
    num_void = counted.pop(_VOID, 0)
    types = ", ".join(f"{count:,} {name}" for name, count in counted.items()) or "none yet"
    players = f"{snapshot.num_frozen} frozen player{'' if snapshot.num_frozen == 1 else 's'}"
    rate = "" if snapshot.win_rate is None else f"; win rate {snapshot.win_rate:.2f} against the active ones"
    return f"league: {players}; matches: {types}{f' ({num_void:,} not counted)' if num_void else ''}{rate}"


LEAGUE_FILE = "league.jsonl"
NASH_FILE = "nash.json"
"""The file with the last NashConv of the run's players from `seedzero league nash`, for the page."""
FREEZE, MATCHES = "freeze", "matches"
"""Kinds of lines."""


def read(run_dir: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the undamaged lines of a run's league.jsonl, none without the file. Raises ResumeError."""
    return list(rows.read(run_dir / LEAGUE_FILE))


class LeagueLog:
    """Appends lines to league.jsonl; thread-safe. Without a league it writes nothing.

    A full or read-only disk does not end training: the first failure is reported, and lines wait until writing works.
    """

    def __init__(self, run_dir: pathlib.Path, report: Callable[[str], None]) -> None:
        """report: receives a message when writing begins to fail, and when it works again."""
        path = run_dir / LEAGUE_FILE
        name = f"the league's history cannot be written to {path}"
        self._file = rows.RowFile(path, name, report, works="the league's history is written again")
        self.size_bytes = self._file.size_bytes
        self._waiting = b""  # not written yet
        self._update = 0  # of the newest line of matches
        self._matches: dict[str, int] = {}  # in the lines so far, by type

    def note(self, decision: Mapping[str, object]) -> None:
        """Appends a decision, such as a new frozen player; `event` names its kind."""
        with self._file.lock:
            self._append(**decision)

    def count(self, matches: Mapping[str, int], *, update: int, env_steps: int) -> None:
        """Appends the matches since the last such line, if there are any. matches: of the run so far, by type."""
        with self._file.lock:
            new = {name: count - self._matches.get(name, 0) for name, count in matches.items()}
            if any(new.values()):
                self._append(event=MATCHES, since_update=self._update, update=update, env_steps=env_steps, types=new)
                self._update, self._matches = update, dict(matches)

    def truncate(self, size_bytes: int) -> None:
        """Truncates league.jsonl to its size at a checkpoint, as a resume must; 0 removes everything. Raises OSError.

        Call it before the first line. The next line of matches includes those that were cut off.
        """
        with self._file.lock:
            for row in rows.RowReader(rows.cut(self._file.path, size_bytes).splitlines()):
                # somebody else may have damaged it
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, OverflowError):
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
