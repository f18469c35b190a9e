"""Stores the history of every environment on the device, with one ring for each slot.

Row n of a slot holds the environment's n-th observation and the outcome of acting on it. The transition n -> n+1
exists once row n+1 was written, unless that is the first row of an episode or session. A row without its transition
(the newest one, the last of an episode, the last before a cut) is never sampled, but windows of earlier rows reach it.
Windows that cross episodes may begin at the last row of one. A cut is a first row whose predecessor ended no episode,
because the worker was lost in between.

Sampling weights are computed when priorities are written, once for each sampled row; sampling itself only sums
weights.

If the device has no room for the frames, the host keeps them (`windowing.py`).

Everything here is pure and sees one shard: slots are local indices. Under `shard_map`, every shard calls it
separately.

Shape letters: S slots, T rows of a ring, B batch.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.core import errors, types
from seedzero.replay import sources

# Lays out a ring's frames: large ones in rows of 128 numbers, which a TPU writes and reads in place.
#
# A TPU keeps an array's last two axes in tiles of 128 numbers by 8 or more. Frames [96, 96, 1] do not fit them, and
# its compiler then copies the whole ring in every call. As [72, 128] they fill whole tiles; without whole tiles, the
# compiler may choose tiles of other axes, and copies again. Small images are flat, because a copy of frames [10, 5, 1]
# takes fifteen times their memory there. On CPUs and GPUs the order of the bytes is the same. Values never change;
# files and windows have the environment's shapes.
#
# Shape letters: S slots, T rows of a ring.
_LANES, _TILE_ROWS = 128, 8
_MOST_PADDING = 1 / 8
"""How much larger whole tiles may make a frame's rows."""
_LEAST_BYTES = 1024
"""Smallest frame in bytes that is stored in rows; the padding of a smaller one could double it."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=("packed",), meta_fields=("frame_shape",))
@dataclasses.dataclass(frozen=True)
class Packed:
    """Rings of images; its properties are those of an array [S, T, *frame_shape]."""

    # a frame's numbers in order: [S, T, rows, 128], padded with 0, or [S, T, N] for small frames; or only its shape,
    # dtype and sharding
    packed: Any
    frame_shape: tuple[int, ...]  # the environment's shape

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.packed.shape[:2], *self.frame_shape)

    @property
    def dtype(self) -> Any:
        return self.packed.dtype

    @property
    def sharding(self) -> Any:
        return self.packed.sharding


Frames: TypeAlias = Any
"""A ring's frames: `Packed`, or an array [S, T, *frame_shape] for small vectors and numbers."""


def zero_rows(num_slots: int, length: int, frame_shape: tuple[int, ...], dtype: Any) -> Frames:
    """Returns rings without any frame."""
    size = math.prod(frame_shape)
    is_small = size * np.dtype(dtype).itemsize < _LEAST_BYTES
    if is_small and len(frame_shape) < 2:
        return jnp.zeros((num_slots, length, *frame_shape), dtype)
    shape = (size,) if is_small else (_num_rows(size), _LANES)
    return Packed(jnp.zeros((num_slots, length, *shape), dtype), frame_shape)


def _num_rows(size: int) -> int:
    """Returns how many rows a frame of a size has, in whole tiles unless these add too much."""
    rows = math.ceil(size / _LANES)
    whole = math.ceil(rows / _TILE_ROWS) * _TILE_ROWS
    return whole if whole <= (1 + _MOST_PADDING) * rows else rows


def get_frames(frames: Frames, slot: jax.Array, time: jax.Array, mode: str | None = None) -> jax.Array:
    """Returns the frames [..., *frame_shape] at slots and times [...]. mode: as in `jax.Array.at`."""
    packed = frames.packed if isinstance(frames, Packed) else frames
    found: jax.Array = packed.at[slot, time].get(mode=mode)
    if not isinstance(frames, Packed):
        return found
    batch_shape = found.shape[: found.ndim - packed.ndim + 2]
    flat = found.reshape(*batch_shape, -1)
    return flat[..., : math.prod(frames.frame_shape)].reshape(*batch_shape, *frames.frame_shape)


def put_rows(frames: Frames, slot: jax.Array, time: jax.Array, new: jax.Array, *, unique: bool = False) -> Frames:
    """Returns the rings with frames [B, *frame_shape] at [B] slots and times; slots that do not exist are dropped.

    unique: whether no place occurs twice.
    """
    new = new.astype(frames.dtype)
    if not isinstance(frames, Packed):
        return frames.at[slot, time].set(new, mode="drop", unique_indices=unique)
    shape, flat = frames.packed.shape[2:], new.reshape(len(new), -1)
    padded = jnp.pad(flat, ((0, 0), (0, math.prod(shape) - flat.shape[1]))).reshape(len(new), *shape)
    packed = frames.packed.at[slot, time].set(padded, mode="drop", unique_indices=unique)
    return dataclasses.replace(frames, packed=packed)


VERSION = "version"
"""A stored int32 array: updates that the acting parameters had seen, which shows how far actions are off the policy.
"""
TARGET_VERSION = "target_version"
"""A stored int32 array, if targets are reanalysed: updates seen by the parameters that made the targets."""

ACTION = "action"
"""A stored int32 array: the action of the row."""

OWN = "own"
"""A stored bool array, if others move too; true: the parameters of the rings' player moved."""


class Rings(NamedTuple):
    """Histories of S environments. Every writer takes a donation, so nobody may hold a view."""

    # [S, T, *observation_shape] of the spec's dtype in the layout of `Frames`, each stored once. None: the host
    # keeps them. They are numpy arrays only in a checkpoint
    observation: Frames
    reward: jax.Array  # [S, T], received on the way to the observation
    terminated: jax.Array  # [S, T] bool, true: the episode ended here in a terminal state
    truncated: jax.Array  # [S, T] bool, true: the episode was cut off here
    first: jax.Array  # [S, T] bool, true: the first observation of an episode or session
    stored: dict[str, jax.Array]  # {name: [S, T / every, ...]} what the agent stores (`sources.Stored`)
    # [S, T] how likely the row is sampled, relative to others; 0: it cannot be. Otherwise 1 if sampling is uniform,
    # and priority ^ alpha if not
    weight: jax.Array
    # [S, T] int32, training steps of all shards before the call that completed the row's transition, modulo 2^32
    inserted_at: jax.Array
    cursor: jax.Array  # [S] int32, rows ever written; row number n is at n % T
    # [number of shards], the largest weight that a row of any shard ever had, which new ones get; the same number in
    # each entry, because each shard holds its own part of every array. None: sampling is uniform
    max_weight: jax.Array | None
    # [S] bool, if several players share the rings: slots at home with the player that draws; None: all are
    mine: jax.Array | np.ndarray | None = None


class Row(NamedTuple):
    """One new row for each of B slots; arrays [B, ...] like the [S, T, ...] of `Rings`."""

    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    first: jax.Array
    stored: dict[str, jax.Array]
    # [B] sampling weights of the transitions that these rows complete; None, or not finite: the largest weight ever
    # written
    weight: jax.Array | None = None


def slot_length(capacity: int, num_envs: int, margin: int, multiple: int = 1) -> int:
    """Returns how many rows a ring has.

    Args:
      capacity: training steps to keep over all environments.
      num_envs: environments that share the capacity; there may be rings for more.
      margin: additional rows for the pending step and those whose frame stack is gone, together at least the stack.
        The last rows of episodes, which are not steps, take the room of steps.
      multiple: the length is a multiple of this.
    """
    return -(-(math.ceil(capacity / num_envs) + margin) // multiple) * multiple


Replay: TypeAlias = Rings | tuple[Rings, ...]
"""The rings of a run; with several places, those of each place."""
PLACES = "places"
"""In a checkpoint's counters: the number of devices of each of several places, which decides where slots are."""


def each(replay: Replay) -> tuple[Rings, ...]:
    """Returns the rings of each place."""
    return (replay,) if isinstance(replay, Rings) else replay


def together(found: Sequence[Rings]) -> Replay:
    """Returns the replay of places that have these rings."""
    return found[0] if len(found) == 1 else tuple(found)


def create(
    spec: types.EnvSpec,
    stored: Mapping[str, sources.Stored],
    num_slots: int,
    slot_length: int,
    *,
    num_shards: int = 1,
    prioritized: bool = False,
    holds_frames: bool = True,
    shared: bool = False,
) -> Rings:
    """Returns empty rings whose slots will be split into `num_shards` parts.

    Without `prioritized`, rows are sampled uniformly; without `holds_frames`, the host keeps the observations. shared:
    whether several players draw from them.
    """

    def zeros(shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jnp.zeros((num_slots, slot_length, *shape), dtype)

    frames = None
    if holds_frames:
        frames = zero_rows(num_slots, slot_length, spec.observation_shape, spec.observation_dtype)
    return Rings(
        observation=frames,
        reward=zeros((), jnp.float32),
        terminated=zeros((), bool),
        truncated=zeros((), bool),
        first=zeros((), bool),
        stored={
            name: jnp.zeros((num_slots, slot_length // kept.every, *kept.shape), kept.dtype)
            for name, kept in stored.items()
        },
        weight=zeros((), jnp.float32),
        inserted_at=zeros((), jnp.int32),
        cursor=jnp.zeros((num_slots,), jnp.int32),
        max_weight=jnp.ones((num_shards,)) if prioritized else None,
        mine=jnp.ones((num_slots,), bool) if shared else None,
    )


def forget(rings: Rings) -> Rings:
    """Returns rings in which no step of a player's slots so far is ever drawn, only later ones.

    The step that a slot's newest row has begun is a later one. The cursors continue, because rows below a checkpoint's
    cursor are in its files and are not written again.
    """
    mine = True if rings.mine is None else rings.mine[:, None]
    return rings._replace(weight=jnp.where(mine, 0.0, rings.weight))


def amend(rings: Rings, slot: jax.Array, name: str, values: jax.Array, chosen: jax.Array) -> Rings:
    """Replaces a stored array's values, which each row has, in the newest rows of slots; returns the rings.

    So a row gets what became known after it was written. slot: [B] int32, distinct; slots that do not exist, and those
    not chosen, [B] bool, are skipped. values: [B, ...].
    """
    num_slots, length = rings.weight.shape
    exists = chosen & (slot >= 0) & (slot < num_slots)
    slot = jnp.where(exists, slot, num_slots + jnp.arange(slot.shape[0], dtype=slot.dtype))
    newest = (rings.cursor.at[slot].get(mode="fill", fill_value=0) - 1) % length
    ring = rings.stored[name]
    ring = ring.at[slot, newest].set(values.astype(ring.dtype), mode="drop", unique_indices=True)
    return rings._replace(stored={**rings.stored, name: ring})


def write(
    rings: Rings, slot: jax.Array, row: Row, num_inserts: jax.Array, stack: int, *, crosses_episodes: bool = False
) -> Rings:
    """Adds a row to each of B slots and returns the rings; in place if `rings` is donated.

    A row completes the transition of the row before it, unless it is a first one. That earlier row can now be sampled,
    with `row.weight`. The row whose frame stack would reach into what is overwritten can no longer be sampled.

    Args:
      slot: [B] int32, distinct; rows whose slot does not exist are dropped.
      num_inserts: scalar int32, training steps in all shards before this call, modulo 2^32; all steps of one call have
        the same number.
      stack: frames that a network sees, including the newest.
      crosses_episodes: whether windows do; then an episode's last row can be sampled, too, once the next episode
        begins.

    Raises:
      CapacityError: the rings are too short for the stack.
    """
    num_slots, length = rings.weight.shape
    if length <= stack:
        raise errors.CapacityError(
            f"a replay ring has {length} rows, a stack of {stack} frames needs {stack + 1}; "
            f"raise --replay.capacity, or let fewer environments share it (--worker.envs_per_group, --replay.num_envs)"
        )
    exists = (slot >= 0) & (slot < num_slots)
    # Out-of-range indices are dropped, but must differ from each other; negative ones would count from the end.
    slot = jnp.where(exists, slot, num_slots + jnp.arange(slot.shape[0], dtype=slot.dtype))
    cursor = rings.cursor.at[slot].get(mode="fill", fill_value=0)
    now, before = cursor % length, (cursor - 1) % length
    # There may be no earlier row, or one after which no episode continues.
    terminated = rings.terminated.at[slot, before].get(mode="fill", fill_value=False)
    truncated = rings.truncated.at[slot, before].get(mode="fill", fill_value=False)
    final = (cursor > 0) & (terminated | truncated)
    first = row.first | (cursor == 0) | final

    def put(ring: jax.Array, time: jax.Array, value: jax.Array, slot: jax.Array = slot) -> jax.Array:
        return ring.at[slot, time].set(value.astype(ring.dtype), mode="drop", unique_indices=True)

    def put_every(ring: jax.Array, value: jax.Array) -> jax.Array:
        every = length // ring.shape[1]
        if every == 1:
            return put(ring, now, value)
        return put(ring, now // every, value, jnp.where(cursor % every == 0, slot, num_slots + len(slot) + slot))

    weight = put(rings.weight, (now + stack - 1) % length, jnp.zeros_like(row.reward))
    weight = put(weight, now, jnp.zeros_like(row.reward))
    largest = 1.0 if rings.max_weight is None else rings.max_weight[0]
    given = largest if row.weight is None else jnp.where(jnp.isfinite(row.weight), row.weight, largest)
    weight = put(weight, before, jnp.where(first, jnp.where(final & crosses_episodes, largest, 0.0), given))
    max_weight = rings.max_weight
    if max_weight is not None and row.weight is not None:
        max_weight = jnp.maximum(max_weight, jnp.max(jnp.where(exists & ~first, given, 0.0)))
    inserted_at = put(rings.inserted_at, before, jnp.broadcast_to(num_inserts, slot.shape))
    frames = rings.observation
    if frames is not None:
        frames = put_rows(frames, slot, now, row.observation, unique=True)
    return Rings(
        observation=frames,
        reward=put(rings.reward, now, row.reward),
        terminated=put(rings.terminated, now, row.terminated),
        truncated=put(rings.truncated, now, row.truncated),
        first=put(rings.first, now, first),
        stored={name: put_every(ring, row.stored[name]) for name, ring in rings.stored.items()},
        weight=weight,
        inserted_at=inserted_at,
        cursor=rings.cursor.at[slot].set(cursor + 1, mode="drop", unique_indices=True),
        max_weight=max_weight,
    )
