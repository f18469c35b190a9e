"""The replay's frames in the host's memory, for devices without room for them.

Everything else of the replay stays on the device and is sampled there. An update is then two calls with a copy in
between: the device draws windows and says where their frames lie, the host reads them, the device learns. The windows
of the next update are drawn just before the device learns, so that they are read, on a thread of their own, while it
does; their priorities are those before that update. Acting continues meanwhile, but what it overwrites is never among
them: sampling leaves out the rows that `HOST_LAG` new ones in each ring would reach, and windows are drawn again if
there were more.
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
"""New rows in a ring between drawing windows and having learned from them, at most."""


class HostFrames:
    """Frames of all training slots, in rings of `length` rows. Written by the device loop's thread.

    `sharding` is that of what is read, split by windows.
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
        """[S, length, *observation_shape], allocated at first use."""
        return np.zeros(self._shape, self._dtype)

    def resume(self, cursor: np.ndarray) -> None:
        """Continues after the rows that a checkpoint has brought into `array`: [S], rows ever written."""
        self._cursor[:] = cursor

    def write(self, batch: batches.Batch) -> None:
        """Writes training slots' newest frames to the places of the batch's other data in the rings."""
        num_rows = len(batch.slot) // self._layout.num_shards
        stored = np.flatnonzero(batch.ring < self._layout.train_per_shard)
        slot = stored // num_rows * self._layout.train_per_shard + batch.ring[stored]
        frames = batch.observation[stored]
        if frames.shape[1:] != self.array.shape[2:]:  # of the arrays that are not for acting alone
            frames = frames[:, : self.array.shape[2]]
        self.array[slot, self._cursor[slot] % self.array.shape[1]] = frames
        self._cursor[slot] += 1

    def mark(self) -> np.ndarray:
        """Returns [S] int64, how far each ring has been written."""
        return self._cursor.copy()

    def num_new(self, mark: np.ndarray) -> int:
        """Returns the largest number of rows added to one ring since."""
        return int(np.max(self._cursor - mark))

    def read(self, windows: windowing.Windows) -> jax.Array:
        """Any thread: returns the windows' frames [B, P, stack, *observation_shape], spread over the devices.

        Windows without a slot, which learn and renew pass over, get arbitrary frames.
        """
        places = np.asarray(windows.places)
        local = np.minimum(np.asarray(windows.slot), self._layout.train_per_shard - 1)
        per_shard = len(local) // self._layout.num_shards
        slot = np.arange(len(local)) // per_shard * self._layout.train_per_shard + local
        frames: jax.Array = jax.device_put(self.array[slot[:, None, None], places], self._sharding)
        return frames


class _Ahead(NamedTuple):
    """Windows of the next update, their frames being read, and the rings' mark at the draw."""

    windows: windowing.Windows
    frames: futures.Future[jax.Array]
    mark: np.ndarray


class FramesWithHost(strategies.Strategy):
    """The strategy for a replay with frames on the host; used by the device loop's thread.

    ahead: whether windows are drawn before their update is asked for; false: every run draws the same.
    on_ready: called from a thread when the next windows' frames are there.
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
        """Returns the update's windows with frames."""
        ahead, self._next = self._next, None
        if ahead is not None and not self._is_late(ahead):
            return ahead.windows, ahead.frames.result()
        if ahead is not None:
            ahead.frames.cancel()
        windows = draw()
        return windows, self.frames.read(windows)

    def _is_late(self, ahead: _Ahead) -> bool:
        """Whether the drawn rows may be overwritten by now."""
        return self.frames.num_new(ahead.mark) > HOST_LAG

    def run_reanalyse(
        self, run: tracing.Bundle, given: strategies.Searching, counters: steps.Counters
    ) -> strategies.Renewed:
        seed, _, rings = given
        windows = run["draw_stale"](seed, rings, counters)
        # Waits for the places and reads them at once: nothing is written in between.
        renewed: strategies.Renewed = run["renew"](*given, windows, self.frames.read(windows), counters)
        return renewed

    def begin(self, rings: ring_store.Rings) -> ring_store.Rings:
        self.frames.resume(np.asarray(rings.cursor))
        return rings._replace(observation=None)

    def whole(self, rings: ring_store.Rings) -> ring_store.Rings:
        return rings._replace(observation=self.frames.array)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.shutdown(cancel_futures=True)


def make_draw(setup: setups.Setup, *, lag: int) -> Callable[..., windowing.Windows]:
    """Returns an update's first step for rings with frames on the host; lag: as in `sampling.sample`.

    (seed, Rings, num_updates, ahead, Feed) -> Windows without their frames. The numbers are scalar int32; ahead: how
    many more updates will have been done when the windows are learned from.
    """

    def draw(
        seed: jax.Array, rings: ring_store.Rings, num_updates: jax.Array, ahead: jax.Array, feed: steps.Feed
    ) -> windowing.Windows:
        return steps.draw(setup, seed, rings, num_updates + ahead, feed, lag=lag)

    in_specs = (meshes.REPLICATED, meshes.SHARDED, meshes.REPLICATED, meshes.REPLICATED, steps.feed_specs(setup))
    return meshes.over_devices(draw, setup.mesh, in_specs, meshes.SHARDED)


def make_learn(setup: setups.Setup) -> Callable[..., steps.Updated]:
    """Returns an update's last step for rings with frames on the host; donates the states.

    (seed, train state, Rings, Windows, frames [B, P, stack, *observation_shape]) -> (train state, Rings, metrics).
    """

    learn, sharded = functools.partial(steps.learn, setup), (meshes.SHARDED, meshes.SHARDED, meshes.SHARDED)
    in_specs = (meshes.REPLICATED, meshes.REPLICATED, *sharded)
    out_specs = (meshes.REPLICATED, meshes.SHARDED, meshes.REPLICATED)
    return meshes.over_devices(learn, setup.mesh, in_specs, out_specs, donate=(1, 2))


def make_draw_stale(setup: setups.Setup) -> Callable[..., windowing.Windows]:
    """Returns a reanalysis's first step for rings with frames on the host: (seed, Rings, Counters) -> Windows."""
    draw, in_specs = functools.partial(steps.draw_stale, setup), (meshes.REPLICATED, meshes.SHARDED, meshes.REPLICATED)
    return meshes.over_devices(draw, setup.mesh, in_specs, meshes.SHARDED)


def make_renew(setup: setups.Setup) -> Callable[..., steps.Renewed]:
    """Returns a reanalysis's last step for rings with frames on the host; donates the rings.

    (seed, params, Rings, Windows, frames [B, P, stack, *observation_shape], Counters) -> (Rings, metrics).
    """

    renew, sharded = functools.partial(steps.renew, setup), (meshes.SHARDED, meshes.SHARDED, meshes.SHARDED)
    in_specs = (meshes.REPLICATED, meshes.REPLICATED, *sharded, meshes.REPLICATED)
    return meshes.over_devices(renew, setup.mesh, in_specs, (meshes.SHARDED, meshes.REPLICATED), donate=(2,))


def check_length(length: int, stack: int, *, ahead: bool) -> None:
    """Raises CapacityError for rings too short for sampling half of the steps."""
    least = 2 * (stack + HOST_LAG)
    if ahead and length < least:
        raise errors.CapacityError(
            f"a replay ring has {length} rows; where the host keeps observations it needs at least {least}, because "
            f"the oldest {stack + HOST_LAG - 1} are not sampled; raise --replay.capacity, let fewer "
            f"environments share it (--worker.envs_per_group, --replay.num_envs), or give --replay.placement=device"
        )
