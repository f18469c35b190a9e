"""Divides the devices between acting, rings and learning. The base class is one of three strategies.

    Strategy         every device acts, holds rings and learns: an update is one program
    FramesWithHost   the host keeps the replay's frames: the device draws, the host reads, the device learns
    Apart            some devices act and hold the rings, the others learn: draw, move, learn, write back

All run the same functions of `steps`, and acting is the same program everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from seedzero.agents import base
from seedzero.device import batches, states, steps, tracing
from seedzero.replay import ring_store

Learning: TypeAlias = tuple[np.int32, base.TrainState, ring_store.Rings]
"""The first arguments of an update's programs: a player's seed and states."""
Searching: TypeAlias = tuple[np.int32, base.Params, ring_store.Rings]
"""The first arguments of a reanalysis's programs: a player's seed and states."""
Updated: TypeAlias = tuple[base.TrainState, ring_store.Rings, jax.Array]
"""Like `steps.Updated`, with the metrics as one array [M]."""
Renewed: TypeAlias = tuple[ring_store.Rings, jax.Array]
"""Like `steps.Renewed`, with the metrics as one array [M]."""


class Acting(NamedTuple):
    """Parameters for acting, and the number of updates behind them."""

    params: base.Params
    version: int


class Strategy:
    """Every device acts, holds rings and learns. It serves one player, on the device loop's thread."""

    takes_turns = False
    """Whether acting waits for the parameters of an update in progress."""

    holds_frames = True
    """Whether the devices hold the replay's frames."""

    def lanes(self, max_in_flight: int) -> tuple[int, ...]:
        """Returns the most calls in flight: of acting, and of updates if they are counted separately."""
        return (max_in_flight,)

    def trace_update(self, tracer: tracing.ProgramTracer) -> tracing.Traces:
        """Returns the programs of an update by their names in `run_update`; one of them returns metrics."""
        given = (tracer.train, tracer.actor.rings), (tracer.feed,)
        trace = functools.partial(tracer.program, "update", steps.make_update, *given, donate=(1, 2), has_metrics=True)
        return {"update": trace}

    def trace_reanalyse(self, tracer: tracing.ProgramTracer) -> tracing.Traces:
        given = (tracer.params, tracer.actor.rings), (tracer.counters,)
        trace = functools.partial(
            tracer.program, "reanalyse", steps.make_reanalyse, *given, donate=(2,), has_metrics=True
        )
        return {"reanalyse": trace}

    def held(self, tracer: tracing.ProgramTracer) -> Any:
        """Returns the shapes of arrays on acting devices besides the acting state and two copies of the parameters."""
        return tracer.train

    @property
    def is_ready(self) -> bool:
        """Whether an update can run without waiting for frames that are being read."""
        return True

    def begin(self, rings: ring_store.Rings) -> ring_store.Rings:
        """Returns rings whose steps have changed, such as a checkpoint's, in the form that the devices keep."""
        return rings

    def whole(self, rings: ring_store.Rings) -> ring_store.Rings:
        """Returns the devices' rings with all frames, for a checkpoint."""
        return rings

    def keep(self, batch: batches.Batch) -> None:
        """Stores the frames of an acting call that the devices do not store, before the call."""

    def run_update(self, run: tracing.Bundle, given: Learning, feed: steps.Feed, num_updates: int) -> Updated:
        """Updates the states and returns them with metrics. num_updates: number of updates before this one."""
        updated: Updated = run["update"](*given, feed)
        return updated

    def run_reanalyse(self, run: tracing.Bundle, given: Searching, counters: steps.Counters) -> Renewed:
        """Reanalyses stored targets, and returns the rings and metrics."""
        renewed: Renewed = run["reanalyse"](*given, counters)
        return renewed

    def copy(self, params: base.Params) -> base.Params:
        """Returns a copy of learning parameters for the acting devices, which may still be in transit."""
        return states.copy(params)

    def publish(self, newest: Acting) -> Acting | None:
        """Copies learning parameters for acting; returns what `receive` returns."""
        return newest._replace(params=self.copy(newest.params))

    def receive(self) -> Acting | None:
        """Returns the newest published copy that is ready, or None if none was ready since the last call."""
        return None

    def when_there(self) -> Callable[[], object]:
        """Returns a function for any thread that waits until all published copies are ready."""
        return lambda: None

    def reanalysing(self, newest: Acting, acting: Acting) -> Acting:
        """Returns the parameters with which a reanalysis searches: the learning or the acting ones."""
        return newest

    def close(self) -> None:
        """Waits for frames that are being read. No update may follow."""
