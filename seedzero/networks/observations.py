"""Prepares observations for networks: stacks frames, scales or normalizes features, puts vectors next to images.

A network's `kind` is mlp, which takes all arrays as one vector, or another one, whose convolutions take the images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.config import kinds
from seedzero.core import types


class Features(NamedTuple):
    """Inputs to a network, float32."""

    main: jax.Array  # [B, H, W, C] all images, joined on their channels; for mlp [B, ...] everything
    vector: jax.Array | None = None  # [B, N] everything next to images, except texts; None: nothing

    @property
    def given(self) -> tuple[jax.Array, ...]:
        """The arrays that exist, as arguments for a torso or a representation."""
        return (self.main,) if self.vector is None else (self.main, self.vector)


def stack_shape(observation_shape: tuple[int, ...], frame_stack: int) -> tuple[int, ...]:
    """Returns the shape of `frame_stack` frames joined on the last axis; a scalar observation counts as a vector."""
    shape = observation_shape or (1,)
    return (*shape[:-1], shape[-1] * frame_stack)


def zeros(spec: types.EnvSpec, frame_stack: int, num_rows: int) -> dict[str, jax.Array]:
    """Returns blank observations, {name: [num_rows, *shape of the stacked frames]}."""
    shapes = {array.name: (num_rows, *stack_shape(array.shape, frame_stack)) for array in spec.arrays}
    return {array.name: jnp.zeros(shapes[array.name], array.dtype) for array in spec.arrays}


def compute_dtype(name: str, platform: str) -> Any:
    """Returns the dtype of activations by name; "auto" means bfloat16 on accelerators and float32 on a CPU."""
    if name == "auto":
        return jnp.float32 if platform == "cpu" else jnp.bfloat16
    return jnp.dtype(name)


def num_normalized(kind: str, array: types.ArraySpec, frame_stack: int) -> int:
    """Returns the number of an array's features that running moments normalize; 0 for none.

    A vector's features are its numbers, an image's its channels. Bounds within -1 to 1 (one-hot numbers, boards) are
    already a scale, as are those of an image's bytes.
    """
    image = kinds.is_image(kind, array)
    if array.text:
        return 0
    largest = max(abs(array.low), abs(array.high))
    if largest <= 1 or (image and (array.dtype == "uint8" or (array.dtype == "int32" and largest <= 255))):
        return 0
    shape = stack_shape(array.shape, frame_stack)
    if not image:
        return math.prod(shape)
    return frame_stack if len(array.shape) == 2 else shape[-1]


def preparation(
    kind: str, array: types.ArraySpec, frame_stack: int, *, scales: bool = True
) -> Callable[[jax.Array], jax.Array]:
    """Returns a function that converts an array to float32 and adds a missing channel axis to images.

    scales: it divides integers by their range.
    """
    scale = 1.0 / _integer_range(array) if scales else 1.0
    needs_channels = kinds.is_image(kind, array) and len(array.shape) == 2

    def prepare(observation: jax.Array) -> jax.Array:
        x = observation.astype(jnp.float32) * scale
        if needs_channels:
            height, width = array.shape
            x = jnp.moveaxis(x.reshape(-1, height, frame_stack, width), 2, -1)
        return x

    return prepare


def join(kind: str, spec: types.EnvSpec, prepared: Mapping[str, jax.Array]) -> Features:
    """Returns prepared arrays [B, ...] as inputs to a network of this kind; leaves out texts."""
    if not spec.packed:
        return Features(prepared[types.OBSERVATION])
    arrays = [array for array in spec.packed if not array.text]
    images = [prepared[array.name] for array in arrays if kinds.is_image(kind, array)]
    others = [prepared[array.name] for array in arrays if not kinds.is_image(kind, array)]
    vector = jnp.concatenate([x.reshape(x.shape[0], -1) for x in others], axis=-1) if others else None
    if images:
        return Features(jnp.concatenate(images, axis=-1), vector)
    assert vector is not None
    return Features(vector)


def flat(observation: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Reshapes observations {name: [B, T, ...]} to {name: [B * T, ...]}."""
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in observation.items()}


def _integer_range(array: types.ArraySpec) -> float:
    """Returns the divisor for integer observations; 1 for floats."""
    if array.dtype == "float32":
        return 1.0
    bounds = np.abs([array.low, array.high])
    largest = np.max(bounds, initial=0.0, where=np.isfinite(bounds))
    if largest > 0:
        return float(largest)
    return 255.0 if array.dtype == "uint8" else 1.0
