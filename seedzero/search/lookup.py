"""Picks entries of a forest's tables and hidden states for each tree.

A gather is cheap on a CPU or GPU. A TPU moves a whole tile of 4 KiB for each gathered number, more for each scattered
one, and many times its bytes for a hidden state. So there, every entry is compared with the wanted number instead.
Both ways give the same bits, except for the sign of a zero.

Shape letters: T trees, N nodes, B positions, W trees of each position. T = W * B; the first trees of all positions
come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

MOST_COMPARED = 16
"""Hidden states and trees are compared if there are at most this many to choose from, because all of them are read."""


# Numbers -----------------------------------------------------------------------------------------------------------


def numbers(table: jax.Array, index: jax.Array) -> jax.Array:
    """Returns table [N, ..., T] at index [T] of each tree, [..., T]."""
    index = index.reshape(*[1] * (table.ndim - 1), -1)

    def compare(table: jax.Array, index: jax.Array) -> jax.Array:
        is_wanted = jnp.arange(len(table)).reshape(-1, *[1] * (table.ndim - 1)) == index
        return jnp.sum(jnp.where(is_wanted, table, 0), axis=0, dtype=table.dtype)

    def gather(table: jax.Array, index: jax.Array) -> jax.Array:
        # For single numbers, because the result then has the table's order.
        shape = jnp.broadcast_shapes(index.shape[1:], table.shape[1:])
        others = jnp.meshgrid(*map(jnp.arange, shape), indexing="ij", sparse=True)
        return table.at[(jnp.broadcast_to(index[0], shape), *others)].get(mode="promise_in_bounds")

    return _by_platform(compare, gather, table, index)


def trees_numbers(table: jax.Array, chosen: jax.Array) -> jax.Array:
    """Returns table [..., W * B] of the trees `chosen` [W', B] int32 among each position's, [..., W' * B]."""
    num_positions = chosen.shape[1]

    def compare(table: jax.Array, chosen: jax.Array) -> jax.Array:
        groups = jnp.moveaxis(table.reshape(*table.shape[:-1], -1, 1, num_positions), -3, 0)
        return _select(groups, chosen).reshape(*table.shape[:-1], chosen.shape[0] * num_positions)

    def gather(table: jax.Array, chosen: jax.Array) -> jax.Array:
        return table[..., _trees(chosen)]

    are_many = table.shape[-1] // num_positions > MOST_COMPARED
    return _by_platform(gather if are_many else compare, gather, table, chosen)


def along(table: jax.Array, index: jax.Array) -> jax.Array:
    """Returns table [B, M] of numbers at index [B, W], [B, W]."""

    def compare(table: jax.Array, index: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(_is_at(index, table), table[:, None], 0), axis=-1, dtype=table.dtype)

    def gather(table: jax.Array, index: jax.Array) -> jax.Array:
        return jnp.take_along_axis(table, index, axis=-1)

    return _by_platform(compare, gather, table, index)


def put(table: jax.Array, index: jax.Array, values: jax.Array) -> jax.Array:
    """Returns table [B, M] with values [B, W] at index [B, W], distinct in each row."""

    def compare(table: jax.Array, index: jax.Array, values: jax.Array) -> jax.Array:
        is_at = _is_at(index, table)
        found = jnp.sum(jnp.where(is_at, values[:, :, None], 0), axis=1, dtype=table.dtype)
        return jnp.where(jnp.any(is_at, axis=1), found, table)

    def scatter(table: jax.Array, index: jax.Array, values: jax.Array) -> jax.Array:
        return table.at[jnp.arange(table.shape[0])[:, None], index].set(values)

    return _by_platform(compare, scatter, table, index, values)


def _is_at(index: jax.Array, table: jax.Array) -> jax.Array:
    return index[:, :, None] == jnp.arange(table.shape[-1])


# Hidden states -----------------------------------------------------------------------------------------------------


def states(parts: Sequence[jax.Array], node: jax.Array) -> jax.Array:
    """Returns hidden states at node [T] of each tree, [T, ...].

    parts: [n, T, ...], or [n, B, ...] if all trees of a position have the same. The parts have consecutive nodes, N
    altogether.
    """
    wanted, num_before = _in_part(parts[0], node), len(parts[0])
    for part in parts[1:]:
        wanted = jnp.where(_column(node >= num_before, part), _in_part(part, node - num_before), wanted)
        num_before += len(part)
    return wanted


def _in_part(part: jax.Array, index: jax.Array) -> jax.Array:
    """Returns part [n, T or B, ...] at index [T], [T, ...]; arbitrary for an index outside the part."""
    num_repeats = index.shape[0] // part.shape[1]
    part = jnp.concatenate([part] * num_repeats, axis=1) if num_repeats > 1 else part
    if len(part) == 1:
        return part[0]

    def compare(part: jax.Array, index: jax.Array) -> jax.Array:
        return _select(part, _column(index, part))

    def gather(part: jax.Array, index: jax.Array) -> jax.Array:
        return part.at[jnp.clip(index, 0, len(part) - 1), jnp.arange(index.shape[0])].get(mode="promise_in_bounds")

    return _by_platform(gather if len(part) > MOST_COMPARED else compare, gather, part, index)


def trees_states(part: jax.Array, chosen: jax.Array) -> jax.Array:
    """Returns part [n, W * B, ...] of the trees `chosen` [W', B] int32 among each position's, [n, W' * B, ...]."""
    num_groups = part.shape[1] // chosen.shape[1]

    def compare(part: jax.Array, chosen: jax.Array) -> jax.Array:
        groups = jnp.split(part, num_groups, axis=1)
        return jnp.concatenate([_select(groups, _column(number, part)) for number in chosen], axis=1)

    def gather(part: jax.Array, chosen: jax.Array) -> jax.Array:
        return part[:, _trees(chosen)]

    return _by_platform(gather if num_groups > MOST_COMPARED else compare, gather, part, chosen)


# Both --------------------------------------------------------------------------------------------------------------


def _by_platform(on_tpu: Callable[..., jax.Array], elsewhere: Callable[..., jax.Array], *arguments: Any) -> jax.Array:
    found: jax.Array = jax.lax.platform_dependent(*arguments, tpu=on_tpu, default=elsewhere)
    return found


def _trees(chosen: jax.Array) -> jax.Array:
    """Converts the trees [W', B] among each position's to numbers among all trees, [W' * B]."""
    num_positions = chosen.shape[1]
    return (chosen * num_positions + jnp.arange(num_positions)).reshape(-1)


def _select(choices: jax.Array | Sequence[jax.Array], index: jax.Array) -> jax.Array:
    """Returns each entry of choices[index]; both broadcast. An index without a choice takes the first one."""
    selected = jnp.broadcast_to(choices[0], jnp.broadcast_shapes(choices[0].shape, index.shape))
    for number in range(1, len(choices)):
        selected = jnp.where(index == number, choices[number], selected)
    return selected


def _column(x: jax.Array, part: jax.Array) -> jax.Array:
    """Appends the axes of a hidden state to x [T]."""
    return x.reshape(-1, *[1] * (part.ndim - 2))
