"""Spreads arrays and functions over the local devices, each with an equal part of slots and batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from seedzero.core import errors

AXIS = "devices"
SHARDED = jax.sharding.PartitionSpec(AXIS)
REPLICATED = jax.sharding.PartitionSpec()
CPU_OPTIONS: Mapping[str, int] = {"xla_backend_optimization_level": 1}
"""XLA's options on a CPU: compiling takes 5 to 35 % less time than at level 2 of LLVM, and programs are as fast."""


def make(num_devices: int) -> jax.sharding.Mesh:
    """Returns a mesh of this many local devices, or of all for 0. Raises ConfigError if there are fewer."""
    devices = jax.local_devices()
    if num_devices > len(devices):
        raise errors.ConfigError(
            f"--training.num_devices={num_devices}: this host has {len(devices)} {devices[0].platform} device(s); "
            f"give --training.num_devices={len(devices)}, or fewer"
        )
    return jax.sharding.Mesh(np.array(devices[: num_devices or len(devices)]), (AXIS,))


def part(mesh: jax.sharding.Mesh, numbers: Sequence[int]) -> jax.sharding.Mesh:
    """Returns a mesh of some devices of a mesh, given by number."""
    return jax.sharding.Mesh(mesh.devices.flatten()[list(numbers)], (AXIS,))


def split(mesh: jax.sharding.Mesh, num_acting: int) -> tuple[jax.sharding.Mesh, jax.sharding.Mesh | None]:
    """Returns the meshes for acting and for learning; the latter is None if all devices do both (0 acting devices).

    Raises ConfigError if no device would be left to learn.
    """
    if num_acting == 0:
        return mesh, None
    devices = mesh.devices.flatten()
    if num_acting >= len(devices):
        raise errors.ConfigError(f"--training.acting_devices={num_acting} leaves none of {len(devices)} to learn")
    return jax.sharding.Mesh(devices[:num_acting], (AXIS,)), jax.sharding.Mesh(devices[num_acting:], (AXIS,))


def of_all_hosts(mesh: jax.sharding.Mesh) -> jax.sharding.Mesh:
    """Returns the mesh of all hosts' devices, host 0's first. mesh: this host's."""
    number = mesh.devices.size
    by_host = [
        [device for device in jax.devices() if device.process_index == host] for host in range(jax.process_count())
    ]
    return jax.sharding.Mesh(np.array([device for devices in by_host for device in devices[:number]]), (AXIS,))


def parts(x: jax.Array) -> list[jax.Array]:
    """Returns an array's parts on this host's devices, without a copy; for one device this is ten times as fast."""
    if len(x.sharding.addressable_devices) == 1:
        return [x.addressable_data(0)]
    return [part.data for part in x.addressable_shards]


def own(tree: Any) -> Any:
    """Returns replicated arrays over several hosts as arrays of this host, without a copy.

    Other arrays are unchanged.
    """

    def of_this_host(x: Any) -> Any:
        if not isinstance(x, jax.Array) or x.is_fully_addressable:
            return x
        found = parts(x)
        if len(found) == 1:
            return found[0]
        mesh = jax.sharding.Mesh(np.array([part.device for part in found]), (AXIS,))
        return jax.make_array_from_single_device_arrays(x.shape, replicated(mesh), found)

    return jax.tree.map(of_this_host, tree)


def sharded(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
    """Returns the sharding of arrays that are split by slots or rows."""
    return jax.sharding.NamedSharding(mesh, SHARDED)


def replicated(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
    """Returns the sharding of arrays that every device has a copy of."""
    return jax.sharding.NamedSharding(mesh, REPLICATED)


def placed(tree: Any, sharding: jax.sharding.Sharding) -> Any:
    """Returns a tree's shapes and dtypes with this sharding."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def over_devices(
    function: Callable[..., Any],
    mesh: jax.sharding.Mesh,
    in_specs: Any,
    out_specs: Any,
    *,
    donate: tuple[int, ...] = (),
) -> Callable[..., Any]:
    """Returns the jitted function, in which every device works on its own part. donate: positions of arguments.

    in_specs and out_specs describe how arguments and results are split, as for `jax.shard_map`.
    """
    mapped = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    return jax.jit(mapped, donate_argnums=donate)


def compiler_options(mesh: jax.sharding.Mesh) -> dict[str, Any]:
    """Returns XLA's options for a run's programs. What the user has set by XLA_FLAGS is not changed."""
    given = os.environ.get("XLA_FLAGS", "")
    is_cpu = mesh.devices.flat[0].platform == "cpu"
    return {name: value for name, value in CPU_OPTIONS.items() if is_cpu and name not in given}
