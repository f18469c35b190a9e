"""The replay's frames in the host's memory, where the device has no room for them.

Everything else of the replay stays on the device and is sampled there. An update is then two calls with a copy in
between: the device draws windows and says where their frames lie, the host reads them, the device learns. The windows
of the next update are drawn just before the device learns, so that they are read, on a thread of their own, while it
does; their priorities are those before that update. Acting goes on meanwhile, but what it overwrites is never among
them: sampling leaves out the rows that `HOST_LAG` new ones in each ring would reach, and windows are drawn anew where
there were more.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from typing import NamedTuple, TypeAlias

import jax
import numpy as np

from seedzero.agents import base
from seedzero.core import errors, types
from seedzero.device import batch as batches
from seedzero.device import steps
from seedzero.replay import rings as ring_store
from seedzero.replay import windows as windowing

HOST_LAG = 16
"""New rows in a ring between drawing windows and having learned from them, at most."""

Updated: TypeAlias = tuple[base.TrainState, ring_store.Rings, jax.Array]
"""As `steps.Updated`, with the metrics as one array."""


class HostFrames:
    """Frames of all training slots, in rings of `length` rows. Written by the device loop's thread.

    `sharding` is that of what is read, split by windows.
    """

    def __init__(
        self, spec: types.EnvSpec, layout: batches.Layout, length: int, sharding: jax.sharding.Sharding
    ) -> None:
        shape = (layout.num_train, length, *spec.observation_shape)
        self.array = np.zeros(shape, spec.observation_dtype)
        self._cursor = np.zeros(layout.num_train, np.int64)
        self._layout = layout
        self._sharding = sharding

    def resume(self, cursor: np.ndarray) -> None:
        """Goes on behind the rows that a checkpoint has brought into `array`: [S], rows ever written."""
        self._cursor[:] = cursor

    def write(self, batch: batches.Batch) -> None:
        """Puts training slots' newest frames where the acting call of this batch puts the rest of their rows."""
        num_rows = len(batch.slot) // self._layout.num_shards
        stored = np.flatnonzero(batch.slot < self._layout.train_per_shard)
        slot = stored // num_rows * self._layout.train_per_shard + batch.slot[stored]
        self.array[slot, self._cursor[slot] % self.array.shape[1]] = batch.observation[stored]
        self._cursor[slot] += 1

    def mark(self) -> np.ndarray:
        """Returns [S] int64, how far each ring has been written."""
        return self._cursor.copy()

    def num_new(self, mark: np.ndarray) -> int:
        """Returns the most rows that one ring got since."""
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
    """Windows of the next update, their frames, being read, and the mark of the rings when they were drawn."""

    windows: windowing.Windows
    frames: futures.Future[jax.Array]
    mark: np.ndarray


class UpdateFromHost:
    """Updates from the host's frames; called like the update of a replay in device memory, by one thread.

    Args:
      frames: the host's.
      draw: from `steps.make_draw`, with `HOST_LAG` where it draws ahead.
      learn: from `steps.make_learn`, with its metrics as one array.
      ahead: whether windows are drawn before their update is asked for; false: every run draws the same.
      on_ready: called from a thread when the next windows' frames are there.
    """

    def __init__(
        self,
        frames: HostFrames,
        draw: Callable[..., windowing.Windows],
        learn: Callable[..., Updated],
        *,
        ahead: bool,
        on_ready: Callable[[], None],
    ) -> None:
        self._frames = frames
        self._draw = draw
        self._learn = learn
        self._on_ready = on_ready
        self._reader = futures.ThreadPoolExecutor(1, thread_name_prefix="frames") if ahead else None
        self._next: _Ahead | None = None

    @property
    def ready(self) -> bool:
        """Whether a call needs not wait for frames that are being read."""
        return self._next is None or self._next.frames.done() or self._is_late(self._next)

    def __call__(self, train: base.TrainState, rings: ring_store.Rings, feed: steps.Feed) -> Updated:
        """Returns the states after an update, and its metrics."""
        windows, frames = self._windows(train, rings, feed)
        if self._reader is not None:
            following = self._draw(train.num_updates, np.int32(1), rings, feed)
            reading = self._reader.submit(self._frames.read, following)
            reading.add_done_callback(lambda _: self._on_ready())
            self._next = _Ahead(following, reading, self._frames.mark())
        return self._learn(train, rings, windows, frames)

    def _windows(
        self, train: base.TrainState, rings: ring_store.Rings, feed: steps.Feed
    ) -> tuple[windowing.Windows, jax.Array]:
        """Returns this update's windows and their frames."""
        ahead, self._next = self._next, None
        if ahead is not None and not self._is_late(ahead):
            return ahead.windows, ahead.frames.result()
        if ahead is not None:
            ahead.frames.cancel()
        windows = self._draw(train.num_updates, np.int32(0), rings, feed)
        return windows, self._frames.read(windows)

    def _is_late(self, ahead: _Ahead) -> bool:
        """Whether what was drawn may be overwritten by now."""
        return self._frames.num_new(ahead.mark) > HOST_LAG

    def close(self) -> None:
        """Waits for what is being read."""
        if self._reader is not None:
            self._reader.shutdown(cancel_futures=True)


def check_length(length: int, stack: int, *, ahead: bool) -> None:
    """Refuses rings of which less than half could be sampled.

    Raises:
      CapacityError: they are too short.
    """
    least = 2 * (stack + HOST_LAG)
    if ahead and length < least:
        raise errors.CapacityError(
            f"a replay ring has {length} rows; where the host keeps observations it needs at least {least}, because "
            f"the oldest {stack + HOST_LAG - 1} are not sampled; raise --replay.capacity, let fewer "
            f"environments share it (--worker.envs_per_group, --replay.num_envs), or give --replay.placement=device"
        )
