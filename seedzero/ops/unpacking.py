"""Observations in the agents' form: named arrays, from their packed bytes."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from seedzero.core import types


def unpack(packed: Sequence[types.ArraySpec], observation: jax.Array) -> dict[str, jax.Array]:
    """Returns observations [..., N] uint8, packed as by `core.packing.pack`, as {name: [..., *shape]}.

    packed: `EnvSpec.packed`; where it is empty, the observation is the one array.
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


def _join(parts: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Returns [...] numbers from their bytes [..., size of one], the lowest first.

    Bytes could be cast as they are, but not in a program for batches of any size.
    """
    unsigned = jnp.dtype(f"uint{8 * dtype.itemsize}")
    joined = functools.reduce(
        jnp.bitwise_or, (parts[..., i].astype(unsigned) << unsigned.type(8 * i) for i in range(dtype.itemsize))
    )
    return jax.lax.bitcast_convert_type(joined, dtype)
