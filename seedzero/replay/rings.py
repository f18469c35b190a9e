"""Replay: the history of every environment, one ring a slot, on the device; writing and sampling windows.

Where the device has no room for the frames these lie with the host: then windows come with their places, and
`with_frames` puts in what the host has read there.

Row t of a slot holds what an environment showed at step t and what acting found there; the transition t -> t+1 exists
when row t+1 was written and is not the first of an episode or run. A row whose transition is missing (the newest one,
the last of an episode, the last before a cut) is never sampled, but windows of earlier rows reach up to it.

Rows are sampled uniformly, or by priority (Schaul et al. 2016): then a row's weight is its priority to the power of
alpha. That is computed where a priority is written, once for each sampled row; sampling only sums weights.

Everything here is pure and sees one shard: slots are local indices. Under `shard_map` every shard calls it on its own.

Shape letters: S slots, T rows of a ring, B batch, J positions of a window, P positions whose observations are needed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.config import config
from seedzero.core import errors, types

_FANOUT = 32
"""Children of a node where rows are drawn by priority."""


TARGET_VERSION = "target_version"
"""An extra, int32: updates that the parameters behind a row's targets had seen. It is there where targets are renewed.

"version", that of the parameters that acted, stays what it was: it says how far the actions are off the policy.
"""


class Prioritization(NamedTuple):
    """How much priorities count (Schaul et al. 2016, sections 3.3 and 3.4: the proportional variant).

    Attributes:
      alpha: a row is drawn in proportion to priority ^ alpha; more than 0.
      beta: the loss of a row drawn with probability P has a factor P ^ -beta; 1: what is learned is unbiased.
      beta_updates: updates in which beta grows linearly to 1; 0: it stays.
      epsilon: added to every priority: none is 0.
    """

    alpha: float
    beta: float
    beta_updates: int
    epsilon: float


class Rings(NamedTuple):
    """Histories of S environments. Donate it to whatever writes it; nobody may hold a view of it.

    Attributes:
      observation: [S, T, *observation_shape] of the spec's dtype, every one once. None: the host keeps them,
        and they are numpy's only in a checkpoint.
      reward: [S, T], received on the way to the observation.
      terminated: [S, T] bool, true: the episode ended here in a terminal state.
      truncated: [S, T] bool, true: the episode was cut off here.
      first: [S, T] bool, true: the first observation of an episode or of a run.
      extras: {name: [S, T, ...]} what acting found here.
      weight: [S, T] how likely the row is sampled, relative to others; 0: it cannot be. Else 1 where sampling is
        uniform, priority ^ alpha where it isn't.
      inserted_at: [S, T] int32, training steps of all shards before the call that completed the row's transition.
      cursor: [S] int32, rows ever written; row number n lies at n % T.
      max_weight: [number of shards], the largest weight that a row of any shard ever had, which new ones get; the same
        number in each, for each shard holds its own part of every array. None: sampling is uniform.
    """

    observation: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    first: jax.Array
    extras: dict[str, jax.Array]
    weight: jax.Array
    inserted_at: jax.Array
    cursor: jax.Array
    max_weight: jax.Array | None


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
        Where the host keeps the frames, until `with_frames`: [B, P, stack] int32, their places in the slot's ring.
      reward: [B, J], received on the way to each position.
      terminated: [B, J] bool.
      truncated: [B, J] bool.
      extras: {name: [B, J, ...]}.
      valid: [B, J] bool, true: the position is in the same episode and run as position 0, which always is. Other
        arrays hold arbitrary rows where it is false.
      weight: [B] factor of the window's loss; 0 where there is nothing to sample. Sampled uniformly: what makes the
        mean over all shards an unbiased one over all their steps; 1 on a single shard. By priority: that, times the
        importance weight, whose largest over the batches of all shards is 1.
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
    *,
    num_shards: int = 1,
    prioritized: bool = False,
    holds_frames: bool = True,
) -> Rings:
    """Returns empty rings.

    Args:
      spec: the environments' spec.
      extras: {name: (shape, dtype)} of what acting leaves for each row.
      num_slots: S.
      slot_length: T.
      num_shards: parts that the slots will be split into.
      prioritized: whether rows are sampled by priority; else uniformly.
      holds_frames: whether observations are in the rings; else the host keeps them.
    """

    def zeros(shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jnp.zeros((num_slots, slot_length, *shape), dtype)

    return Rings(
        observation=zeros(spec.observation_shape, spec.observation_dtype) if holds_frames else None,
        reward=zeros((), jnp.float32),
        terminated=zeros((), bool),
        truncated=zeros((), bool),
        first=zeros((), bool),
        extras={name: zeros(shape, dtype) for name, (shape, dtype) in extras.items()},
        weight=zeros((), jnp.float32),
        inserted_at=zeros((), jnp.int32),
        cursor=jnp.zeros((num_slots,), jnp.int32),
        max_weight=jnp.ones((num_shards,)) if prioritized else None,
    )


def write(rings: Rings, slot: jax.Array, row: Row, num_inserts: jax.Array, stack: int) -> Rings:
    """Returns the rings with one more row in each of B slots; in place where `rings` is donated.

    A row completes the transition of the row before it, unless it is a first one: that can now be sampled, by priority
    as if it had the largest one ever seen. The row whose frame stack would reach into what is overwritten can't be
    sampled any more.

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
    weight = put(weight, before, jnp.where(first, 0.0, 1.0 if rings.max_weight is None else rings.max_weight[0]))
    inserted_at = put(rings.inserted_at, before, jnp.broadcast_to(num_inserts, slot.shape))
    return Rings(
        observation=None if rings.observation is None else put(rings.observation, now, row.observation),
        reward=put(rings.reward, now, row.reward),
        terminated=put(rings.terminated, now, row.terminated),
        truncated=put(rings.truncated, now, row.truncated),
        first=put(rings.first, now, first),
        extras={name: put(ring, now, row.extras[name]) for name, ring in rings.extras.items()},
        weight=weight,
        inserted_at=inserted_at,
        cursor=rings.cursor.at[slot].set(cursor + 1, mode="drop", unique_indices=True),
        max_weight=rings.max_weight,
    )


def _goes_on(rings: Rings, slot: jax.Array, cursor: jax.Array, before: jax.Array) -> jax.Array:
    """Returns [B] bool, true: there is a row before the new one, and an episode can go on from it."""
    terminated = rings.terminated.at[slot, before].get(mode="fill", fill_value=False)
    truncated = rings.truncated.at[slot, before].get(mode="fill", fill_value=False)
    return (cursor > 0) & ~terminated & ~truncated


def sampling_weight(rings: Rings, num_inserts: jax.Array, capacity: int, oldest: int = 0) -> jax.Array:
    """Returns [S, T] how likely each row is sampled; steps inserted before the newest `capacity` ones count 0.

    Args:
      rings: of this shard.
      num_inserts: scalar int32, training steps in all shards so far.
      capacity: newest training steps that count, over all shards.
      oldest: rows of a full ring, those that are overwritten next, which count 0 too.
    """
    weight = jnp.where(rings.inserted_at >= num_inserts - capacity, rings.weight, 0.0)
    if oldest == 0:
        return weight
    length = rings.weight.shape[1]
    age = (rings.cursor[:, None] - 1 - jnp.arange(length, dtype=jnp.int32)) % length
    return jnp.where(age < length - oldest, weight, 0.0)


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
    lag: int = 0,
    beta: jax.Array | float | None = None,
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
      lag: rows that may be written to each ring before the windows are done with; what they overwrite isn't sampled.
      beta: exponent of the importance weights; None: the rings are not prioritized, all their weights are 0 or 1.
      axis_name: mapped axis of the shards, for `Windows.weight`; None: there is one shard.
    """
    weight = sampling_weight(rings, num_inserts, capacity, stack - 1 + lag if lag else 0)
    slot, time, total = (_draw if beta is None else _draw_by_priority)(weight, key, batch_size)
    loss_weight = jnp.full((batch_size,), _share(total, axis_name))
    if beta is not None:
        loss_weight = loss_weight * _importance(weight[slot, time], beta, axis_name)
    return windows_at(rings, slot, time, future=future, offsets=offsets, stack=stack)._replace(weight=loss_weight)


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


def _draw_by_priority(weight: jax.Array, key: jax.Array, batch_size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns what `_draw` does, for weights of any sizes.

    Down a tree of sums, with a random number of its own at each node. Neither a cumulative sum over a million float32
    numbers nor one random number resolves small ones among them; over a few they do: a row is drawn with its own
    probability as long as it has more than a millionth of its `_FANOUT` neighbours' weight, and so up the tree.
    """
    length, levels = weight.shape[1], [_nodes(weight.reshape(-1))]
    while len(levels[-1]) > 1:
        levels.append(_nodes(jnp.sum(levels[-1], axis=1)))
    uniform = jax.random.uniform(key, (len(levels), batch_size))
    index = jnp.zeros(batch_size, jnp.int32)
    for depth, nodes in enumerate(reversed(levels)):
        index = index * _FANOUT + _choose_positive(nodes[index], uniform[depth])
    return index // length, index % length, jnp.sum(levels[-1])


def _nodes(weight: jax.Array) -> jax.Array:
    """Returns weights [N] as those of the children of nodes, [nodes, `_FANOUT`], padded with 0."""
    return jnp.pad(weight, (0, -weight.size % _FANOUT)).reshape(-1, _FANOUT)


def _choose_positive(weight: jax.Array, uniform: jax.Array) -> jax.Array:
    """Returns [B] int32: a child of positive weight for each `uniform` [B] of [0, 1), given weights [B, N].

    XLA adds up in an order of its own, so a cumulative sum may grow a little where the weight is 0: those places are
    not looked at. Where all weights are 0, any child is chosen.
    """
    places = jnp.arange(weight.shape[1], dtype=jnp.int32)
    cumulative = jnp.where(weight > 0, jnp.cumsum(weight, axis=1), 0.0)
    share = uniform * jnp.max(cumulative, axis=1)
    return jnp.min(jnp.where(cumulative > share[:, None], places, weight.shape[1] - 1), axis=1)


def _importance(weight: jax.Array, beta: jax.Array | float, axis_name: str | None) -> jax.Array:
    """Returns the importance weights [B] of rows with sampling weights [B], relative to the largest one; 0 for 0.

    Schaul et al. 2016, section 3.4: (N P)^-beta. With P = weight / sum of all shards' weights, N and the sum are
    common factors, which the division by the largest takes out. The largest is that of all shards: if each divided by
    its own, their windows would count differently for the same priority.
    """
    smallest = jnp.min(jnp.where(weight > 0, weight, jnp.inf))
    if axis_name is not None:
        smallest = jax.lax.pmin(smallest, axis_name)
    return jnp.where(weight > 0, (smallest / jnp.where(weight > 0, weight, 1.0)) ** beta, 0.0)


def draw_stale(
    rings: Rings, key: jax.Array, batch_size: int, *, num_inserts: jax.Array, capacity: int, before: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns slot [B] int32 and time [B] int32 of steps whose targets older parameters made, drawn uniformly.

    Priorities don't count here: they say where there is much to learn, not which targets have aged. A row may be there
    more than once. Where no step is left to draw from, the slots don't exist.

    Args:
      rings: of this shard, with the extra `TARGET_VERSION`.
      key: consumed; give each shard its own.
      batch_size: B, positions from this shard.
      num_inserts: scalar int32, training steps in all shards so far.
      capacity: newest training steps that count, over all shards.
      before: scalar int32; drawn are steps whose targets have a smaller version than this.
    """
    stale = (sampling_weight(rings, num_inserts, capacity) > 0) & (rings.extras[TARGET_VERSION] < before)
    slot, time, total = _draw(stale.astype(jnp.float32), key, batch_size)
    return jnp.where(total > 0, slot, rings.weight.shape[0]), time


def retarget(
    rings: Rings, slot: jax.Array, time: jax.Array, extras: Mapping[str, jax.Array], version: jax.Array
) -> tuple[Rings, jax.Array]:
    """Returns the rings with new targets of drawn rows, in place where `rings` is donated, and which were written [B].

    `rings` are the very ones that the rows were drawn from, as in one jitted function (see `prioritize`). Only rows
    that can be sampled are written, and only where all new targets are finite: parameters that diverge shall not spoil
    the replay. Of several new targets of one row the first ones in the batch count: a scatter writes in any order.

    Args:
      rings: of this shard, with the extra `TARGET_VERSION`.
      slot: [B] int32; rows whose slot does not exist are dropped.
      time: [B] int32, places in the ring.
      extras: {name: [B, ...]} float32, what replaces the rings' extras of these names; all others stay.
      version: scalar int32, updates that the parameters behind the new targets have seen.
    """
    num_slots, length = rings.weight.shape
    index = slot * length + time
    repeated = jnp.any(jnp.tril(index[:, None] == index[None, :], -1), axis=1)
    can_be_sampled = rings.weight.at[slot, time].get(mode="fill", fill_value=0.0) > 0
    finite = [jnp.all(jnp.isfinite(value.reshape(len(value), -1)), axis=1) for value in extras.values()]
    written = functools.reduce(jnp.logical_and, finite, (slot >= 0) & (slot < num_slots) & can_be_sampled & ~repeated)
    # As in `write`: what is dropped lies out of range, each row at a place of its own.
    slot = jnp.where(written, slot, num_slots + jnp.arange(slot.shape[0], dtype=slot.dtype))
    new = {**extras, TARGET_VERSION: jnp.broadcast_to(version, slot.shape)}

    def put(ring: jax.Array, value: jax.Array) -> jax.Array:
        return ring.at[slot, time].set(value.astype(ring.dtype), mode="drop", unique_indices=True)

    kept = {name: ring for name, ring in rings.extras.items() if name not in new}
    changed = {name: put(rings.extras[name], value) for name, value in new.items()}
    return rings._replace(extras={**kept, **changed}), written


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
        observation=_observation(rings, slot, seen, stack),
        reward=rings.reward[rows],
        terminated=rings.terminated[rows],
        truncated=rings.truncated[rows],
        extras={name: ring[rows] for name, ring in rings.extras.items()},
        valid=valid,
        weight=jnp.ones(slot.shape),
        slot=slot,
        time=time,
    )


def with_frames(windows: Windows, frames: jax.Array) -> Windows:
    """Returns windows with their observations, given the frames [B, P, stack, *observation_shape] at their places."""
    return windows._replace(observation=_stacked(frames))


def _observation(rings: Rings, slot: jax.Array, time: jax.Array, stack: int) -> jax.Array:
    """Returns the observations at `time` [B, P], or, where the host keeps them, where their frames lie."""
    places = _places(rings, slot[:, None, None], time, stack)
    return places if rings.observation is None else _stacked(rings.observation[slot[:, None, None], places])


def _places(rings: Rings, slot: jax.Array, time: jax.Array, stack: int) -> jax.Array:
    """Returns [B, P, stack] int32 where the frames of the observations at `time` [B, P] lie, oldest first."""
    length = rings.weight.shape[1]
    if stack == 1:
        return time[..., None] % length
    starts = rings.first[slot, (time[..., None] - jnp.arange(stack - 1)) % length]
    inside = jnp.cumsum(starts, axis=-1) == 0
    # [B, P, stack] steps back: 0, 1, 2, ... up to the episode's first row, then that one again.
    back = jnp.cumsum(jnp.concatenate([jnp.zeros_like(inside[..., :1]), inside], -1), -1, dtype=jnp.int32)
    return (time[..., None] - back[..., ::-1]) % length


def _stacked(frames: jax.Array) -> jax.Array:
    """Returns frames [B, P, stack, *shape] as observations, the stack's frames on the last axis."""
    if frames.ndim == 3:
        return frames
    batch, positions, stack, *shape = frames.shape
    return jnp.moveaxis(frames, 2, -2).reshape(batch, positions, *shape[:-1], stack * shape[-1])


# Priorities -------------------------------------------------------------------------------------------------------


def prioritization(replay: config.ReplayConfig) -> Prioritization | None:
    """Returns how much priorities count; None: sampling is uniform."""
    if replay.priority_alpha == 0:
        return None
    return Prioritization(
        replay.priority_alpha, replay.priority_beta, replay.priority_beta_updates, replay.priority_epsilon
    )


def importance_exponent(how: Prioritization, num_updates: jax.Array) -> jax.Array:
    """Returns beta after so many updates, both scalars."""
    grown = jnp.minimum(num_updates / how.beta_updates, 1.0) if how.beta_updates else 0.0
    return jnp.asarray(how.beta + (1.0 - how.beta) * grown, jnp.float32)


def prioritize(
    rings: Rings,
    slot: jax.Array,
    time: jax.Array,
    priority: jax.Array,
    how: Prioritization,
    axis_name: str | None = None,
) -> Rings:
    """Returns the rings with new priorities of sampled rows; in place where `rings` is donated.

    What lies at a place is still the row that was sampled there: `rings` are the very ones that it was sampled from,
    as in one jitted function, or have had no more rows since than the lag that it was sampled with.

    Args:
      rings: of this shard, prioritized.
      slot: [B] int32, sampled; a row may be there more than once.
      time: [B] int32.
      priority: [B], at least 0; where it is not finite the row keeps the one that it has.
      how: how much priorities count.
      axis_name: mapped axis of the shards; None: there is one.
    """
    assert rings.max_weight is not None
    before = rings.weight[slot, time]
    weight = (priority + how.epsilon) ** how.alpha
    # Where there is nothing to sample the drawn rows are arbitrary: they must not become what can be sampled.
    weight = jnp.where((before > 0) & jnp.isfinite(weight), weight, before)
    # A scatter writes in any order: one of a row's new weights, then the largest, to which all orders lead.
    written = rings.weight.at[slot, time].set(weight).at[slot, time].max(weight)
    largest = jnp.maximum(rings.max_weight, jnp.max(weight))
    if axis_name is not None:
        largest = jax.lax.pmax(largest, axis_name)
    return rings._replace(weight=written, max_weight=largest)


def max_priority(rings: Rings, how: Prioritization) -> jax.Array:
    """Returns the largest priority ever seen, a scalar."""
    assert rings.max_weight is not None
    return rings.max_weight[0] ** (1 / how.alpha)
