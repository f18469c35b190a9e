"""Reports a run's other hosts on the console."""

from __future__ import annotations

import math
from collections.abc import Sequence

EVERY_SECONDS = 60.0
"""Time between two reports."""


class HostsLine:
    """Reports now and then how the other hosts are doing."""

    def __init__(self) -> None:
        self._told_at, self._told = -math.inf, ""

    def observe(self, now: float, lines: Sequence[str]) -> str:
        """Returns a message for the user, or "". now: in seconds. lines: one per host."""
        text = "; ".join(lines)
        if text == self._told or now - self._told_at < EVERY_SECONDS:
            return ""
        self._told_at, self._told = now, text
        return text
