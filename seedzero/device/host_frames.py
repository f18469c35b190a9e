"""Keeps the replay's frames in the host's memory, for devices without enough memory.

Everything else of the replay stays on the device and is sampled there. An update is then two calls with a copy between
them: the device draws windows and returns the places of their frames, the host reads these, and the device learns.
Just before the device learns, it draws the windows of the next update, so that a separate thread can read their frames
at the same time; their priorities are from before the present update. Acting continues, but never overwrites drawn
rows: sampling excludes the rows that `HOST_LAG` new ones in each ring would reach, and windows are drawn again if more
rows were written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent import futures
from typing import NamedTuple

import jax
import numpy as np

from seedzero.core import errors, types
from seedzero.device import batches, meshes, setups, steps, strategies, tracing
from seedzero.replay import ring_store, windowing

HOST_LAG = 16
"""Most new rows in a ring between drawing windows and learning from them."""


class HostFrames:
    """Frames of all training slots, in rings of `length` rows, which the device loop's thread writes.

    sharding: how frames that are read, split by windows, are spread over the devices.
    """

    def __init__(
        self, spec: types.EnvSpec, layout: batches.Layout, length: int, sharding: jax.sharding.Sharding
    ) -> None:
        self._shape = (layout.num_train, length, *spec.observation_shape)
        self._dtype = spec.observation_dtype
        self._cursor = np.zeros(layout.num_train, np.int64)
        self._layout = layout
        self._sharding = sharding

    @functools.cached_property
    def array(self) -> np.ndarray:
        """The rings [S, length, *observation_shape], allocated at first use."""
        return np.zeros(self._shape, self._dtype)

    def resume(self, cursor: np.ndarray) -> None:
        """Continues after a checkpoint was restored into `array`. cursor: [S] number of rows ever written."""
        self._cursor[:] = cursor

    def write(self, batch: batches.Batch) -> None:
        """Writes the newest frames of training slots at the same places in the rings as the rest of their rows."""
        num_rows = len(batch.slot) // self._layout.num_shards
        stored = np.flatnonzero(batch.ring < self._layout.train_per_shard)
        slot = stored // num_rows * self._layout.train_per_shard + batch.ring[stored]
        frames = batch.observation[stored]
        if frames.shape[1:] != self.array.shape[2:]:  # keeps only the arrays that are not for acting alone
            frames = frames[:, : self.array.shape[2]]
        self.array[slot, self._cursor[slot] % self.array.shape[1]] = frames
        self._cursor[slot] += 1

    def mark(self) -> np.ndarray:
        """Returns [S] int64, the number of rows ever written to each ring."""
        return self._cursor.copy()

    def num_new(self, mark: np.ndarray) -> int:
        """Returns the largest number of rows added to one ring since `mark`."""
        return int(np.max(self._cursor - mark))

    def read(self, windows: windowing.Windows) -> jax.Array:
        """Any thread: returns the windows' frames [B, P, stack, *observation_shape], spread over the devices.

        Windows without a slot, which learning and reanalysis ignore, get arbitrary frames.
        """
        places = np.asarray(windows.places)
        local = np.minimum(np.asarray(windows.slot), self._layout.train_per_shard - 1)
        per_shard = len(local) // self._layout.num_shards
        slot = np.arange(len(local)) // per_shard * self._layout.train_per_shard + local
        frames: jax.Array = jax.device_put(self.array[slot[:, None, None], places], self._sharding)
        return frames


class _Ahead(NamedTuple):
    """Windows of the next update, whose frames are being read, and the rings' mark when they were drawn."""

    windows: windowing.Windows
    frames: futures.Future[jax.Array]
    mark: np.ndarray


class FramesWithHost(strategies.Strategy):
    """The strategy for a replay whose frames are on the host; used by the device loop's thread.

    ahead: whether windows are drawn before their update; if false, every run draws the same windows. on_ready: called
    from a thread when the next windows' frames have been read.
    """

    holds_frames = False

    def __init__(self, frames: HostFrames, *, ahead: bool, on_ready: Callable[[], None]) -> None:
        self.frames = frames
        self._on_ready = on_ready
        self._reader = futures.ThreadPoolExecutor(1, thread_name_prefix="frames") if ahead else None
        self._next: _Ahead | None = None

    def trace_update(self, tracer: tracing.ProgramTracer) -> tracing.Traces:
        make = functools.partial(make_draw, lag=HOST_LAG if tracer.setup.ahead else 0)
        train, rings = tracer.train, tracer.actor.rings
        drawing = (rings, train.num_updates), (tracer.scalar, tracer.feed)

        def learn() -> tracing.UncompiledProgram:
            windows = tracer.drawn(make, *drawing)
            return tracer.program("learn", make_learn, (train, rings), windows, donate=(1, 2), has_metrics=True)

        return {"draw": lambda: tracer.program("draw", make, *drawing), "learn": learn}

    def trace_reanalyse(self, tracer: tracing.ProgramTracer) -> tracing.Traces:
        rings, counters = tracer.actor.rings, tracer.counters
        drawing = (rings,), (counters,)

        def renew() -> tracing.UncompiledProgram:
            windows = tracer.drawn(make_draw_stale, *drawing)
            given = (tracer.params, rings), (*windows, counters)
            return tracer.program("renew", make_renew, *given, donate=(2,), has_metrics=True)

        return {"draw_stale": lambda: tracer.program("draw_stale", make_draw_stale, *drawing), "renew": renew}

    @property
    def is_ready(self) -> bool:
        return self._next is None or self._next.frames.done() or self._is_late(self._next)

    def keep(self, batch: batches.Batch) -> None:
        self.frames.write(batch)

    def run_update(
        self, run: tracing.Bundle, given: strategies.Learning, feed: steps.Feed, num_updates: int
    ) -> strategies.Updated:
        seed, train, rings = given
        draw = functools.partial(run["draw"], seed, rings, train.num_updates)  # (ahead, feed) -> Windows
        windows, frames = self._windows(lambda: draw(np.int32(0), feed))
        if self._reader is not None:
            following = draw(np.int32(1), feed)
            reading = self._reader.submit(self.frames.read, following)
            reading.add_done_callback(lambda _: self._on_ready())
            self._next = _Ahead(following, reading, self.frames.mark())
        updated: strategies.Updated = run["learn"](*given, windows, frames)
        return updated

    def _windows(self, draw: Callable[[], windowing.Windows]) -> tuple[windowing.Windows, jax.Array]:
        """Returns the windows of an update, and their frames."""
        ahead, self._next = self._next, None
        if ahead is not None and not self._is_late(ahead):
            return ahead.windows, ahead.frames.result()
        if ahead is not None:
            ahead.frames.cancel()
        windows = draw()
        return windows, self.frames.read(windows)

    def _is_late(self, ahead: _Ahead) -> bool:
        """Returns whether acting may have overwritten the drawn rows."""
        return self.frames.num_new(ahead.mark) > HOST_LAG

    def run_reanalyse(
        self, run: tracing.Bundle, given: strategies.Searching, counters: steps.Counters
    ) -> strategies.Renewed:
        seed, _, rings = given
        windows = run["draw_stale"](seed, rings, counters)
        # Waits for the places and reads the frames at once, so nothing is written in between.
        renewed: strategies.Renewed = run["renew"](*given, windows, self.frames.read(windows), counters)
        return renewed

    def begin(self, rings: ring_store.Rings) -> ring_store.Rings:
        self._next = None
        self.frames.resume(np.asarray(rings.cursor))
        return rings._replace(observation=None)

    def whole(self, rings: ring_store.Rings) -> ring_store.Rings:
        return rings._replace(observation=self.frames.array)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.shutdown(cancel_futures=True)


def make_draw(setup: setups.Setup, *, lag: int) -> Callable[..., windowing.Windows]:
    """Returns the first step of an update with frames on the host. lag: as in `sampling.sample`.

    (seed, Rings, num_updates, ahead, Feed) -> Windows without their frames. `num_updates` and `ahead` are int32
    scalars; `ahead` is the number of further updates before the windows are learned from.
    """

    def draw(
        seed: jax.Array, rings: ring_store.Rings, num_updates: jax.Array, ahead: jax.Array, feed: steps.Feed
    ) -> windowing.Windows:
        return steps.draw(setup, seed, rings, num_updates + ahead, feed, lag=lag)

    in_specs = (meshes.REPLICATED, meshes.SHARDED, meshes.REPLICATED, meshes.REPLICATED, steps.feed_specs(setup))
    return meshes.over_devices(draw, setup.mesh, in_specs, meshes.SHARDED)


def make_learn(setup: setups.Setup) -> Callable[..., steps.Updated]:
    """Returns the last step of an update with frames on the host; it donates the states.

    (seed, train state, Rings, Windows, frames [B, P, stack, *observation_shape]) -> (train state, Rings, metrics).
    """

    learn, sharded = functools.partial(steps.learn, setup), (meshes.SHARDED, meshes.SHARDED, meshes.SHARDED)
    in_specs = (meshes.REPLICATED, meshes.REPLICATED, *sharded)
    out_specs = (meshes.REPLICATED, meshes.SHARDED, meshes.REPLICATED)
    return meshes.over_devices(learn, setup.mesh, in_specs, out_specs, donate=(1, 2))


def make_draw_stale(setup: setups.Setup) -> Callable[..., windowing.Windows]:
    """Returns the first step of a reanalysis with frames on the host: (seed, Rings, Counters) -> Windows."""
    draw, in_specs = functools.partial(steps.draw_stale, setup), (meshes.REPLICATED, meshes.SHARDED, meshes.REPLICATED)
    return meshes.over_devices(draw, setup.mesh, in_specs, meshes.SHARDED)


def make_renew(setup: setups.Setup) -> Callable[..., steps.Renewed]:
    """Returns the last step of a reanalysis with frames on the host; it donates the rings.

    (seed, params, Rings, Windows, frames [B, P, stack, *observation_shape], Counters) -> (Rings, metrics).
    """

    renew, sharded = functools.partial(steps.renew, setup), (meshes.SHARDED, meshes.SHARDED, meshes.SHARDED)
    in_specs = (meshes.REPLICATED, meshes.REPLICATED, *sharded, meshes.REPLICATED)
    return meshes.over_devices(renew, setup.mesh, in_specs, (meshes.SHARDED, meshes.REPLICATED), donate=(2,))


def check_length(length: int, stack: int, *, ahead: bool) -> None:
    """Raises CapacityError if rings are so short that less than half of their steps could be sampled."""
    least = 2 * (stack + HOST_LAG)
    if ahead and length < least:
        raise errors.CapacityError(
            f"a replay ring has {length} rows, and with frames on the host it needs {least}; raise "
            "--replay.capacity, lower --worker.envs_per_group or --replay.num_envs, or give --replay.placement=device"
        )
