"""The stage of a run: one value, replaced by the main thread alone, with its transitions in one table.

PREPARED <--> BUILDING --> BUILT --> SAVING
   |                         |          |
   +----------> OVER <-------+----------+
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from seedzero.loop import device_loop


class Stage(enum.Enum):
    """The stages of a run. A new run listens before it is built, a resumed one after: that is no stage."""

    PREPARED = "prepared"  # there is no device loop yet
    BUILDING = "building"  # networks and replay
    BUILT = "built"  # the device loop runs, or waits for its start
    SAVING = "saving"  # the device loop has ended, and the last state is being saved
    OVER = "over"

    def to(self, target: Stage) -> Stage:
        """Returns the target; RuntimeError for a transition outside of the table."""
        if target not in TRANSITIONS[self]:
            raise RuntimeError(f"{target.value}: not after the stage {self.value!r} of a run")
        return target


TRANSITIONS: Mapping[Stage, frozenset[Stage]] = {
    Stage.PREPARED: frozenset({Stage.BUILDING, Stage.OVER}),
    Stage.BUILDING: frozenset({Stage.BUILT, Stage.PREPARED}),  # the latter where building failed
    Stage.BUILT: frozenset({Stage.SAVING, Stage.OVER}),
    Stage.SAVING: frozenset({Stage.OVER}),
    Stage.OVER: frozenset(),
}


class RunStage:
    """The stage of a run and its device loop, replaced together; any thread may read them."""

    def __init__(self) -> None:
        self._at: tuple[Stage, device_loop.DeviceLoop | None] = (Stage.PREPARED, None)

    @property
    def now(self) -> Stage:
        return self._at[0]

    @property
    def loop(self) -> device_loop.DeviceLoop | None:
        """The device loop; None: it is not built yet, or the run is over."""
        return self._at[1]

    def build(self, make: Callable[[], device_loop.DeviceLoop]) -> None:
        """Main thread: makes the device loop."""
        self._enter(Stage.BUILDING)
        loop = None
        try:
            loop = make()
        finally:
            self._enter(Stage.BUILT if loop else Stage.PREPARED, loop)

    def save(self) -> device_loop.DeviceLoop:
        """Main thread: begins to save the last state; returns the device loop, which has ended."""
        self._enter(Stage.SAVING, self.loop)
        assert self.loop is not None
        return self.loop

    def end(self) -> None:
        """Main thread: drops the device loop: it holds the device's memory, which the next run may want at once."""
        self._enter(Stage.OVER)

    def pulse(self) -> object | None:
        """Any thread: returns a value for `deadline.Deadline`; saving and waiting for environments are no calls."""
        now, loop = self._at
        if now is Stage.BUILDING:
            return "building"
        return loop.pulse() if loop and now is Stage.BUILT else None

    def _enter(self, target: Stage, loop: device_loop.DeviceLoop | None = None) -> None:
        self._at = self.now.to(target), loop
