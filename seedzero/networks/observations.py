"""Prepares observations for networks: stacks frames, scales or normalizes features, names the arrays.

A network's `kind` is mlp, which takes all arrays as one vector, or another one, whose convolutions take the images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.config import shared
from seedzero.core import types
from seedzero.ops import statistics


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
    image = shared.is_image(kind, array)
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
    needs_channels = shared.is_image(kind, array) and len(array.shape) == 2

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
    images = [prepared[array.name] for array in arrays if shared.is_image(kind, array)]
    others = [prepared[array.name] for array in arrays if not shared.is_image(kind, array)]
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


# Prepares an observation's named arrays as inputs to a network, and normalizes them by moments.
#
# Shape letters: B batch.
Observation: TypeAlias = Mapping[str, jax.Array]
"""{name: [B, *shape]}, stacked frames on the last axis."""

Moments: TypeAlias = Any
"""`statistics.Moments` of a single array, or {name: Moments} of the normalized ones among several arrays."""

MOMENTS = "moments"
"""Name of the observations' moments among the parameters of all agents except PPO."""
_LEAST_DEVIATION = 0.02
"""Its square is added to the variance of a pixel between 0 and 1, so that the flicker of a few bytes stays small."""


class InputFunctions:
    """Pure functions for a kind of network (see `observations`), a spec and settings.

    normalizes: arrays whose scale does not follow from their bounds are normalized by running moments.
    pixels: each pixel of images of bytes is normalized by its own moments, too.
    """

    def __init__(
        self, kind: str, spec: types.EnvSpec, frame_stack: int, normalizes: bool, *, pixels: bool = False
    ) -> None:
        self._kind = kind
        self._spec = spec
        sizes = {x.name: num_normalized(kind, x, frame_stack) for x in spec.arrays}
        sizes = {name: size for name, size in sizes.items() if size and normalizes}
        self._prepare = {x.name: preparation(kind, x, frame_stack, scales=x.name not in sizes) for x in spec.arrays}
        images = [x for x in spec.arrays if pixels and x.dtype == "uint8" and shared.is_image(kind, x)]
        of_pixels = {x.name: math.prod(stack_shape(x.shape, frame_stack)) for x in images}
        self._pixels = frozenset(of_pixels)
        self._channels = frozenset(x.name for x in spec.arrays if shared.is_image(kind, x)) - self._pixels
        self._sizes = sizes | of_pixels

    def no_moments(self) -> Moments | None:
        """The moments before the first batch; None if nothing is normalized."""
        if not self._sizes:
            return None
        return self._as_saved({name: statistics.no_moments(size) for name, size in self._sizes.items()})

    def features(self, moments: Moments | None, observation: Observation) -> Features:
        """Returns the network's inputs; without moments, nothing is normalized."""
        prepared = {name: prepare(observation[name]) for name, prepare in self._prepare.items()}
        # Gradients stop here, because moments are counted, not learned.
        for name, counted in self._by_name(jax.lax.stop_gradient(moments)).items():
            x, rows = prepared[name], self._rows(name, prepared[name])
            if name in self._pixels:
                prepared[name] = statistics.normalize(counted, rows, least_deviation=_LEAST_DEVIATION).reshape(x.shape)
            else:
                prepared[name] = statistics.normalize(counted, rows)
        return join(self._kind, self._spec, prepared)

    def add_moments(
        self, moments: Moments, observation: Observation, counted: jax.Array, axis_name: str | None
    ) -> Moments:
        """Adds observations [B, ...] to the moments where `counted` [B].

        The result is the same on all mapped devices.
        """
        found = {}
        for name, before in self._by_name(moments).items():
            samples = self._rows(name, self._prepare[name](observation[name])).reshape(-1, self._sizes[name])
            rows = jnp.repeat(counted, len(samples) // len(counted))
            found[name] = statistics.add_features(before, samples, rows, axis_name)
        return self._as_saved(found)

    def _rows(self, name: str, x: jax.Array) -> jax.Array:
        """Returns a prepared array with its features on the last axis: an image's channels, or all numbers."""
        return x if name in self._channels else x.reshape(x.shape[0], -1)

    def _by_name(self, moments: Moments | None) -> dict[str, statistics.Moments]:
        if moments is None:
            return {}
        return {types.OBSERVATION: moments} if not self._spec.packed else dict(moments)

    def _as_saved(self, moments: dict[str, statistics.Moments]) -> Moments:
        return moments if self._spec.packed else moments[types.OBSERVATION]
