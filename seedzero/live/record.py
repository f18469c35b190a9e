"""The record of a call of the device loop, and the observer of a loop that nobody watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Acted(NamedTuple):
    """A part of an acting call: the rows at home with one player."""

    rows: Any  # `device.batch.Batch` as joined from messages, N environments or seats
    messages: Sequence[Any]  # `device.batch.Message`s of these, with their observations
    actions: np.ndarray | None = None  # [N, ...]; None: none follow
    size: int = 0  # of its batches, with padding
    age: int = 0  # updates between the acting and the newest parameters
    looks: Mapping[int, Any] | None = None  # `device.newest_rows.NewestRows` by slot, begun after the call


class CallRecord(NamedTuple):
    """A call on the devices that has returned, or a wait of the loop; times in seconds of the observer's clock."""

    kind: str
    began: float  # to be prepared
    dispatched: float
    ended: float  # on the host, with its results
    acted: Sequence[Acted] = ()
    held: Sequence[str] = ()  # of a wait, as of `scheduler.Wait`

    def to_json(self) -> list[Any]:
        """Returns kind, the three times, rows of an acting batch, its size, its age, and the reason of a wait."""
        times = (round(time, 6) for time in self[1:4])
        rows, size = sum(len(one.rows.slot) for one in self.acted), sum(one.size for one in self.acted)
        age = self.acted[-1].age if self.acted else None
        return [self.kind, *times, rows, size, age, self._reason() if self.kind == WAIT else ""]

    def _reason(self) -> str:
        if not self.held:
            return "calls on the devices"
        if "acting_held_seconds" in self.held:
            return "acting waits for learning"
        return "learning waits for steps" if "updating_held_seconds" in self.held else "environments"


WAIT = "wait"
"""Kind of a `CallRecord` of no call."""


class Observer:
    """Sees the calls of the device loop. This one keeps nothing."""

    def clock(self) -> float:
        """Returns the time, in seconds."""
        return 0.0

    def look(self, slots: np.ndarray, place: Any) -> Mapping[int, Any] | None:
        """Loop's thread, after a call that acted for slots [N] of a `loop.places.Place`: begins looks at its rings."""

    def see(self, acted: Acted) -> None:
        """Loop's thread: takes rows that get no call, at the end of an evaluation."""

    def note(self, call: CallRecord) -> None:
        """Any thread: takes a call, in the order of their ends."""


NOBODY = Observer()
