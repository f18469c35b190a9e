"""Writing and sampling the replay against plain copies of as many bytes on the same device.

The rings are as large as the preset's and full. Peers:
- write: rows into the rings, against one contiguous copy of their bytes into a donated buffer.
- sample: windows, against a gather of as many pieces of as many bytes from a buffer, at fixed places.
- windows: the same at fixed positions. Its difference to `sample` is the draw.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.benchmark import subject as subjects
from seedzero.benchmark import timing
from seedzero.checkpoints import trees
from seedzero.device import mesh as meshes
from seedzero.replay import data as sources
from seedzero.replay import frames as frame_rows
from seedzero.replay import rings as ring_store
from seedzero.replay import sampling
from seedzero.replay import windows as windowing

MAX_BUFFER_BYTES = 2**28
"""Limit of the peers' buffers on a device: as large as the rings up to this size, which exceeds every cache."""


def run(preset: str = "", settings: subjects.Settings | None = None, *, seconds: float = 10.0) -> dict[str, Any]:
    """Measures writes of each acting batch's rows, and samples of a training batch.

    Args:
      preset, settings: as in `subject.make`.
      seconds: measuring time, without compilation.

    Returns:
      facts of the machine, ring_steps, ring_bytes, and "rows": operation, batch, bytes of a call, milliseconds,
      bytes_per_second, peer_milliseconds, ratio: the speed as a share of the peer's.
    """
    subject = subjects.make(preset, settings or {})
    rings = subjects.filled_actor(subject).rings
    ring_bytes = trees.num_bytes(rings)
    rows = _sample_rows(subject, rings, seconds / 2)
    sizes = [size for size in subject.setup.sizes if size <= subject.setup.layout.train_per_shard]
    # Writing donates the rings, from size to size: it comes last.
    for size in sizes:
        rings, row = _write_row(subject, rings, size, seconds / 2 / len(sizes))
        rows.append(row)
    ring_steps = subject.setup.layout.num_train * subject.setup.slot_length
    return {**subjects.facts(subject), "ring_steps": ring_steps, "ring_bytes": ring_bytes, "rows": rows}


def _row(slices: timing.Slices, name: str, peer: str, batch_size: int, num_bytes: int) -> dict[str, str | float]:
    milliseconds = timing.milliseconds(slices, name)
    return {
        "operation": name,
        "batch": batch_size,
        "bytes": num_bytes,
        "milliseconds": milliseconds,
        "bytes_per_second": 1e3 * num_bytes / milliseconds,
        "peer_milliseconds": timing.milliseconds(slices, peer),
        "ratio": timing.ratio(slices, name, peer),
    }


# Sampling ---------------------------------------------------------------------------------------------------------


def _sample_rows(subject: subjects.Subject, rings: ring_store.Rings, seconds: float) -> list[dict[str, str | float]]:
    sample = sampler(subject)
    windows = sample(rings, subject.num_inserts, np.int32(0))
    num_bytes, batch_size = trees.num_bytes(windows), subject.config.replay.batch_size
    data, stack = subject.setup.agent.data, subject.setup.agent.stack
    packed = subject.setup.spec.packed

    def gather_windows(rings: ring_store.Rings, slot: jax.Array, time: jax.Array) -> windowing.Windows:
        return windowing.read(rings, windowing.from_data(rings, slot, time, data, stack), packed)

    gather = meshes.over_devices(gather_windows, subject.setup.mesh, meshes.SHARDED, meshes.SHARDED)
    calls = itertools.count()
    programs = {
        "sample": lambda: sample(rings, subject.num_inserts, np.int32(next(calls))),
        "windows": lambda: gather(rings, windows.slot, windows.time),
        "gather": _plain_gather(subject, trees.num_bytes(rings), batch_size, num_bytes // batch_size),
    }
    slices = timing.interleave(programs, seconds=seconds)
    return [_row(slices, name, "gather", batch_size, num_bytes) for name in ("sample", "windows")]


def sampler(subject: subjects.Subject) -> Any:
    """Returns the jitted function (rings, num_inserts, call) -> windows of a training batch."""
    config, agent = subject.config, subject.setup.agent
    data = agent.data
    assert isinstance(data, sources.Replay)

    def sample(rings: ring_store.Rings, num_inserts: jax.Array, call: jax.Array) -> windowing.Windows:
        key = jax.random.fold_in(jax.random.key(0), call)
        windows = sampling.sample(
            rings,
            jax.random.fold_in(key, jax.lax.axis_index(meshes.AXIS)),
            config.replay.batch_size // subject.setup.layout.num_shards,
            data,
            num_inserts=num_inserts,
            capacity=config.replay.capacity,
            stack=agent.stack,
            beta=data.prioritization and data.prioritization.beta,
            axis_name=meshes.AXIS,
        )
        return windowing.read(rings, windows, subject.setup.spec.packed)

    replicated = meshes.REPLICATED
    in_specs = (meshes.SHARDED, replicated, replicated)
    return meshes.over_devices(sample, subject.setup.mesh, in_specs, meshes.SHARDED)


def _plain_gather(subject: subjects.Subject, ring_bytes: int, num_pieces: int, piece_bytes: int) -> timing.Program:
    """Returns a program that gathers pieces of contiguous bytes at random places."""
    buffer = _buffer(subject, ring_bytes, num_pieces, piece_bytes)
    pieces_per_shard = buffer.shape[0] // subject.setup.layout.num_shards
    places = np.random.default_rng(0).integers(0, pieces_per_shard, num_pieces, np.int32)
    where = jax.device_put(places, meshes.sharded(subject.setup.mesh))

    def take(buffer: jax.Array, where: jax.Array) -> jax.Array:
        return buffer.at[where].get(mode="promise_in_bounds")

    mapped = meshes.over_devices(take, subject.setup.mesh, meshes.SHARDED, meshes.SHARDED)
    return lambda: mapped(buffer, where)


def _buffer(subject: subjects.Subject, ring_bytes: int, num_pieces: int, piece_bytes: int) -> jax.Array:
    """Returns [N, piece_bytes] uint8, sharded over the devices; N is at least `num_pieces`."""
    num_shards = subject.setup.layout.num_shards
    size = min(ring_bytes, MAX_BUFFER_BYTES * num_shards)
    length = -(-max(num_pieces, size // piece_bytes) // num_shards) * num_shards
    make = jax.jit(
        lambda: jnp.ones((length, piece_bytes), jnp.uint8), out_shardings=meshes.sharded(subject.setup.mesh)
    )
    buffer: jax.Array = make()
    return buffer


# Writing ----------------------------------------------------------------------------------------------------------


def _write_row(
    subject: subjects.Subject, rings: ring_store.Rings, num_rows: int, seconds: float
) -> tuple[ring_store.Rings, dict[str, str | float]]:
    batch = subjects.batch(subject, num_rows)
    new = _example_row(rings, len(batch.slot))
    slot, row = jax.device_put((batch.slot, new), meshes.sharded(subject.setup.mesh))

    def put(rings: ring_store.Rings, slot: jax.Array, row: ring_store.Row, num_inserts: jax.Array) -> Any:
        # The next call donates the rings: the second result is to wait for.
        return ring_store.write(rings, slot, row, num_inserts, subject.setup.agent.stack), num_inserts + 1

    sharded, replicated = meshes.SHARDED, meshes.REPLICATED
    in_specs, out_specs = (sharded, sharded, sharded, replicated), (sharded, replicated)
    mapped = meshes.over_devices(put, subject.setup.mesh, in_specs, out_specs, donate=(0,))
    # The row's own bytes; flags and the previous row add few.
    num_bytes = trees.num_bytes(row)

    def write() -> jax.Array:
        nonlocal rings
        rings, done = mapped(rings, slot, row, subject.num_inserts)
        return done  # type: ignore[no-any-return]

    copy = _plain_copy(subject, trees.num_bytes(rings), len(batch.slot), num_bytes // len(batch.slot))
    slices = timing.interleave({"write": write, "copy": copy}, seconds=seconds)
    return rings, _row(slices, "write", "copy", len(batch.slot), num_bytes)


def _example_row(rings: ring_store.Rings, num_rows: int) -> ring_store.Row:
    """Returns rows in the middle of an episode."""
    zeros = jax.tree.map(
        lambda ring: np.zeros((num_rows, *ring.shape[2:]), ring.dtype),
        rings,
        is_leaf=lambda ring: isinstance(ring, frame_rows.Packed),
    )
    return ring_store.Row(*(getattr(zeros, name) for name in ring_store.Row._fields if name != "weight"))


def _plain_copy(subject: subjects.Subject, ring_bytes: int, num_pieces: int, piece_bytes: int) -> timing.Program:
    """Returns a program that copies pieces contiguously into a large buffer, to the next place at each call."""
    buffer = _buffer(subject, ring_bytes, num_pieces, piece_bytes)
    pieces = jax.device_put(np.ones((num_pieces, piece_bytes), np.uint8), meshes.sharded(subject.setup.mesh))
    num_places = buffer.shape[0] // num_pieces

    def put(buffer: jax.Array, pieces: jax.Array, call: jax.Array) -> tuple[jax.Array, jax.Array]:
        start = (call % num_places) * pieces.shape[0]
        return jax.lax.dynamic_update_slice_in_dim(buffer, pieces, start, 0), call + 1

    sharded, replicated = meshes.SHARDED, meshes.REPLICATED
    in_specs, out_specs = (sharded, sharded, replicated), (sharded, replicated)
    mapped = meshes.over_devices(put, subject.setup.mesh, in_specs, out_specs, donate=(0,))
    return timing.carrying(lambda buffer, call: mapped(buffer, pieces, np.int32(call)), buffer)
