"""Defines the record of a device loop's call, and an observer for loops that nobody watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Acted(NamedTuple):
    """One part of an acting call: the rows whose home is one player."""

    rows: Any  # `device.batches.Batch` joined from messages, N environments or seats
    messages: Sequence[Any]  # the `device.batches.Message`s with the rows' observations
    actions: np.ndarray | None = None  # [N, ...]; None if no actions follow
    size: int = 0  # rows of its batches, including padding
    age: int = 0  # updates between the acting parameters and the newest ones
    # by slot, the `device.newest_rows.NewestRows` that are being read since the call
    looks: Mapping[int, Any] | None = None


class CallRecord(NamedTuple):
    """A call on the devices that has returned, or a wait of the loop; times are in seconds of the observer's clock."""

    kind: str
    began: float  # when its preparation began
    dispatched: float
    ended: float  # when its results were on the host
    acted: Sequence[Acted] = ()
    held: Sequence[str] = ()  # why the loop waited, as in `scheduler.Wait`

    def to_json(self) -> list[Any]:
        """Returns kind, three times, rows of an acting batch, its size and age, and the reason of a wait."""
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
"""Kind of a `CallRecord` that is a wait instead of a call."""


class Observer:
    """Receives the calls of the device loop. This base class keeps nothing."""

    def clock(self) -> float:
        """Returns the time in seconds."""
        return 0.0

    def look(self, slots: np.ndarray, place: Any) -> Mapping[int, Any] | None:
        """Loop's thread, after acting for slots [N] of a `loop.places.Place`: begins to read rows of watched rings."""

    def see(self, acted: Acted) -> None:
        """Loop's thread: receives rows that no call follows, at the end of an evaluation."""

    def note(self, call: CallRecord) -> None:
        """Any thread: receives calls in the order in which they end."""


NOBODY = Observer()
