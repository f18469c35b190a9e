"""Samples windows, uniformly or by priority (Schaul et al. 2016), and writes new priorities after an update.

Shape letters: S slots, T rows of a ring, B batch, N any number of choices.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedzero.config import sections
from seedzero.replay import ring_store, sources, windowing

# Writes the priorities of sampled rows back into the rings after an update. Shape letters: B batch.
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


_FANOUT = 32
"""Number of a node's children when rows are drawn by priority."""


def sampling_weight(rings: ring_store.Rings, num_inserts: jax.Array, capacity: int, oldest: int = 0) -> jax.Array:
    """Returns how likely each row is sampled, [S, T]. The arguments are those of `sample`.

    Steps of other players' slots and steps inserted before the newest `capacity` ones have weight 0, and so do the
    `oldest` rows of a full ring, which are overwritten next.
    """
    since = (num_inserts - rings.inserted_at).astype(jnp.uint32)  # both wrap around beyond 2^31 steps
    weight = jnp.where(since <= capacity, rings.weight, 0.0)
    if rings.mine is not None:
        weight = jnp.where(rings.mine[:, None], weight, 0.0)
    if oldest == 0:
        return weight
    length = rings.weight.shape[1]
    age = (rings.cursor[:, None] - 1 - jnp.arange(length, dtype=jnp.int32)) % length
    return jnp.where(age < length - oldest, weight, 0.0)


def sample(
    rings: ring_store.Rings,
    key: jax.Array,
    batch_size: int,
    replay: sources.Replay,
    *,
    stack: int,
    num_inserts: jax.Array,
    capacity: int,
    lag: int = 0,
    beta: jax.Array | float | None = None,
    least: float = 0.0,
    axis_name: str | None = None,
) -> windowing.Windows:
    """Draws windows without frames, whose first rows are independent and in proportion to their weight.

    Args:
      key: consumed; give each shard its own.
      batch_size: B, windows from this shard.
      stack: frames in one observation.
      num_inserts: scalar int32, training steps in all shards so far, modulo 2^32.
      capacity: how many of the newest training steps count, over all shards.
      lag: rows that may be written to each ring while the windows are in use; rows that they overwrite are not
        sampled.
      beta: exponent of the importance weights; None if the rings are not prioritized, so that all weights are 0 or 1.
      least: bound of the importance weights, as in `sources.Prioritization`.
      axis_name: mapped axis of the shards, for `Windows.weight`; None with one shard.
    """
    weight = sampling_weight(rings, num_inserts, capacity, stack - 1 + replay.before + lag if lag else 0)
    if replay.stride > 1:  # a ring's length is a multiple of it, so row numbers and places agree
        weight = weight * (jnp.arange(weight.shape[1]) % replay.stride == 0)
    if replay.following > 1:
        age = (rings.cursor[:, None] - 1 - jnp.arange(weight.shape[1], dtype=jnp.int32)) % weight.shape[1]
        weight = jnp.where(age >= replay.following, weight, 0.0)
    slot, time, total = (draw if beta is None else _draw_by_priority)(weight, key, batch_size)
    mean = total if axis_name is None else jax.lax.pmean(total, axis_name)
    loss_weight = jnp.full((batch_size,), jnp.where(mean > 0, total / jnp.where(mean > 0, mean, 1.0), 0.0))
    counted = jnp.full((batch_size,), total > 0)
    if beta is not None:
        loss_weight = loss_weight * _importance(weight[slot, time], beta, least, axis_name)
        counted &= weight[slot, time] > 0
    windows = windowing.from_data(rings, slot, time, replay, stack)
    return windows._replace(weight=loss_weight, counted=counted)


def draw(weight: jax.Array, key: jax.Array, batch_size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Draws slot [B] and time [B] in proportion to `weight` [S, T]; returns them and the sum of the weights.

    It draws a block and then a row of it, each by a cumulative sum, because one float32 number in [0, 1) has too few
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
    """Does what `draw` does, for weights of any sizes.

    It descends a tree of sums, with a separate random number at each node. Neither a cumulative sum over a million
    float32 numbers nor one random number resolves small ones among them, but over a few numbers they do: a row is
    drawn with the right probability if it has more than a millionth of the weight of its `_FANOUT` neighbours, and so
    on up the tree.
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
    """Groups weights [N] as those of nodes' children, [nodes, `_FANOUT`], padded with 0."""
    return jnp.pad(weight, (0, -weight.size % _FANOUT)).reshape(-1, _FANOUT)


def _choose_positive(weight: jax.Array, uniform: jax.Array) -> jax.Array:
    """Returns [B] int32: a child of positive weight for each `uniform` [B] of [0, 1), given weights [B, N].

    XLA sums in its own order, so a cumulative sum may grow a little where the weight is 0, and those places are
    ignored. If all weights are 0, any child is chosen.
    """
    places = jnp.arange(weight.shape[1], dtype=jnp.int32)
    cumulative = jnp.where(weight > 0, jnp.cumsum(weight, axis=1), 0.0)
    share = uniform * jnp.max(cumulative, axis=1)
    return jnp.min(jnp.where(cumulative > share[:, None], places, weight.shape[1] - 1), axis=1)


def _importance(weight: jax.Array, beta: jax.Array | float, least: float, axis_name: str | None) -> jax.Array:
    """Returns the importance weights [B] of rows with sampling weights [B], relative to the largest one; 0 for 0.

    least: lower bound of all others.

    See Schaul et al. 2016, section 3.4: (N P)^-beta. With P = weight / sum of all shards' weights, N and the sum are
    common factors, which the division by the largest removes. The largest is that of all shards; if each shard divided
    by its own, windows of the same priority would count differently.
    """
    smallest = jnp.min(jnp.where(weight > 0, weight, jnp.inf))
    if axis_name is not None:
        smallest = jax.lax.pmin(smallest, axis_name)
    relative = (smallest / jnp.where(weight > 0, weight, 1.0)) ** beta
    return jnp.where(weight > 0, jnp.maximum(relative, least), 0.0)
