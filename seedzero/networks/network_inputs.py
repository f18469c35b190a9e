"""Prepares an observation's named arrays as inputs to a network, and normalizes them by moments.

Shape letters: B batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from seedzero.config import kinds
from seedzero.core import types
from seedzero.networks import observations
from seedzero.ops import statistics

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
        sizes = {x.name: observations.num_normalized(kind, x, frame_stack) for x in spec.arrays}
        sizes = {name: size for name, size in sizes.items() if size and normalizes}
        self._prepare = {
            x.name: observations.preparation(kind, x, frame_stack, scales=x.name not in sizes) for x in spec.arrays
        }
        images = [x for x in spec.arrays if pixels and x.dtype == "uint8" and kinds.is_image(kind, x)]
        of_pixels = {x.name: math.prod(observations.stack_shape(x.shape, frame_stack)) for x in images}
        self._pixels = frozenset(of_pixels)
        self._channels = frozenset(x.name for x in spec.arrays if kinds.is_image(kind, x)) - self._pixels
        self._sizes = sizes | of_pixels

    def no_moments(self) -> Moments | None:
        """The moments before the first batch; None if nothing is normalized."""
        if not self._sizes:
            return None
        return self._as_saved({name: statistics.no_moments(size) for name, size in self._sizes.items()})

    def features(self, moments: Moments | None, observation: Observation) -> observations.Features:
        """Returns the network's inputs; without moments, nothing is normalized."""
        prepared = {name: prepare(observation[name]) for name, prepare in self._prepare.items()}
        # Gradients stop here, because moments are counted, not learned.
        for name, counted in self._by_name(jax.lax.stop_gradient(moments)).items():
            x, rows = prepared[name], self._rows(name, prepared[name])
            if name in self._pixels:
                prepared[name] = statistics.normalize(counted, rows, least_deviation=_LEAST_DEVIATION).reshape(x.shape)
            else:
                prepared[name] = statistics.normalize(counted, rows)
        return observations.join(self._kind, self._spec, prepared)

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
