"""Runs updates on the devices of several learner hosts, while each host acts and keeps rings on its own devices.

A host's arrays are, without a copy, also parts of arrays over all hosts: these contain every host's rings side by
side, and the train state is the same everywhere. So an update is the usual program for several devices (`steps`) on a
larger mesh. It waits on the device for the other hosts, so `loop.agreement` makes sure that all of them submit it.

The processes belong to one `jax.distributed` cluster; NCCL, ICI or gloo (on CPUs) sums the gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from seedzero.agents import base
from seedzero.core import errors
from seedzero.device import meshes, setups, states, steps, strategies, tracing
from seedzero.ops import averaging
from seedzero.replay import ring_store, sources


class AcrossHosts(strategies.Strategy):
    """The strategy of one host among several with equally many devices. seed: the run's, equal on every host."""

    def __init__(self, setup: setups.Setup, seed: int) -> None:
        self._mesh = setup.mesh
        self._everywhere = meshes.of_all_hosts(setup.mesh)
        placed = jax.device_put(np.int32(seed), meshes.replicated(setup.mesh))
        self._seed = _assembled(placed, (), meshes.replicated(self._everywhere))
        self._num_hosts = setup.num_hosts
        self._setup = on_all_hosts(setup, self._everywhere)

    def trace_update(self, tracer: tracing.ProgramTracer) -> tracing.Traces:
        return trace_update(self._setup, tracer)

    def run_update(
        self, run: tracing.Bundle, given: strategies.Learning, feed: steps.Feed, num_updates: int
    ) -> strategies.Updated:
        _, train, rings = given
        if isinstance(self._setup.agent.data, sources.Queue):
            feed = self._joined(jax.device_put(feed, meshes.sharded(self._mesh)))
        split = _split(self._setup, self._joined(rings))
        train, written, values = run["update"](self._seed, train, *split, feed)
        return train, rings._replace(**self._own(written)), values.addressable_data(0)

    def align(self, run: tracing.Bundle, train: base.TrainState) -> tuple[base.TrainState, jax.Array]:
        """Returns the train state with the same bits on every host, and each device's earlier checksum [D].

        If checksums differ, every host gets host 0's state. All hosts must call it together.
        """
        aligned, checksums = run["align"](self._seed, train)
        return aligned, checksums.addressable_data(0)

    def spread(self, train: base.TrainState) -> base.TrainState:
        """Copies host 0's train state to all hosts, in the form that updates take; all hosts must call it together."""
        everywhere = meshes.replicated(self._everywhere)
        from_first = broadcast(train)
        placed = jax.device_put(from_first, meshes.replicated(self._mesh))
        return jax.tree.map(lambda x: _assembled(x, x.shape, everywhere), placed)

    def copy(self, params: base.Params) -> base.Params:
        return states.copy(meshes.own(params))

    def reanalysing(self, newest: strategies.Acting, acting: strategies.Acting) -> strategies.Acting:
        return newest._replace(params=meshes.own(newest.params))

    def _joined(self, tree: Any) -> Any:
        """Returns this host's arrays as parts of arrays over all hosts."""
        sharding, number = meshes.sharded(self._everywhere), self._num_hosts
        return jax.tree.map(lambda x: _assembled(x, (x.shape[0] * number, *x.shape[1:]), sharding), tree)

    def _own(self, tree: Any) -> Any:
        """Returns this host's parts of arrays over all hosts."""
        sharding, number = meshes.sharded(self._mesh), self._num_hosts
        return jax.tree.map(lambda x: _assembled(x, (x.shape[0] // number, *x.shape[1:]), sharding), tree)


def on_all_hosts(setup: setups.Setup, everywhere: jax.sharding.Mesh) -> setups.Setup:
    """Returns the setup for updates on the devices of all hosts, from the setup of one host."""
    num_shards = setup.layout.num_shards * setup.num_hosts
    layout, batch_size = setup.layout._replace(num_shards=num_shards), setup.batch_size * setup.num_hosts
    return setup._replace(mesh=everywhere, layout=layout, batch_size=batch_size)


def trace_update(setup: setups.Setup, tracer: tracing.ProgramTracer) -> tracing.Traces:
    """Returns the programs that all hosts run together. setup: from `on_all_hosts`; tracer: one host's."""
    sharding, number = meshes.sharded(setup.mesh), setup.num_hosts

    def joined(tree: Any) -> Any:
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((x.shape[0] * number, *x.shape[1:]), x.dtype, sharding=sharding), tree
        )

    train = meshes.placed(tracer.train, meshes.replicated(setup.mesh))
    rings, feed = joined(tracer.actor.rings), meshes.placed(tracer.feed, meshes.replicated(setup.mesh))
    if isinstance(setup.agent.data, sources.Queue):
        feed = joined(tracer.feed)
    whole = tracing.ProgramTracer(setup, train, tracer.actor._replace(rings=rings), lambda _: ())
    given = (train, *_split(setup, rings)), (feed,)
    return {
        "update": functools.partial(whole.program, "update", make_update, *given, donate=(1, 2), has_metrics=True),
        "align": functools.partial(whole.program, "align", make_align, (train,), (), donate=(1,)),
    }


def _split(setup: setups.Setup, rings: ring_store.Rings) -> tuple[dict[str, Any], ring_store.Rings]:
    """Splits rings into the arrays that an update writes, by name, and the rings without these."""
    names = ("weight", "max_weight") if setup.prioritization else ()
    left: dict[str, Any] = dict.fromkeys(names)
    return {name: getattr(rings, name) for name in names}, rings._replace(**left)


def _assembled(x: jax.Array, shape: tuple[int, ...], sharding: jax.sharding.Sharding) -> jax.Array:
    """Returns a global array with the same parts on this host's devices, without a copy."""
    return jax.make_array_from_single_device_arrays(shape, sharding, meshes.parts(x))


def make_update(setup: setups.Setup) -> Callable[..., tuple[base.TrainState, dict[str, Any], base.Metrics]]:
    """Returns `steps.make_update` for feeds that differ between hosts, also where each device of a host has the same.

    The rings' arrays that an update writes are a separate argument and result; the other arrays do not change.
    """

    def update(
        seed: jax.Array, train: base.TrainState, written: dict[str, Any], rings: ring_store.Rings, feed: steps.Feed
    ) -> tuple[base.TrainState, dict[str, Any], base.Metrics]:
        rings = rings._replace(**written)
        windows = steps.draw(setup, seed, rings, train.num_updates, feed)
        train, after, metrics = steps.learn(setup, seed, train, rings, windows)
        return train, {name: getattr(after, name) for name in written}, metrics

    in_specs = (meshes.REPLICATED, meshes.REPLICATED, meshes.SHARDED, meshes.SHARDED, steps.feed_specs(setup))
    out_specs = (meshes.REPLICATED, meshes.SHARDED, meshes.REPLICATED)
    joined = averaging.joined(update, meshes.AXIS)
    return meshes.over_devices(joined, setup.mesh, in_specs, out_specs, donate=(1, 2))


def make_align(setup: setups.Setup) -> Callable[..., tuple[base.TrainState, jax.Array]]:
    """Returns the function for `AcrossHosts.align`, whose first argument is unused."""

    def align(seed: jax.Array, train: base.TrainState) -> tuple[base.TrainState, jax.Array]:
        checksums = jax.lax.all_gather(checksum(train), meshes.AXIS)
        differs = jnp.any(checksums != checksums[0])
        return jax.lax.cond(differs, _of_first, lambda same: same, train), checksums

    specs = meshes.REPLICATED, meshes.REPLICATED
    return meshes.over_devices(align, setup.mesh, specs, specs, donate=(1,))


def checksum(tree: Any) -> jax.Array:
    """Returns a checksum of all arrays' bits and their positions: a sum of integers, exact in any order."""
    total: jax.Array = jnp.uint32(0)
    for leaf in jax.tree.leaves(tree):
        bits = _bits(leaf).reshape(-1)
        place = 2 * jnp.arange(bits.size, dtype=jnp.uint32) + 1  # odd factors, so that no bit is lost
        total = total * jnp.uint32(16_777_619) + jnp.sum(bits * place, dtype=jnp.uint32)
    return total


def _of_first(tree: Any) -> Any:
    """Returns the first device's values on every device, bit for bit; called inside a function over devices."""
    is_first = jax.lax.axis_index(meshes.AXIS) == 0

    def of_first(x: jax.Array) -> jax.Array:
        return _from_bits(jax.lax.psum(jnp.where(is_first, _bits(x), 0), meshes.AXIS), x)

    return jax.tree.map(of_first, tree)


def _bits(x: jax.Array) -> jax.Array:
    """Returns an array's bits as 32-bit integers; wider numbers have two of them along a last axis."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint32)
    unsigned = jnp.dtype(f"uint{8 * min(4, x.dtype.itemsize)}")
    return jax.lax.bitcast_convert_type(x, unsigned).astype(jnp.uint32)


def _from_bits(bits: jax.Array, like: jax.Array) -> jax.Array:
    """Returns the array with these `_bits`."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        key: jax.Array = jax.random.wrap_key_data(bits, impl=jax.random.key_impl(like))
        return key
    if like.dtype == jnp.bool_:
        return bits.astype(jnp.bool_)
    unsigned = jnp.dtype(f"uint{8 * min(4, like.dtype.itemsize)}")
    return jax.lax.bitcast_convert_type(bits.astype(unsigned), like.dtype)


def broadcast(tree: Any) -> Any:
    """Returns host 0's values of a tree on every host, bit for bit, as numpy arrays; all hosts must call it together.

    Raises TrainingFailure if the hosts cannot connect to each other.
    """
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, tree))
    joined = np.concatenate([np.frombuffer(leaf.tobytes(), np.uint8) for leaf in leaves])
    try:
        found = np.asarray(multihost_utils.broadcast_one_to_all(joined)).tobytes()
    except jax.errors.JaxRuntimeError as error:
        if "Gloo context initialization failed" not in str(error):
            raise
        raise errors.TrainingFailure(
            "the hosts have met, but cannot connect to each other for their gradients "
            f"({str(error).split('] ')[-1]}); open all ports between them, or give each host --cluster.interface, by "
            "which the others reach it"
        ) from error
    ends = np.cumsum([leaf.nbytes for leaf in leaves]).tolist()
    parts = [
        np.frombuffer(found[end - leaf.nbytes : end], leaf.dtype).reshape(leaf.shape)
        for leaf, end in zip(leaves, ends, strict=True)
    ]
    return jax.tree.unflatten(structure, parts)
