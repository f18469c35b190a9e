"""The stage of a run is one value, which only the main thread replaces, by the transitions of one table.

PREPARED <--> BUILDING --> BUILT --> SAVING
   |                         |          |
   +----------> OVER <-------+----------+
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping

from seedzero.core import types
from seedzero.learner.loop import device_loop
from seedzero.monitoring.metrics import counts


class Stage(enum.Enum):
    """The stages of a run.

    A new run listens before it is built, a resumed one afterwards, so listening is not a stage.
    """

    PREPARED = "prepared"  # there is no device loop yet
    BUILDING = "building"  # networks and replay
    BUILT = "built"  # the device loop runs, or waits for its start
    SAVING = "saving"  # the device loop has ended, and the last state is being saved
    OVER = "over"


TRANSITIONS: Mapping[Stage, frozenset[Stage]] = {
    Stage.PREPARED: frozenset({Stage.BUILDING, Stage.OVER}),
    Stage.BUILDING: frozenset({Stage.BUILT, Stage.PREPARED}),  # SAVING if building failed
    Stage.BUILT: frozenset({Stage.SAVING, Stage.OVER}),
    Stage.SAVING: frozenset({Stage.OVER}),
    Stage.OVER: frozenset(),
}


@dataclasses.dataclass(eq=False)
class RunStage:
    """The stage of a run, and its device loop. The main thread writes it, and any thread may read it."""

    make: Callable[[types.EnvSpec], device_loop.DeviceLoop]  # builds the device loop for these environments
    follow: Callable[[Callable[[], counts.Snapshot]], None]  # takes what gives access to its counters
    now: Stage = Stage.PREPARED
    loop: device_loop.DeviceLoop | None = None  # None: it is not built yet, or the run is over

    def enter(self, target: Stage) -> None:
        """Main thread: moves to another stage; raises RuntimeError for a transition that is not in the table."""
        if target not in TRANSITIONS[self.now]:
            raise RuntimeError(f"{target.value}: not after the stage {self.now.value!r} of a run")
        self.now = target
        if target is Stage.OVER:
            # cycles of objects hold the device's memory through it, which the next run may need at once
            self.loop = None

    def build(self, spec: types.EnvSpec) -> None:
        """Main thread: builds networks and replay for the environments, begins to compile, and resumes."""
        self.enter(Stage.BUILDING)
        try:
            self.loop = self.make(spec)
        finally:
            self.enter(Stage.BUILT if self.loop else Stage.PREPARED)
        self.follow(self.loop.look)

    def pulse(self) -> object | None:
        """Any thread: returns a value for `deadline.Deadline`. Saving and waiting for environments are not calls."""
        now, loop = self.now, self.loop
        if now is Stage.BUILDING:
            return "building"
        return loop.pulse() if loop and now is Stage.BUILT else None
