"""Converts observations from packed bytes to named arrays, which agents take, and back."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from seedzero.core import types


def unpack(packed: Sequence[types.ArraySpec], observation: jax.Array) -> dict[str, jax.Array]:
    """Unpacks observations [..., N] uint8, as made by `core.packing.pack`, to {name: [..., *shape]}.

    packed: `EnvSpec.packed`; if empty, the observation is the only array.
    """
    if not packed:
        return {types.OBSERVATION: observation}
    batch_shape, found, start = observation.shape[:-1], {}, 0
    for array in packed:
        part = observation[..., start : start + array.num_bytes]
        dtype, size = jnp.dtype(array.dtype), math.prod(array.shape)
        if dtype.itemsize > 1:
            part = _join(part.reshape(*batch_shape, size, dtype.itemsize), dtype)
        found[array.name] = part.reshape(*batch_shape, *array.shape)
        start += array.num_bytes
    return found


def pack(packed: Sequence[types.ArraySpec], arrays: Mapping[str, jax.Array]) -> jax.Array:
    """Packs {name: [B, *shape]} to [B, N] uint8, as `core.packing.pack` does."""
    rows = []
    for array in packed:
        values = arrays[array.name].astype(array.dtype)
        parts = values[..., jnp.newaxis] if array.dtype == "uint8" else _split(values)
        rows.append(parts.reshape(values.shape[0], array.num_bytes))
    return jnp.concatenate(rows, axis=1)


def _split(values: jax.Array) -> jax.Array:
    """Splits numbers [...] into bytes [..., size of one], the lowest first; see `_join`."""
    unsigned = jnp.dtype(f"uint{8 * values.dtype.itemsize}")
    whole = jax.lax.bitcast_convert_type(values, unsigned)
    parts = [whole >> unsigned.type(8 * i) & unsigned.type(255) for i in range(unsigned.itemsize)]
    return jnp.stack(parts, axis=-1).astype(jnp.uint8)


def _join(parts: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Joins bytes [..., size of one], the lowest first, to numbers [...].

    Bytes could be bitcast, but not in a program for batches of any size.
    """
    unsigned = jnp.dtype(f"uint{8 * dtype.itemsize}")
    joined = functools.reduce(
        jnp.bitwise_or, (parts[..., i].astype(unsigned) << unsigned.type(8 * i) for i in range(dtype.itemsize))
    )
    return jax.lax.bitcast_convert_type(joined, dtype)
