"""Replay observations as immutable files: each segment holds the rows since the last durable checkpoint.

The rings are arrays of JAX, or of numpy (one shard) if the host keeps the frames.

A row's number never changes (row n of a slot lies at n % T). A segment lists the numbers of its rows for each slot;
reading skips rows that were overwritten since.

Shape letters: S slots, T rows of a ring, N rows of one segment, D shards.
"""

from __future__ import annotations

import functools
import json
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tensorstore

from seedzero.checkpoints import durable
from seedzero.core import errors

CHUNK_BYTES = 64 * 2**20
"""Most bytes that are copied on the device at a time, for one segment."""

_SMALLEST = 256
"""Fewest rows in one copy of a shard; sizes grow by _GROWTH, so few are compiled."""

_GROWTH = 8
_FILE_BYTES = 8 * 2**20
_INDEX = "index.json"
_ROWS = "rows"


class Runs(NamedTuple):
    """Rows with consecutive numbers, one run for each slot that has any.

    Attributes:
      slot: [R] int64.
      start: [R] int64, the first row's number.
      length: [R] int64, at least 1.
    """

    slot: np.ndarray
    start: np.ndarray
    length: np.ndarray

    @property
    def num_rows(self) -> int:
        """Rows of all runs."""
        return int(self.length.sum())


class Rows(NamedTuple):
    """Rows one by one.

    Attributes:
      slot: [N] int64.
      number: [N] int64.
    """

    slot: np.ndarray
    number: np.ndarray


class Segment(NamedTuple):
    """A segment on the disk.

    Attributes:
      name: of its directory.
      files: its files' checksums.
      runs: its rows, in their order.
    """

    name: str
    files: Mapping[str, durable.Checksum]
    runs: Runs


class Saved(NamedTuple):
    """The replay on the disk.

    Attributes:
      cursor: [S] int64, rows ever written at the time of saving.
      segments: with its observations.
    """

    cursor: np.ndarray
    segments: tuple[Segment, ...]


class Chunk(NamedTuple):
    """Rows of one copy, N / D of each shard, padded.

    Attributes:
      slot: [N] int32, local to the shard.
      time: [N] int32, places in the ring.
      used: [D] rows of each shard; the rest is padding.
      source: [sum of used] indices into the given rows, shard by shard.
    """

    slot: np.ndarray
    time: np.ndarray
    used: np.ndarray
    source: np.ndarray


def needed(saved: Saved, cursor: np.ndarray, length: int) -> tuple[Segment, ...]:
    """Returns the segments with rows still in the rings.

    Args:
      saved: the replay on the disk.
      cursor: [S] rows ever written by now.
      length: T.
    """
    oldest = cursor - length
    return tuple(
        segment
        for segment in saved.segments
        if np.any(segment.runs.start + segment.runs.length > oldest[segment.runs.slot])
    )


def base(saved: Saved | None, cursor: np.ndarray, length: int) -> Saved:
    """Returns the base of a save at `cursor`: the needed segments, or none once most of their rows are dead.

    Otherwise a few slots without new rows would keep every segment with a row of theirs.
    """
    nothing = Saved(np.zeros_like(cursor), ())
    if saved is None:
        return nothing
    kept = needed(saved, cursor, length)
    num_live = np.maximum(saved.cursor - np.maximum(cursor - length, 0), 0).sum()
    if sum(segment.runs.num_rows for segment in kept) > 2 * num_live:
        return nothing
    return Saved(saved.cursor, kept)


def row_bytes(observation: Any) -> int:
    """Returns the bytes of one row of [S, T, ...] rings."""
    return int(math.prod(observation.shape[2:]) * observation.dtype.itemsize)


def num_shards(observation: Any) -> int:
    """Returns D, the number of devices that share the slots of [S, T, ...] rings."""
    if isinstance(observation, np.ndarray):
        return 1
    mesh, axes = _axes(observation.sharding)
    return int(math.prod(mesh.shape[axis] for axis in axes))


def _axes(sharding: Any) -> tuple[Any, tuple[str, ...]]:
    """Returns the mesh and its axes that split the slots; (None, ()) for rings on one device."""
    if not isinstance(sharding, jax.sharding.NamedSharding) or not sharding.spec or sharding.spec[0] is None:
        return None, ()
    axes = sharding.spec[0]
    return sharding.mesh, axes if isinstance(axes, tuple) else (axes,)


def sizes(observation: Any) -> tuple[int, ...]:
    """Returns the allowed sizes of a copy, in rows of a shard, ascending."""
    shards = num_shards(observation)
    num_rows = observation.shape[0] // shards * observation.shape[1]
    most = max(min(CHUNK_BYTES // (row_bytes(observation) * shards), num_rows), 1)
    smaller = [_SMALLEST * _GROWTH**i for i in range(16)]
    return (*[size for size in smaller if size < most], most)


def chunks(observation: Any, rows: Rows) -> Iterator[Chunk]:
    """Yields rows in portions of one of `sizes` times D rows.

    Args:
      observation: [S, T, ...] rings, or a template of them.
      rows: with global slots.
    """
    num_slots, length = observation.shape[:2]
    shards, allowed = num_shards(observation), sizes(observation)
    slots_per_shard = num_slots // shards
    by_shard = [np.flatnonzero(rows.slot // slots_per_shard == shard) for shard in range(shards)]
    for begin in range(0, max(map(len, by_shard)), allowed[-1]):
        picked = [indices[begin : begin + allowed[-1]] for indices in by_shard]
        used = np.array([len(indices) for indices in picked])
        size = min(size for size in allowed if size >= used.max())
        # Padding lies past the shard's last slot: `gather` clips it, `scatter` drops it.
        slot = np.full((shards, size), slots_per_shard, np.int32)
        time = np.zeros((shards, size), np.int32)
        for shard, indices in enumerate(picked):
            slot[shard, : len(indices)] = rows.slot[indices] % slots_per_shard
            time[shard, : len(indices)] = rows.number[indices] % length
        yield Chunk(slot.reshape(-1), time.reshape(-1), used, np.concatenate(picked))


def new_rows(built_on: Saved, cursor: np.ndarray, length: int) -> Rows:
    """Returns the rows in the rings that the disk lacks."""
    start = np.maximum(built_on.cursor, cursor - length)
    slot = np.flatnonzero(cursor > start)
    return expand(Runs(slot, start[slot], (cursor - start)[slot]))


def expand(runs: Runs) -> Rows:
    """Returns the rows one by one."""
    offset = np.arange(runs.num_rows) - np.repeat(np.cumsum(runs.length) - runs.length, runs.length)
    return Rows(np.repeat(runs.slot, runs.length), np.repeat(runs.start, runs.length) + offset)


def compress(rows: Rows) -> Runs:
    """Returns at least one row as runs of consecutive numbers, in the same order."""
    breaks = np.flatnonzero((np.diff(rows.slot) != 0) | (np.diff(rows.number) != 1)) + 1
    begin = np.concatenate([[0], breaks]).astype(np.int64)
    return Runs(rows.slot[begin], rows.number[begin], np.diff(np.append(begin, len(rows.slot))))


def gather(observation: jax.Array | np.ndarray, slot: np.ndarray, time: np.ndarray) -> jax.Array | np.ndarray:
    """Returns a copy [N, ...] of some rows, on the devices of the rings, which may be donated right afterwards.

    Args:
      observation: [S, T, ...].
      slot: [N] as in a chunk.
      time: [N] as in a chunk.
    """
    if isinstance(observation, np.ndarray):
        rows: np.ndarray = observation[np.minimum(slot, len(observation) - 1), time]
        return rows
    copied: jax.Array = _gather(*_axes(observation.sharding))(observation, *_indices(observation, slot, time))
    return copied


def scatter(observation: jax.Array | np.ndarray, chunk: Chunk, rows: np.ndarray) -> jax.Array | np.ndarray:
    """Returns the donated rings with the chunk's rows; numpy's are written in place.

    Args:
      observation: [S, T, ...].
      chunk: places of the rows.
      rows: [sum of used, ...] in the order of `chunk.source`.
    """
    shards = len(chunk.used)
    if isinstance(observation, np.ndarray):
        observation[chunk.slot[: len(rows)], chunk.time[: len(rows)]] = rows
        return observation
    padded = np.zeros((shards, len(chunk.slot) // shards, *rows.shape[1:]), rows.dtype)
    for shard, part in enumerate(np.split(rows, np.cumsum(chunk.used)[:-1])):
        padded[shard, : len(part)] = part
    slot, time = _indices(observation, chunk.slot, chunk.time)
    placed = jax.device_put(padded.reshape(-1, *rows.shape[1:]), _row_sharding(observation))
    written: jax.Array = _scatter(*_axes(observation.sharding))(observation, slot, time, placed)
    return written


def _row_sharding(observation: jax.Array) -> Any:
    mesh, axes = _axes(observation.sharding)
    if mesh is None:
        return observation.sharding
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(axes))


def _indices(observation: jax.Array, slot: np.ndarray, time: np.ndarray) -> tuple[jax.Array, jax.Array]:
    sharding = _row_sharding(observation)
    return jax.device_put(slot, sharding), jax.device_put(time, sharding)


@functools.cache
def _gather(mesh: Any, axes: tuple[str, ...]) -> Any:
    def gather(observation: jax.Array, slot: jax.Array, time: jax.Array) -> jax.Array:
        return observation.at[slot, time].get(mode="clip")

    return jax.jit(_per_shard(gather, mesh, axes, num_inputs=3))


@functools.cache
def _scatter(mesh: Any, axes: tuple[str, ...]) -> Any:
    def scatter(observation: jax.Array, slot: jax.Array, time: jax.Array, rows: jax.Array) -> jax.Array:
        return observation.at[slot, time].set(rows, mode="drop")

    return jax.jit(_per_shard(scatter, mesh, axes, num_inputs=4), donate_argnums=0)


def _per_shard(function: Any, mesh: Any, axes: tuple[str, ...], *, num_inputs: int) -> Any:
    if mesh is None:
        return function
    spec = jax.sharding.PartitionSpec(axes)
    return jax.shard_map(function, mesh=mesh, in_specs=(spec,) * num_inputs, out_specs=spec, check_vma=False)


def to_host(copied: jax.Array | np.ndarray, used: np.ndarray) -> np.ndarray:
    """Returns the rows of a `gather`, without padding, in the order of `Chunk.source`."""
    if isinstance(copied, np.ndarray):
        return copied[: used[0]]
    size = copied.shape[0] // len(used)
    parts: dict[int, np.ndarray] = {}
    for shard in copied.addressable_shards:
        if shard.replica_id == 0:
            index = (shard.index[0].start or 0) // size
            parts[index] = np.asarray(shard.data)[: used[index]]
    return parts[0] if len(parts) == 1 else np.concatenate([parts[index] for index in sorted(parts)])


def write(root: pathlib.Path, name: str, rows: np.ndarray, runs: Runs) -> Segment:
    """Writes a segment, durably; an error leaves nothing.

    Args:
      root: directory of all segments.
      name: of the new one.
      rows: [N, ...].
      runs: their slots and numbers.

    Raises:
      OSError, ValueError, RuntimeError: from the disk.
    """
    with durable.new_directory(root / name) as directory:
        per_file = max(_FILE_BYTES // max(rows[0].nbytes, 1), 1)
        metadata = {
            "shape": rows.shape,
            "chunks": (min(per_file, len(rows)), *rows.shape[1:]),
            "dtype": rows.dtype.str,
            "compressor": {"id": "zstd", "level": 1},
        }
        spec = {**_spec(directory), "metadata": metadata, "store_data_equal_to_fill_value": True}
        store = tensorstore.open(spec, create=True).result()
        store.write(rows).result()
        index = {"shape": rows.shape, **{field: column.tolist() for field, column in runs._asdict().items()}}
        (directory / _INDEX).write_text(json.dumps(index))
        files = durable.checksums(directory)
    return Segment(name, files, runs)


def _spec(directory: pathlib.Path) -> dict[str, Any]:
    return {"driver": "zarr", "kvstore": {"driver": "file", "path": str((directory / _ROWS).absolute()) + "/"}}


def read_index(root: pathlib.Path, name: str, files: Mapping[str, durable.Checksum]) -> Segment:
    """Returns a segment without its rows. Raises CheckpointError if its index cannot be read."""
    try:
        index = json.loads((root / name / _INDEX).read_bytes())
        columns = {field: np.array(index[field], np.int64) for field in Runs._fields}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.CheckpointError(f"segments/{name}/{_INDEX} cannot be read: {error}") from error
    return Segment(name, files, Runs(**columns))


def read_rows(root: pathlib.Path, segment: Segment) -> np.ndarray:
    """Returns [N, ...] the segment's rows. Raises CheckpointError if they cannot be read."""
    try:
        rows: np.ndarray = tensorstore.open(_spec(root / segment.name), open=True).result().read().result()
    except (OSError, ValueError, RuntimeError) as error:
        raise errors.CheckpointError(f"segments/{segment.name} cannot be read: {error}") from error
    return rows


def restore(root: pathlib.Path, saved: Saved, template: Any) -> jax.Array | np.ndarray:
    """Returns the saved observation rings [S, T, ...]; rows never written are 0.

    Args:
      root: directory of all segments.
      saved: the replay on the disk.
      template: shape, dtype and sharding of the rings; or numpy's rings of zeros, filled in place.

    Raises:
      CheckpointError: a segment cannot be read.
    """
    observation: jax.Array | np.ndarray = template
    if not isinstance(template, np.ndarray):
        observation = jax.jit(lambda: jnp.zeros(template.shape, template.dtype), out_shardings=template.sharding)()
    oldest = saved.cursor - template.shape[1]
    for segment in saved.segments:
        rows = expand(segment.runs)
        live = np.flatnonzero(rows.number >= oldest[rows.slot])
        if live.size:
            values = read_rows(root, segment)
            for chunk in chunks(observation, Rows(rows.slot[live], rows.number[live])):
                observation = scatter(observation, chunk, values[live[chunk.source]])
    return observation
