"""Compares writing to and sampling from the replay with plain copies of as many bytes on the same device.

The rings are full, and as large as the preset's. It compares - write: rows into the rings, with one contiguous copy of
their bytes into a donated buffer. - sample: windows, with gathering as many pieces of as many bytes from a buffer, at
fixed places. - windows: the same at fixed positions; its difference from `sample` is the time of the draw.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.device import meshes, steps
from seedzero.interfaces.benchmark import subjects
from seedzero.replay import ring_store, windowing
from seedzero.storage.checkpoints import trees

MAX_BUFFER_BYTES = 2**28
"""Limit of the peers' buffers on a device. They are as large as the rings up to this size, which exceeds all caches.
"""


def run(preset: str = "", settings: subjects.Settings | None = None, *, seconds: float = 10.0) -> dict[str, Any]:
    """Returns the rings' size, and rows for the samples of a training batch and the writes of each acting batch.

    bytes: those of one call.
    """
    subject = subjects.make(preset, settings or {})
    rings = subjects.filled_actor(subject).rings
    ring_steps = subject.setup.layout.num_train * subject.setup.slot_length
    figures = {**subjects.facts(subject), "ring_steps": ring_steps, "ring_bytes": trees.num_bytes(rings)}
    # Writing donates the rings, so it is last.
    rows = [*_sample_rows(subject, rings, seconds / 2), *_write_rows(subject, rings, seconds / 2)]
    return {**figures, "rows": rows}


def _row(slices: subjects.Slices, name: str, peer: str, batch_size: int, num_bytes: int) -> subjects.Row:
    milliseconds = subjects.milliseconds(slices, name)
    return {
        "operation": name,
        "batch": batch_size,
        "bytes": num_bytes,
        "milliseconds": milliseconds,
        "bytes_per_second": 1e3 * num_bytes / milliseconds,
        "peer_milliseconds": subjects.milliseconds(slices, peer),
        "ratio": subjects.ratio(slices, name, peer),
    }


# Sampling ---------------------------------------------------------------------------------------------------------


def _sample_rows(subject: subjects.Subject, rings: ring_store.Rings, seconds: float) -> list[subjects.Row]:
    setup, sample = subject.setup, sampler(subject)
    windows = sample(rings, subject.num_inserts, np.int32(0))
    num_bytes, batch_size = trees.num_bytes(windows), setup.batch_size

    def gather_windows(rings: ring_store.Rings, slot: jax.Array, time: jax.Array) -> windowing.Windows:
        windows = windowing.from_data(rings, slot, time, setup.agent.data, setup.agent.stack)
        return windowing.read(rings, windows, setup.spec.kept.packed)

    gather = meshes.over_devices(gather_windows, setup.mesh, meshes.SHARDED, meshes.SHARDED)
    calls = itertools.count()
    programs = {
        "sample": lambda: sample(rings, subject.num_inserts, np.int32(next(calls))),
        "windows": lambda: gather(rings, windows.slot, windows.time),
        "gather": _plain_gather(subject, trees.num_bytes(rings), batch_size, num_bytes // batch_size),
    }
    slices = subjects.interleave(programs, seconds=seconds)
    return [_row(slices, name, "gather", batch_size, num_bytes) for name in ("sample", "windows")]


def sampler(subject: subjects.Subject) -> Any:
    """Returns the learner's jitted function (rings, num_inserts, call) -> windows of a training batch."""
    setup = subject.setup

    def sample(rings: ring_store.Rings, num_inserts: jax.Array, call: jax.Array) -> windowing.Windows:
        windows = steps.draw(setup, jnp.int32(subject.config.run.seed), rings, call, num_inserts)
        return windowing.read(rings, windows, setup.spec.kept.packed)

    in_specs = (meshes.SHARDED, meshes.REPLICATED, meshes.REPLICATED)
    return meshes.over_devices(sample, setup.mesh, in_specs, meshes.SHARDED)


def _plain_gather(subject: subjects.Subject, ring_bytes: int, num_pieces: int, piece_bytes: int) -> subjects.Program:
    """Returns a program that gathers pieces of contiguous bytes from random places."""
    buffer = _buffer(subject, ring_bytes, num_pieces, piece_bytes)
    pieces_per_shard = buffer.shape[0] // subject.setup.layout.num_shards
    places = np.random.default_rng(0).integers(0, pieces_per_shard, num_pieces, np.int32)
    where = jax.device_put(places, meshes.sharded(subject.setup.mesh))

    def take(buffer: jax.Array, where: jax.Array) -> jax.Array:
        return buffer.at[where].get(mode="promise_in_bounds")

    mapped = meshes.over_devices(take, subject.setup.mesh, meshes.SHARDED, meshes.SHARDED)
    return lambda: mapped(buffer, where)


def _buffer(subject: subjects.Subject, ring_bytes: int, num_pieces: int, piece_bytes: int) -> jax.Array:
    """Returns [N, piece_bytes] uint8, sharded over the devices, with N >= `num_pieces`."""
    num_shards = subject.setup.layout.num_shards
    size = min(ring_bytes, MAX_BUFFER_BYTES * num_shards)
    length = -(-max(num_pieces, size // piece_bytes) // num_shards) * num_shards
    return jnp.ones((length, piece_bytes), jnp.uint8, device=meshes.sharded(subject.setup.mesh))


# Writing ----------------------------------------------------------------------------------------------------------


def _write_rows(subject: subjects.Subject, rings: ring_store.Rings, seconds: float) -> Iterator[subjects.Row]:
    setup, sharded, replicated = subject.setup, meshes.SHARDED, meshes.REPLICATED
    sizes = [size for size in setup.sizes if size <= setup.layout.train_per_shard]

    def put(rings: ring_store.Rings, slot: jax.Array, row: ring_store.Row, num_inserts: jax.Array) -> Any:
        # The next call donates the rings, so the second result is what can be waited for.
        return ring_store.write(rings, slot, row, num_inserts, setup.agent.num_kept), num_inserts + 1

    in_specs, out_specs = (sharded, sharded, sharded, replicated), (sharded, replicated)
    mapped = meshes.over_devices(put, setup.mesh, in_specs, out_specs, donate=(0,))

    def write(slot: jax.Array, row: ring_store.Row) -> jax.Array:
        nonlocal rings
        rings, done = mapped(rings, slot, row, subject.num_inserts)
        return done  # type: ignore[no-any-return]

    for size in sizes:
        local = subjects.batch(subject, size).slot
        new = subjects.row(rings, jnp.zeros(len(local), jnp.int32))
        slot, row = jax.device_put((local, new), meshes.sharded(setup.mesh))
        # The row's own bytes; flags and the previous row add little.
        num_bytes = trees.num_bytes(row)
        copy = _plain_copy(subject, trees.num_bytes(rings), len(local), num_bytes // len(local))
        programs: dict[str, subjects.Program] = {"write": functools.partial(write, slot, row), "copy": copy}
        slices = subjects.interleave(programs, seconds=seconds / len(sizes))
        yield _row(slices, "write", "copy", len(local), num_bytes)


def _plain_copy(subject: subjects.Subject, ring_bytes: int, num_pieces: int, piece_bytes: int) -> subjects.Program:
    """Returns a program that copies pieces contiguously into a large buffer, at the next place in each call."""
    buffer = _buffer(subject, ring_bytes, num_pieces, piece_bytes)
    pieces = jax.device_put(np.ones((num_pieces, piece_bytes), np.uint8), meshes.sharded(subject.setup.mesh))
    num_places = buffer.shape[0] // num_pieces

    def put(buffer: jax.Array, pieces: jax.Array, call: jax.Array) -> tuple[jax.Array, jax.Array]:
        start = (call % num_places) * pieces.shape[0]
        return jax.lax.dynamic_update_slice_in_dim(buffer, pieces, start, 0), call + 1

    sharded, replicated = meshes.SHARDED, meshes.REPLICATED
    in_specs, out_specs = (sharded, sharded, replicated), (sharded, replicated)
    mapped = meshes.over_devices(put, subject.setup.mesh, in_specs, out_specs, donate=(0,))
    return subjects.carrying(lambda buffer, call: mapped(buffer, pieces, np.int32(call)), buffer)
