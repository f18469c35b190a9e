"""Observations as networks take them: stacked frames, scaled or normalized features, an axis for channels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.core import errors, types


def stack_shape(observation_shape: tuple[int, ...], frame_stack: int) -> tuple[int, ...]:
    """Returns the shape of `frame_stack` frames joined on the last axis; a scalar observation counts as a vector."""
    shape = observation_shape or (1,)
    return (*shape[:-1], shape[-1] * frame_stack)


def choose_kind(name: str, kind: str, observation_shape: tuple[int, ...]) -> str:
    """Returns a network's kind: as given, or for "auto" mlp for vectors, conv for small grids, resnet for images.

    `name` is that of the setting, for the error; the shape is that of one frame.

    Raises:
      ConfigError: convolutions are asked for where there is no grid.
    """
    shown = types.shown(observation_shape)
    if kind != "auto":
        if kind != "mlp" and shown == "vectors":
            raise errors.ConfigError(
                f"{name}={kind} needs observations of shape [height, width] or "
                f"[height, width, channels], but they are {list(observation_shape)}; use {name}=mlp"
            )
        return kind
    return {"vectors": "mlp", "small grids": "conv", "images": "resnet"}[shown]


def compute_dtype(name: str, platform: str) -> Any:
    """Returns the dtype of activations: of that name, or for "auto" bfloat16 on accelerators, float32 on a CPU."""
    if name == "auto":
        return jnp.float32 if platform == "cpu" else jnp.bfloat16
    return jnp.dtype(name)


def num_normalized(kind: str, spec: types.EnvSpec, frame_stack: int) -> int:
    """Returns the number of features that are normalized by their running moments; 0: none, bounds tell their scale.

    A vector's features are its numbers, a grid's its channels. Bounds within -1 to 1 (one-hot numbers, boards) are a
    scale, and so are those of a grid's bytes.
    """
    largest = max(abs(spec.observation_low), abs(spec.observation_high))
    is_scaled = largest <= 1 or (kind != "mlp" and spec.observation_dtype != "float32" and largest <= 255)
    if is_scaled or (kind != "mlp" and spec.observation_dtype == "uint8"):
        return 0
    shape = stack_shape(spec.observation_shape, frame_stack)
    if kind == "mlp":
        return math.prod(shape)
    return frame_stack if len(spec.observation_shape) == 2 else shape[-1]


def preparation(
    kind: str, spec: types.EnvSpec, frame_stack: int, *, scales: bool = True
) -> Callable[[jax.Array], jax.Array]:
    """Returns the function to float32 that gives grids without channels an axis for them.

    scales: it divides integers by their range.
    """
    scale = 1.0 / _integer_range(spec) if scales else 1.0
    needs_channels = kind != "mlp" and len(spec.observation_shape) == 2

    def prepare(observation: jax.Array) -> jax.Array:
        x = observation.astype(jnp.float32) * scale
        if needs_channels:
            height, width = spec.observation_shape
            x = jnp.moveaxis(x.reshape(-1, height, frame_stack, width), 2, -1)
        return x

    return prepare


def _integer_range(spec: types.EnvSpec) -> float:
    """Returns the divisor of integer observations; floats are taken as they are."""
    if spec.observation_dtype == "float32":
        return 1.0
    bounds = np.abs([spec.observation_low, spec.observation_high])
    largest = np.max(bounds, initial=0.0, where=np.isfinite(bounds))
    if largest > 0:
        return float(largest)
    return 255.0 if spec.observation_dtype == "uint8" else 1.0
