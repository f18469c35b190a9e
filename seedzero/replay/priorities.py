"""Writes the priorities of sampled rows back into the rings after an update. Shape letters: B batch."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedzero.config import sections
from seedzero.replay import ring_store, sources

_EPSILON = 1e-3
"""Added to every priority, in the unit of returns, so that none is 0."""


def prioritization(replay: sections.ReplayConfig) -> sources.Prioritization | None:
    """Returns how much priorities count, or None if sampling is uniform."""
    if replay.priority_alpha == 0:
        return None
    return sources.Prioritization(replay.priority_alpha, replay.priority_beta, _EPSILON, replay.importance_min)


class Places(NamedTuple):
    """Places of rows in a shard's rings at one time, for priorities that come later."""

    slot: jax.Array  # [B] int32
    time: jax.Array  # [B] int32
    cursor: jax.Array  # [B] int32, the slot's cursor at that time


def are_there(rings: ring_store.Rings, places: Places) -> jax.Array:
    """Returns [B] bool, true: the row has not been overwritten since."""
    length = rings.weight.shape[1]
    num_newer = (places.cursor - 1 - places.time) % length + rings.cursor[places.slot] - places.cursor
    return num_newer < length


def prioritize(
    rings: ring_store.Rings,
    slot: jax.Array,
    time: jax.Array,
    priority: jax.Array,
    prioritization: sources.Prioritization,
    axis_name: str | None = None,
    refused: jax.Array | bool = False,
) -> ring_store.Rings:
    """Writes new priorities of sampled rows and returns the rings; in place if `rings` is donated.

    The sampled rows must still be at their places: `rings` are the ones that they were sampled from, as in one jitted
    function, or have had no more rows since than the lag of the sampling. Priorities of rows that are gone must not be
    finite (`are_there`).

    Args:
      slot: [B] int32, sampled; a row may occur more than once.
      time: [B] int32.
      priority: [B], at least 0; if it is not finite, the row keeps its priority.
      axis_name: mapped axis of the shards; None with one shard.
      refused: scalar bool, whether priorities that are not NaN count as 0, as `unless_refused` has it. The largest
        weight of all shards does not wait for it, so that it travels with the gradients that may be refused.
    """
    assert rings.max_weight is not None
    before = rings.weight[slot, time]

    def kept(priority: jax.Array) -> jax.Array:
        # If there is nothing to sample, the drawn rows are arbitrary and must not become sampleable.
        weight = weights(priority, prioritization)
        return jnp.where((before > 0) & jnp.isfinite(weight), weight, before)

    weight, seen = kept(priority), rings.max_weight
    largest = jnp.maximum(seen, jnp.max(weight))
    if axis_name is not None:
        seen, largest = jax.lax.pmax((seen, largest), axis_name)
    weight = jnp.where(refused, kept(unless_refused(priority, True)), weight)
    largest = jnp.where(refused, seen, largest)  # a priority of 0 is never the largest
    # A scatter writes in any order: first any of a row's new weights, then the largest, which every order leads to.
    written = rings.weight.at[slot, time].set(weight).at[slot, time].max(weight)
    return rings._replace(weight=written, max_weight=largest)


def unless_refused(priority: jax.Array, refused: jax.Array | bool) -> jax.Array:
    """Returns the priorities [B] after an update: 0 if it was refused, except that NaN stays NaN.

    A rejected update has a window with a number that no update survives; its priority would put it in every batch.
    """
    return jnp.where(refused & ~jnp.isnan(priority), 0.0, priority)


def weights(priority: jax.Array, prioritization: sources.Prioritization) -> jax.Array:
    return (priority + prioritization.epsilon) ** prioritization.alpha


def max_priority(max_weight: jax.Array, prioritization: sources.Prioritization) -> jax.Array:
    """Returns the largest priority ever seen, a scalar. max_weight: as in the rings."""
    return max_weight[0] ** (1 / prioritization.alpha)
