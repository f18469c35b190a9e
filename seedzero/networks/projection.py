"""The projection of hidden states in EfficientZero's consistency loss (Ye et al. 2021, section 4.1).

The two networks of SimSiam (Chen and He 2021), with LayerNorm in place of BatchNorm: rows of a batch are independent.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Size:
    """Units of layers.

    Attributes:
      projection: of all three layers of the projector, and so of the compared vectors.
      bottleneck: of the predictor's hidden layer.
    """

    projection: int
    bottleneck: int


IMAGE = Size(projection=1024, bottleneck=512)
"""EfficientZero's sizes for hidden states that are images."""


class Projector(nn.Module):
    """Hidden state [B, ...] -> projection [B, size.projection]."""

    size: Size
    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        x = hidden.reshape(hidden.shape[0], -1)
        for _ in range(2):
            x = nn.Dense(self.size.projection, dtype=self.dtype)(x)
            x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        projected: jax.Array = nn.LayerNorm(dtype=self.dtype)(nn.Dense(self.size.projection, dtype=self.dtype)(x))
        return projected


class Predictor(nn.Module):
    """Projection [B, size.projection] -> prediction of a later observation's projection [B, size.projection]."""

    size: Size
    dtype: Any

    @nn.compact
    def __call__(self, projection: jax.Array) -> jax.Array:
        x = nn.Dense(self.size.bottleneck, dtype=self.dtype)(projection)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        predicted: jax.Array = nn.Dense(self.size.projection, dtype=self.dtype)(x)
        return predicted


def cosine_similarity(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns [...] from -1 to 1 for vectors [..., N]; 0 if one of them is 0. Computed in float32."""
    return jnp.sum(normalize(a) * normalize(b), axis=-1)


def normalize(x: jax.Array) -> jax.Array:
    """Returns vectors [..., N] of length 1, float32; 0 stays 0."""
    y = x.astype(jnp.float32)
    return y * jax.lax.rsqrt(jnp.sum(jnp.square(y), axis=-1, keepdims=True) + 1e-12)
