"""Draws stale targets of stored rows at random and overwrites them with fresh ones. Shape letters: B batch."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from seedzero.replay import ring_store, sampling


def draw_stale(
    rings: ring_store.Rings,
    key: jax.Array,
    batch_size: int,
    *,
    num_inserts: jax.Array,
    capacity: int,
    before: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Returns slot [B] int32 and time [B] int32 of steps with targets of older parameters, drawn uniformly.

    Priorities do not count here, because they show where there is much to learn, not which targets have aged. A row
    may occur more than once. Steps of others (`OWN`) are skipped, because nothing learns from their targets. If there
    is not a step to draw, the slots do not exist.

    The arguments are those of `sampling.sample`; steps are drawn whose targets have a smaller version than the scalar
    `before`.
    """
    stale = (sampling.sampling_weight(rings, num_inserts, capacity) > 0) & (
        rings.stored[ring_store.TARGET_VERSION] < before
    )
    if ring_store.OWN in rings.stored:
        stale &= rings.stored[ring_store.OWN]
    slot, time, total = sampling.draw(stale.astype(jnp.float32), key, batch_size)
    return jnp.where(total > 0, slot, rings.weight.shape[0]), time


def retarget(
    rings: ring_store.Rings, slot: jax.Array, time: jax.Array, fresh: Mapping[str, jax.Array], version: jax.Array
) -> tuple[ring_store.Rings, jax.Array]:
    """Writes new targets of drawn rows; returns the rings, in place if donated, and [B] bool, true: written.

    `rings` must be those that the rows were drawn from, as in one jitted function (see `sampling.prioritize`). Only
    rows that can be sampled are written, and only if all new targets are finite, because parameters that diverge must
    not spoil the replay. If a row has several new targets, the first in the batch counts, because a scatter writes in
    any order. Priorities do not change until their rows are sampled the next time.

    Args:
      rings: those of this shard, with the stored array `TARGET_VERSION`.
      slot: [B] int32; rows whose slot does not exist are dropped.
      time: [B] int32, places in the ring.
      fresh: {name: [B, ...]} float32, new stored arrays; all others keep their values.
      version: scalar int32, updates seen by the parameters that made the new targets.
    """
    num_slots, length = rings.weight.shape
    index = slot * length + time
    repeated = jnp.any(jnp.tril(index[:, None] == index[None, :], -1), axis=1)
    can_be_sampled = rings.weight.at[slot, time].get(mode="fill", fill_value=0.0) > 0
    finite = [jnp.all(jnp.isfinite(value.reshape(len(value), -1)), axis=1) for value in fresh.values()]
    written = functools.reduce(jnp.logical_and, finite, (slot >= 0) & (slot < num_slots) & can_be_sampled & ~repeated)
    # As in `write`: dropped rows are out of range, each at a place of its own.
    slot = jnp.where(written, slot, num_slots + jnp.arange(slot.shape[0], dtype=slot.dtype))
    new = {**fresh, ring_store.TARGET_VERSION: jnp.broadcast_to(version, slot.shape)}

    def put(ring: jax.Array, value: jax.Array) -> jax.Array:
        return ring.at[slot, time].set(value.astype(ring.dtype), mode="drop", unique_indices=True)

    kept = {name: ring for name, ring in rings.stored.items() if name not in new}
    changed = {name: put(rings.stored[name], value) for name, value in new.items()}
    return rings._replace(stored={**kept, **changed}), written
