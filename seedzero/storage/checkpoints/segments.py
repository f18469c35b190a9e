"""Stores the replay's observations in immutable files: a segment has the rows since the last durable checkpoint.

The rings are JAX arrays in the layout of `replay/ring_store.py`, or a numpy array (a single shard) if the host keeps
the frames. Files have the environment's shapes.

A row's number never changes (row n of a slot is at place n % T). A segment lists the numbers of its rows for each
slot; reading skips rows that were overwritten later.

Shape letters: S slots, T rows of a ring, N rows of one segment, D shards.
"""

from __future__ import annotations

import functools
import json
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tensorstore

from seedzero.core import errors, json_object, plain_files
from seedzero.replay import ring_store
from seedzero.storage.checkpoints import durable, trees

CHUNK_BYTES = 64 * 2**20
"""Most bytes of a segment, which are copied on the device at once."""

_SMALLEST = 256
"""Fewest rows in one copy of a shard; sizes grow by _GROWTH, so that few are compiled."""

_GROWTH = 8
_FILE_BYTES = 8 * 2**20
_INDEX = "index.json"
_ROWS = "rows"
_get = functools.partial(ring_store.get_frames, mode="clip")


class Runs(NamedTuple):
    """Runs of rows with consecutive numbers, [R] int64: their slots, first numbers, and lengths of at least 1."""

    slot: np.ndarray
    start: np.ndarray
    length: np.ndarray

    @property
    def num_rows(self) -> int:
        """Number of rows in all runs."""
        return int(self.length.sum())


class Rows(NamedTuple):
    """Single rows by slot and number, [N] int64 each."""

    slot: np.ndarray
    number: np.ndarray


class Segment(NamedTuple):
    """A segment on the disk: its directory's name, its files' checksums, and its rows in order."""

    name: str
    files: Mapping[str, durable.Checksum]
    runs: Runs


class SavedReplay(NamedTuple):
    """The replay on the disk: `cursor`, [S] int64, counts the rows written to each ring until the save."""

    cursor: np.ndarray
    segments: tuple[Segment, ...]


class Chunk(NamedTuple):
    """Rows that are copied together: N / D of each shard, with padding."""

    slot: np.ndarray  # [N] int32, slot within the shard
    time: np.ndarray  # [N] int32, place in the ring
    used: np.ndarray  # [D] number of rows of each shard; the rest is padding
    source: np.ndarray  # [sum of used] index of each row among the given ones, shard by shard


def needed(saved: SavedReplay, cursor: np.ndarray, length: int) -> tuple[Segment, ...]:
    """Returns the segments whose rows are still in rings of T = `length` rows.

    cursor: [S] number of rows ever written.
    """
    oldest = cursor - length
    return tuple(one for one in saved.segments if np.any(one.runs.start + one.runs.length > oldest[one.runs.slot]))


def by_place(saved: SavedReplay, sizes: Sequence[int]) -> list[SavedReplay]:
    """Splits a replay between several places, whose rings are numbered one place after the other.

    sizes: number of rings in each place. A segment never has rows of two places.
    """
    found, first = [], 0
    for size in sizes:
        own = [one for one in saved.segments if first <= one.runs.slot[0] < first + size]
        shifted = tuple(one._replace(runs=one.runs._replace(slot=one.runs.slot - first)) for one in own)
        found.append(SavedReplay(saved.cursor[first : first + size], shifted))
        first += size
    return found


def base(saved: SavedReplay | None, cursor: np.ndarray, length: int) -> SavedReplay:
    """Returns what a save at `cursor` builds on: the segments still needed, or none if most of their rows are dead.

    Otherwise a few slots without new rows would keep every segment that has one of their rows.
    """
    nothing = SavedReplay(np.zeros_like(cursor), ())
    if saved is None:
        return nothing
    kept = needed(saved, cursor, length)
    num_live = np.maximum(saved.cursor - np.maximum(cursor - length, 0), 0).sum()
    if sum(segment.runs.num_rows for segment in kept) > 2 * num_live:
        return nothing
    return SavedReplay(saved.cursor, kept)


def num_missing(saved: SavedReplay, length: int) -> int:
    """Returns how many rows of rings of T = `length` rows are in no segment; a row is in at most one."""
    oldest = np.maximum(saved.cursor - length, 0)
    num_found = 0
    for _, _, (slot, start, num_rows) in saved.segments:
        num_found += int(np.maximum(start + num_rows - np.maximum(start, oldest[slot]), 0).sum())
    return int((saved.cursor - oldest).sum()) - num_found


def row_bytes(observation: Any) -> int:
    """Returns the bytes of one row of rings [S, T, ...]."""
    return int(math.prod(observation.shape[2:]) * observation.dtype.itemsize)


def num_shards(observation: Any) -> int:
    """Returns D, the number of devices that share the slots of rings [S, T, ...]; 1 for numpy arrays."""
    sharding = getattr(observation, "sharding", None)
    return 1 if sharding is None else int(observation.shape[0] // sharding.shard_shape(observation.shape)[0])


def sizes(observation: Any) -> tuple[int, ...]:
    """Returns the sizes that a copy may have, in rows of a shard, ascending."""
    shards = num_shards(observation)
    num_rows = observation.shape[0] // shards * observation.shape[1]
    most = max(min(CHUNK_BYTES // (row_bytes(observation) * shards), num_rows), 1)
    smaller = [_SMALLEST * _GROWTH**i for i in range(16)]
    return (*[size for size in smaller if size < most], most)


def chunks(observation: Any, rows: Rows) -> Iterator[Chunk]:
    """Yields rows of rings [S, T, ...], or of their template, in chunks of one of `sizes` rows a shard."""
    num_slots, length = observation.shape[:2]
    shards, allowed = num_shards(observation), sizes(observation)
    slots_per_shard = num_slots // shards
    by_shard = [np.flatnonzero(rows.slot // slots_per_shard == shard) for shard in range(shards)]
    for begin in range(0, max(map(len, by_shard)), allowed[-1]):
        picked = [indices[begin : begin + allowed[-1]] for indices in by_shard]
        used = np.array([len(indices) for indices in picked])
        size = min(size for size in allowed if size >= used.max())
        source, filled = np.concatenate(picked), _filled(shards * size, used)
        # Padding is past the shard's last slot: `gather` clips it, `scatter` drops it.
        slot, time = np.full(shards * size, slots_per_shard, np.int32), np.zeros(shards * size, np.int32)
        slot[filled] = rows.slot[source] % slots_per_shard
        time[filled] = rows.number[source] % length
        yield Chunk(slot, time, used, source)


def portions(observations: Sequence[Any], rows: Rows) -> Iterator[tuple[Any, Chunk, Runs]]:
    """Yields rows in chunks, each with the rings that contain them, and with their slots and numbers.

    observations: rings [S, T, ...] of several places; `rows` numbers their slots one place after the other.
    """
    first = 0
    for observation in observations:
        here = (first <= rows.slot) & (rows.slot < first + observation.shape[0])
        own = Rows(rows.slot[here] - first, rows.number[here])
        for chunk in chunks(observation, own):
            yield observation, chunk, compress(Rows(own.slot[chunk.source] + first, own.number[chunk.source]))
        first += observation.shape[0]


def _filled(num_rows: int, used: np.ndarray) -> np.ndarray:
    """Returns [N] bool, false for the padding in a chunk of N rows."""
    filled: np.ndarray = np.arange(num_rows // len(used)) < used[:, None]
    return filled.reshape(-1)


def new_rows(built_on: SavedReplay, cursor: np.ndarray, length: int) -> Rows:
    """Returns the rows of the rings that are not on the disk yet."""
    start = np.maximum(built_on.cursor, cursor - length)
    slot = np.flatnonzero(cursor > start)
    return expand(Runs(slot, start[slot], (cursor - start)[slot]))


def expand(runs: Runs) -> Rows:
    """Returns the single rows of runs."""
    offset = np.arange(runs.num_rows) - np.repeat(np.cumsum(runs.length) - runs.length, runs.length)
    return Rows(np.repeat(runs.slot, runs.length), np.repeat(runs.start, runs.length) + offset)


def compress(rows: Rows) -> Runs:
    """Returns one or more rows as runs of consecutive numbers, in the same order."""
    breaks = np.flatnonzero((np.diff(rows.slot) != 0) | (np.diff(rows.number) != 1)) + 1
    begin = np.concatenate([[0], breaks]).astype(np.int64)
    return Runs(rows.slot[begin], rows.number[begin], np.diff(np.append(begin, len(rows.slot))))


def gather(observation: ring_store.Frames, chunk: Chunk) -> jax.Array | np.ndarray:
    """Copies a chunk's rows out of rings [S, T, ...], as [N, ...]; the rings may be donated right afterwards."""
    if isinstance(observation, np.ndarray):
        rows: np.ndarray = observation[np.minimum(chunk.slot, len(observation) - 1), chunk.time]
        return rows
    copied: jax.Array = _on_shards(_get, observation.sharding)(observation, chunk.slot, chunk.time)
    return copied


def scatter(observation: ring_store.Frames, chunk: Chunk, rows: np.ndarray) -> ring_store.Frames:
    """Writes a chunk's rows into donated rings [S, T, ...] and returns them; numpy arrays are changed in place.

    `rows` are [sum of used, ...] in the order of `chunk.source`.
    """
    if isinstance(observation, np.ndarray):
        observation[chunk.slot[: len(rows)], chunk.time[: len(rows)]] = rows
        return observation
    padded = np.zeros((len(chunk.slot), *rows.shape[1:]), rows.dtype)
    padded[_filled(len(padded), chunk.used)] = rows
    return _on_shards(ring_store.put_rows, observation.sharding, donate=(0,))(
        observation, chunk.slot, chunk.time, padded
    )


@functools.cache
def _on_shards(function: Any, sharding: Any, donate: tuple[int, ...] = ()) -> Any:
    """Returns the jitted function, applied to each device's shard of all its arguments."""
    if isinstance(sharding, jax.sharding.NamedSharding):
        spec = jax.sharding.PartitionSpec(*sharding.spec[:1])
        function = jax.shard_map(function, mesh=sharding.mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return jax.jit(function, donate_argnums=donate)


def to_host(copied: jax.Array | np.ndarray, used: np.ndarray) -> np.ndarray:
    """Returns the rows copied by `gather` without padding, in the order of `Chunk.source`."""
    rows = np.asarray(copied)
    return rows[: used[0]] if len(used) == 1 else rows[_filled(len(rows), used)]


def write(root: pathlib.Path, name: str, rows: np.ndarray, runs: Runs) -> Segment:
    """Writes rows [N, ...] with their slots and numbers durably as a segment below `root`, or nothing after an error.

    Raises OSError, ValueError or RuntimeError from the disk.
    """
    with durable.new_directory(root / name) as directory:
        per_file = max(_FILE_BYTES // max(rows[0].nbytes, 1), 1)
        chunks, compressor = (min(per_file, len(rows)), *rows.shape[1:]), trees.COMPRESSOR
        metadata = {"shape": rows.shape, "chunks": chunks, "dtype": rows.dtype.str, "compressor": compressor}
        spec = {**_spec(directory), "metadata": metadata, "store_data_equal_to_fill_value": True}
        store = tensorstore.open(spec, create=True).result()
        store.write(rows).result()
        index = {"shape": rows.shape, **{field: column.tolist() for field, column in runs._asdict().items()}}
        (directory / _INDEX).write_text(json.dumps(index))
        files = durable.checksums(directory)
    return Segment(name, files, runs)


def _spec(directory: pathlib.Path) -> dict[str, Any]:
    return {"driver": "zarr", "kvstore": {"driver": "file", "path": str((directory / _ROWS).resolve()) + "/"}}


def read_index(root: pathlib.Path, name: str, files: Mapping[str, durable.Checksum]) -> Segment:
    """Reads which rows a segment has. Raises CheckpointError if its index cannot be read."""
    try:
        index = json_object.parse(plain_files.read(root / name / _INDEX))
        columns = {field: np.array(index[field], np.int64) for field in Runs._fields}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.CheckpointError(f"segments/{name}/{_INDEX} cannot be read: {error}") from error
    return Segment(name, files, Runs(**columns))


def read_rows(root: pathlib.Path, segment: Segment) -> np.ndarray:
    """Reads a segment's rows, [N, ...]. Raises CheckpointError if that fails."""
    try:
        rows: np.ndarray = tensorstore.open(_spec(root / segment.name), open=True).result().read().result()
    except (OSError, ValueError, RuntimeError) as error:
        raise errors.CheckpointError(f"segments/{segment.name} cannot be read: {error}") from error
    return rows


def restore(root: pathlib.Path, saved: SavedReplay, template: ring_store.Frames) -> ring_store.Frames:
    """Restores observation rings [S, T, ...] from segments below `root`; rows that were never written are 0.

    template: shape, dtype and sharding of the rings, or numpy arrays of zeros, which are filled in place. Raises
    CheckpointError if a segment cannot be read.
    """
    observation = template
    if not isinstance(template, np.ndarray):
        create = functools.partial(jax.tree.map, jnp.zeros_like, template)
        observation = jax.jit(create, out_shardings=template.sharding)()
    oldest = saved.cursor - template.shape[1]
    for segment in saved.segments:
        rows = expand(segment.runs)
        live = np.flatnonzero(rows.number >= oldest[rows.slot])
        if live.size:
            values = read_rows(root, segment)
            for chunk in chunks(observation, Rows(rows.slot[live], rows.number[live])):
                observation = scatter(observation, chunk, values[live[chunk.source]])
    return observation
