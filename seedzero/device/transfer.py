"""Moves arrays from the devices of one mesh to those of another, split over the devices of each.

The meshes may differ in size. So each device cuts its part into equal pieces, as few as possible so that each device
of the other mesh receives whole ones. JAX copies from device to device, and nothing waits: a copy begins when its
source is ready.

Shape letters: B rows over all devices of a mesh.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from seedzero.device import meshes

Pieces: TypeAlias = tuple[Any, ...]
"""Trees of arrays of equal structure, which together, by device and in order, make up one tree of arrays [B, ...]."""


def num_pieces(mesh: jax.sharding.Mesh, other: jax.sharding.Mesh) -> int:
    """Returns how many pieces a device's part is cut into on the way to the other mesh."""
    return math.lcm(mesh.devices.size, other.devices.size) // mesh.devices.size


def cut(tree: Any, number: int) -> Pieces:
    """Cuts a device's part into pieces; called under `shard_map`."""
    leaves, structure = jax.tree.flatten(tree)
    pieces = zip(*(jnp.split(leaf, number) for leaf in leaves), strict=True)
    return tuple(jax.tree.unflatten(structure, piece) for piece in pieces)


def join(pieces: Pieces) -> Any:
    """Joins pieces into a device's part; called under `shard_map`."""
    return pieces[0] if len(pieces) == 1 else jax.tree.map(lambda *piece: jnp.concatenate(piece), *pieces)


def move(pieces: Pieces, mesh: jax.sharding.Mesh) -> Pieces:
    """Returns the pieces on another mesh, as many as are needed there."""
    sharding = meshes.sharded(mesh)
    leaves, structure = [jax.tree.leaves(piece) for piece in pieces], jax.tree.structure(pieces[0])
    number = _number_there(pieces, mesh)
    if number == len(pieces) == 1:
        return (jax.device_put(pieces[0], sharding),)
    # Ordered by leaf, device and piece, so that one call makes all copies.
    parts = [
        part.data
        for leaf in zip(*leaves, strict=True)
        for shards in zip(*(piece.addressable_shards for piece in leaf), strict=True)
        for part in shards
    ]
    devices = [device for device in mesh.devices.flat for _ in range(number)]
    copies = jax.device_put(parts, devices * len(leaves[0]))

    def whole(first: int) -> jax.Array:
        mine = copies[first::number][: mesh.devices.size]
        shape = (mesh.devices.size * mine[0].shape[0], *mine[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, sharding, mine)

    starts = range(0, len(copies), len(devices))
    wholes = ([whole(start + piece) for start in starts] for piece in range(number))
    return tuple(jax.tree.unflatten(structure, leaves) for leaves in wholes)


def shapes(pieces: Pieces, mesh: jax.sharding.Mesh) -> Pieces:
    """Returns the shapes, dtypes and shardings of what `move` returns for such pieces."""
    number = _number_there(pieces, mesh)

    def there(x: Any) -> jax.ShapeDtypeStruct:
        shape = (x.shape[0] * len(pieces) // number, *x.shape[1:])
        return jax.ShapeDtypeStruct(shape, x.dtype, sharding=meshes.sharded(mesh))

    return (jax.tree.map(there, pieces[0]),) * number


def _number_there(pieces: Pieces, mesh: jax.sharding.Mesh) -> int:
    here: int = jax.tree.leaves(pieces[0])[0].sharding.num_devices
    return here * len(pieces) // mesh.devices.size
