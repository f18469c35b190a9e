"""The layout of a ring's frames: in rows of 128 numbers, which a TPU writes and reads in place.

A TPU keeps an array's last two axes in tiles of 128 numbers by 8 or more. Frames [96, 96, 1] fit none: its compiler
then copies the whole ring in every call. As [72, 128] they lie in whole tiles. On CPUs and GPUs the order of the bytes
is the same in both. Values never change; files and windows have the environment's shapes.

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

_LANES = 128
_LEAST_BYTES = 1024
"""Bytes of a frame from which it is tiled: the padding of a smaller one could double it."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=("tiles",), meta_fields=("frame_shape",))
@dataclasses.dataclass(frozen=True)
class Tiled:
    """Rings of large frames; its properties are those of an array [S, T, *frame_shape].

    Attributes:
      tiles: [S, T, rows, 128], a frame's numbers in their order, the last row padded with 0; or its shape, dtype and
        sharding alone.
      frame_shape: the environment's.
    """

    tiles: Any
    frame_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.tiles.shape[:2], *self.frame_shape)

    @property
    def dtype(self) -> Any:
        return self.tiles.dtype

    @property
    def sharding(self) -> Any:
        return self.tiles.sharding


Frames: TypeAlias = Any
"""A ring's frames: `Tiled`, or where they are small an array [S, T, *frame_shape]."""


def zeros(num_slots: int, length: int, frame_shape: tuple[int, ...], dtype: Any) -> Frames:
    """Returns rings without a frame."""
    size = math.prod(frame_shape)
    if size * np.dtype(dtype).itemsize < _LEAST_BYTES:
        return jnp.zeros((num_slots, length, *frame_shape), dtype)
    return Tiled(jnp.zeros((num_slots, length, -(-size // _LANES), _LANES), dtype), frame_shape)


def get(frames: Frames, slot: jax.Array, time: jax.Array, mode: str | None = None) -> jax.Array:
    """Returns the frames [..., *frame_shape] at slots and times [...]; mode: as in `jax.Array.at`."""
    if not isinstance(frames, Tiled):
        found: jax.Array = frames.at[slot, time].get(mode=mode)
        return found
    tiles = frames.tiles.at[slot, time].get(mode=mode)
    flat: jax.Array = tiles.reshape(*tiles.shape[:-2], -1)
    return flat[..., : math.prod(frames.frame_shape)].reshape(*tiles.shape[:-2], *frames.frame_shape)


def put(frames: Frames, slot: jax.Array, time: jax.Array, new: jax.Array, *, unique: bool = False) -> Frames:
    """Returns the rings with frames [B, *frame_shape] at [B] slots and times; slots that do not exist are dropped.

    unique: no place comes twice.
    """
    if not isinstance(frames, Tiled):
        return frames.at[slot, time].set(new.astype(frames.dtype), mode="drop", unique_indices=unique)
    rows = frames.tiles.shape[2]
    flat = new.astype(frames.dtype).reshape(len(new), -1)
    padded = jnp.pad(flat, ((0, 0), (0, rows * _LANES - flat.shape[1]))).reshape(len(new), rows, _LANES)
    tiles = frames.tiles.at[slot, time].set(padded, mode="drop", unique_indices=unique)
    return dataclasses.replace(frames, tiles=tiles)
