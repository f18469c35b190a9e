"""Lays out a ring's frames: large ones in rows of 128 numbers, which a TPU writes and reads in place.

A TPU keeps an array's last two axes in tiles of 128 numbers by 8 or more. Frames [96, 96, 1] do not fit them, and its
compiler then copies the whole ring in every call. As [72, 128] they fill whole tiles; without whole tiles, the
compiler may choose tiles of other axes, and copies again. Small images are flat, because a copy of frames [10, 5, 1]
takes fifteen times their memory there. On CPUs and GPUs the order of the bytes is the same. Values never change; files
and windows have the environment's shapes.

Shape letters: S slots, T rows of a ring.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

_LANES, _TILE_ROWS = 128, 8
_MOST_PADDING = 1 / 8
"""How much larger whole tiles may make a frame's rows."""
_LEAST_BYTES = 1024
"""Smallest frame in bytes that is stored in rows; the padding of a smaller one could double it."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=("packed",), meta_fields=("frame_shape",))
@dataclasses.dataclass(frozen=True)
class Packed:
    """Rings of images; its properties are those of an array [S, T, *frame_shape]."""

    # a frame's numbers in order: [S, T, rows, 128], padded with 0, or [S, T, N] for small frames; or only its shape,
    # dtype and sharding
    packed: Any
    frame_shape: tuple[int, ...]  # the environment's shape

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.packed.shape[:2], *self.frame_shape)

    @property
    def dtype(self) -> Any:
        return self.packed.dtype

    @property
    def sharding(self) -> Any:
        return self.packed.sharding


Frames: TypeAlias = Any
"""A ring's frames: `Packed`, or an array [S, T, *frame_shape] for small vectors and numbers."""


def zeros(num_slots: int, length: int, frame_shape: tuple[int, ...], dtype: Any) -> Frames:
    """Returns rings without any frame."""
    size = math.prod(frame_shape)
    is_small = size * np.dtype(dtype).itemsize < _LEAST_BYTES
    if is_small and len(frame_shape) < 2:
        return jnp.zeros((num_slots, length, *frame_shape), dtype)
    shape = (size,) if is_small else (_num_rows(size), _LANES)
    return Packed(jnp.zeros((num_slots, length, *shape), dtype), frame_shape)


def _num_rows(size: int) -> int:
    """Returns how many rows a frame of a size has, in whole tiles unless these add too much."""
    rows = math.ceil(size / _LANES)
    whole = math.ceil(rows / _TILE_ROWS) * _TILE_ROWS
    return whole if whole <= (1 + _MOST_PADDING) * rows else rows


def get(frames: Frames, slot: jax.Array, time: jax.Array, mode: str | None = None) -> jax.Array:
    """Returns the frames [..., *frame_shape] at slots and times [...]. mode: as in `jax.Array.at`."""
    packed = frames.packed if isinstance(frames, Packed) else frames
    found: jax.Array = packed.at[slot, time].get(mode=mode)
    if not isinstance(frames, Packed):
        return found
    batch_shape = found.shape[: found.ndim - packed.ndim + 2]
    flat = found.reshape(*batch_shape, -1)
    return flat[..., : math.prod(frames.frame_shape)].reshape(*batch_shape, *frames.frame_shape)


def put(frames: Frames, slot: jax.Array, time: jax.Array, new: jax.Array, *, unique: bool = False) -> Frames:
    """Returns the rings with frames [B, *frame_shape] at [B] slots and times; slots that do not exist are dropped.

    unique: whether no place occurs twice.
    """
    new = new.astype(frames.dtype)
    if not isinstance(frames, Packed):
        return frames.at[slot, time].set(new, mode="drop", unique_indices=unique)
    shape, flat = frames.packed.shape[2:], new.reshape(len(new), -1)
    padded = jnp.pad(flat, ((0, 0), (0, math.prod(shape) - flat.shape[1]))).reshape(len(new), *shape)
    packed = frames.packed.at[slot, time].set(padded, mode="drop", unique_indices=unique)
    return dataclasses.replace(frames, packed=packed)
