"""Reports a league on the console."""

from __future__ import annotations

import math

from seedzero.metrics import counts

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
