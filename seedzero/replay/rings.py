"""Replay: the history of every environment, one ring a slot, in device memory; writing and sampling windows.

Row t of a slot holds what an environment showed at step t and what acting found there; the transition t -> t+1 exists
when row t+1 was written and is not the first of an episode or run. A row whose transition is missing (the newest one,
the last of an episode, the last before a cut) is never sampled, but windows of earlier rows reach up to it.

Everything here is pure and sees one shard: slots are local indices. Under `shard_map` every shard calls it on its own.

Shape letters: S slots, T rows of a ring, B batch, J positions of a window, P positions whose observations are needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.core import errors, types


class Rings(NamedTuple):
    """Histories of S environments. Donate it to whatever writes it; nobody may hold a view of it.

    Attributes:
      observation: [S, T, *observation_shape] of the spec's dtype, every one once.
      reward: [S, T], received on the way to the observation.
      terminated: [S, T] bool, true: the episode ended here in a terminal state.
      truncated: [S, T] bool, true: the episode was cut off here.
      first: [S, T] bool, true: the first observation of an episode or of a run.
      extras: {name: [S, T, ...]} what acting found here.
      weight: [S, T] how likely the row is sampled, relative to others; 0: it cannot be.
      inserted_at: [S, T] int32, training steps of all shards before the call that completed the row's transition.
      cursor: [S] int32, rows ever written; row number n lies at n % T.
    """

    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    first: jax.Array
    extras: dict[str, jax.Array]
    weight: jax.Array
    inserted_at: jax.Array
    cursor: jax.Array


class Row(NamedTuple):
    """One new row for each of B slots.

    Attributes:
      observation: [B, *observation_shape] of the spec's dtype.
      reward: [B], received on the way to the observation.
      terminated: [B] bool.
      truncated: [B] bool.
      first: [B] bool, true: the first observation of an episode or of a run.
      extras: {name: [B, ...]} what acting found.
    """

    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    first: jax.Array
    extras: dict[str, jax.Array]


class Windows(NamedTuple):
    """B windows: a sampled row (position 0) and the J - 1 rows after it.

    Attributes:
      observation: [B, P, *observation_shape with the last axis times the stack], frames from oldest to newest on the
        last axis; frames from before the episode repeat its first one. Past the last valid position: that one's.
      reward: [B, J], received on the way to each position.
      terminated: [B, J] bool.
      truncated: [B, J] bool.
      extras: {name: [B, J, ...]}.
      valid: [B, J] bool, true: the position is in the same episode and run as position 0, which always is. Other
        arrays hold arbitrary rows where it is false.
      weight: [B] factor of the window's loss that makes the mean over all shards an unbiased one over all their
        steps; 1 on a single shard, 0 where there is nothing to sample.
      slot: [B] int32, local.
      time: [B] int32, position 0's place in the ring.
    """

    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    extras: dict[str, jax.Array]
    valid: jax.Array
    weight: jax.Array
    slot: jax.Array
    time: jax.Array


def slot_length(capacity: int, num_slots: int, margin: int) -> int:
    """Returns the rows of a ring.

    Args:
      capacity: training steps kept over all slots.
      num_slots: rings that share the capacity.
      margin: rows besides the steps: the pending one, those whose frame stack is gone (together at least the
        stack), and the last rows of episodes.
    """
    return math.ceil(capacity / num_slots) + margin


def create(
    spec: types.EnvSpec,
    extras: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
    num_slots: int,
    slot_length: int,
) -> Rings:
    """Returns empty rings.

    Args:
      spec: the environments' spec.
      extras: {name: (shape, dtype)} of what acting leaves for each row.
      num_slots: S.
      slot_length: T.
    """

    def zeros(shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jnp.zeros((num_slots, slot_length, *shape), dtype)

    return Rings(
        observation=zeros(spec.observation_shape, spec.observation_dtype),
        reward=zeros((), jnp.float32),
        terminated=zeros((), bool),
        truncated=zeros((), bool),
        first=zeros((), bool),
        extras={name: zeros(shape, dtype) for name, (shape, dtype) in extras.items()},
        weight=zeros((), jnp.float32),
        inserted_at=zeros((), jnp.int32),
        cursor=jnp.zeros((num_slots,), jnp.int32),
    )


def write(rings: Rings, slot: jax.Array, row: Row, num_inserts: jax.Array, stack: int) -> Rings:
    """Returns the rings with one more row in each of B slots; in place where `rings` is donated.

    A row completes the transition of the row before it, unless it is a first one. The row whose frame stack would
    reach into what is overwritten can't be sampled any more.

    Args:
      rings: to write to.
      slot: [B] int32, distinct; rows whose slot does not exist are dropped.
      row: the new rows.
      num_inserts: scalar int32, training steps in all shards before this call; those of one call share the number.
      stack: frames that a network sees, the newest included.

    Raises:
      CapacityError: the rings are too short for the stack.
    """
    num_slots, length = rings.weight.shape
    if length <= stack:
        raise errors.CapacityError(
            f"a replay ring has {length} rows, a stack of {stack} frames needs {stack + 1}; "
            f"raise replay.capacity or lower replay.num_slots"
        )
    exists = (slot >= 0) & (slot < num_slots)
    # Out-of-range indices are dropped, but must differ from each other, and negative ones would count from the end.
    slot = jnp.where(exists, slot, num_slots + jnp.arange(slot.shape[0], dtype=slot.dtype))
    cursor = rings.cursor.at[slot].get(mode="fill", fill_value=0)
    now, before = cursor % length, (cursor - 1) % length
    first = row.first | ~_goes_on(rings, slot, cursor, before)

    def put(ring: jax.Array, time: jax.Array, value: jax.Array) -> jax.Array:
        return ring.at[slot, time].set(value.astype(ring.dtype), mode="drop", unique_indices=True)

    weight = put(rings.weight, (now + stack - 1) % length, jnp.zeros_like(row.reward))
    weight = put(weight, now, jnp.zeros_like(row.reward))
    weight = put(weight, before, jnp.where(first, 0.0, 1.0))
    inserted_at = put(rings.inserted_at, before, jnp.broadcast_to(num_inserts, slot.shape))
    return Rings(
        observation=put(rings.observation, now, row.observation),
        reward=put(rings.reward, now, row.reward),
        terminated=put(rings.terminated, now, row.terminated),
        truncated=put(rings.truncated, now, row.truncated),
        first=put(rings.first, now, first),
        extras={name: put(ring, now, row.extras[name]) for name, ring in rings.extras.items()},
        weight=weight,
        inserted_at=inserted_at,
        cursor=rings.cursor.at[slot].set(cursor + 1, mode="drop", unique_indices=True),
    )


def _goes_on(rings: Rings, slot: jax.Array, cursor: jax.Array, before: jax.Array) -> jax.Array:
    """Returns [B] bool, true: there is a row before the new one, and an episode can go on from it."""
    terminated = rings.terminated.at[slot, before].get(mode="fill", fill_value=False)
    truncated = rings.truncated.at[slot, before].get(mode="fill", fill_value=False)
    return (cursor > 0) & ~terminated & ~truncated


def sampling_weight(rings: Rings, num_inserts: jax.Array, capacity: int) -> jax.Array:
    """Returns [S, T] how likely each row is sampled; steps inserted before the newest `capacity` ones count 0."""
    return jnp.where(rings.inserted_at >= num_inserts - capacity, rings.weight, 0.0)


def sample(
    rings: Rings,
    key: jax.Array,
    batch_size: int,
    *,
    num_inserts: jax.Array,
    capacity: int,
    future: int,
    offsets: tuple[int, ...],
    stack: int,
    axis_name: str | None = None,
) -> Windows:
    """Returns windows whose first rows are drawn independently, in proportion to their weight.

    Args:
      rings: of this shard.
      key: consumed; give each shard its own.
      batch_size: B, windows from this shard.
      num_inserts: scalar int32, training steps in all shards so far.
      capacity: newest training steps that count, over all shards.
      future: J - 1, positions after the sampled one.
      offsets: [P] positions whose observations are returned.
      stack: frames in one observation.
      axis_name: mapped axis of the shards, for `Windows.weight`; None: there is one shard.
    """
    weight = sampling_weight(rings, num_inserts, capacity)
    slot, time, total = _draw(weight, key, batch_size)
    return windows_at(rings, slot, time, future=future, offsets=offsets, stack=stack)._replace(
        weight=jnp.full((batch_size,), _share(total, axis_name))
    )


def _share(total: jax.Array, axis_name: str | None) -> jax.Array:
    """Returns the shard's total weight relative to the mean over shards; 0 where that is 0."""
    mean = total if axis_name is None else jax.lax.pmean(total, axis_name)
    return jnp.where(mean > 0, total / jnp.where(mean > 0, mean, 1.0), 0.0)


def _draw(weight: jax.Array, key: jax.Array, batch_size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns slot [B], time [B] drawn in proportion to `weight` [S, T], and the sum of the weights.

    In two stages, a block and a row of it, each by a cumulative sum: one float32 number in [0, 1) has too few
    values to hit a million rows equally often.
    """
    length, block_length = weight.shape[1], 2 ** (weight.size.bit_length() // 2)
    flat = jnp.pad(weight.reshape(-1), (0, -weight.size % block_length))
    blocks = flat.reshape(-1, block_length)
    sums = jnp.sum(blocks, axis=1)
    block_key, row_key = jax.random.split(key)
    block = _choose(jnp.cumsum(sums)[None], jax.random.uniform(block_key, (batch_size,)))
    inside = _choose(jnp.cumsum(blocks[block], axis=1), jax.random.uniform(row_key, (batch_size,)))
    index = block * block_length + inside
    return index // length, index % length, jnp.sum(sums)


def _choose(cumulative: jax.Array, uniform: jax.Array) -> jax.Array:
    """Returns [B] int32: the index at the share `uniform` [B] of cumulative sums, [B, N] or [1, N] for all."""
    chosen = jnp.sum(cumulative <= (uniform * cumulative[:, -1])[:, None], axis=1, dtype=jnp.int32)
    return jnp.minimum(chosen, cumulative.shape[1] - 1)


def windows_at(
    rings: Rings, slot: jax.Array, time: jax.Array, *, future: int, offsets: tuple[int, ...], stack: int
) -> Windows:
    """Returns the windows that begin at given rows, with weight 1.

    Args:
      rings: of this shard.
      slot: [B] int32.
      time: [B] int32, places in the ring; their frame stacks must still be there.
      future: J - 1, positions after the first one.
      offsets: [P] positions whose observations are returned.
      stack: frames in one observation.
    """
    length = rings.weight.shape[1]
    steps = jnp.arange(future + 1, dtype=jnp.int32)
    rows = (slot[:, None], (time[:, None] + steps) % length)
    newer = (rings.cursor[slot] - 1 - time) % length
    starts = rings.first[rows] & (steps > 0)
    valid = jnp.cumsum(starts | (steps > newer[:, None]), axis=1) == 0
    last = jnp.sum(valid, axis=1, dtype=jnp.int32) - 1
    seen = time[:, None] + jnp.minimum(jnp.asarray(offsets, jnp.int32), last[:, None])
    return Windows(
        observation=_stacked(rings, slot, seen, stack),
        reward=rings.reward[rows],
        terminated=rings.terminated[rows],
        truncated=rings.truncated[rows],
        extras={name: ring[rows] for name, ring in rings.extras.items()},
        valid=valid,
        weight=jnp.ones(slot.shape),
        slot=slot,
        time=time,
    )


def _stacked(rings: Rings, slot: jax.Array, time: jax.Array, stack: int) -> jax.Array:
    """Returns the observations at `time` [B, P] with the frames before them on the last axis, oldest first."""
    length = rings.weight.shape[1]
    slot = slot[:, None, None]
    if stack > 1:
        starts = rings.first[slot, (time[..., None] - jnp.arange(stack - 1)) % length]
        inside = jnp.cumsum(starts, axis=-1) == 0
        # [B, P, stack] steps back: 0, 1, 2, ... up to the episode's first row, then that one again.
        back = jnp.cumsum(jnp.concatenate([jnp.zeros_like(inside[..., :1]), inside], -1), -1, dtype=jnp.int32)
        frames = rings.observation[slot, (time[..., None] - back[..., ::-1]) % length]
    else:
        frames = rings.observation[slot, time[..., None] % length]
    if rings.observation.ndim == 2:
        return frames
    shape = rings.observation.shape[2:]
    return jnp.moveaxis(frames, 2, -2).reshape(*time.shape, *shape[:-1], stack * shape[-1])
