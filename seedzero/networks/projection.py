"""The projection of hidden states in EfficientZero's consistency loss (Ye et al. 2021, section 4.1).

The two networks of SimSiam (Chen and He 2021), with LayerNorm instead of BatchNorm, so that rows are independent.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

IMAGE_UNITS = 1024
"""EfficientZero's number of units for hidden states that are images."""


class Projector(nn.Module):
    """Maps a hidden state [B, ...] to a projection [B, units]; all three layers have `units` units."""

    units: int
    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        x = hidden.reshape(hidden.shape[0], -1)
        for _ in range(2):
            x = nn.Dense(self.units, dtype=self.dtype)(x)
            x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        projected: jax.Array = nn.LayerNorm(dtype=self.dtype)(nn.Dense(self.units, dtype=self.dtype)(x))
        return projected


class Predictor(nn.Module):
    """Maps a projection [B, units] to a prediction of a later observation's projection.

    The hidden layer has half the units.
    """

    units: int
    dtype: Any

    @nn.compact
    def __call__(self, projection: jax.Array) -> jax.Array:
        x = nn.Dense(self.units // 2, dtype=self.dtype)(projection)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        predicted: jax.Array = nn.Dense(self.units, dtype=self.dtype)(x)
        return predicted


def cosine_similarity(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns the cosine similarity [...] of vectors [..., N], from -1 to 1; 0 for a zero vector.

    Computes in float32.
    """
    return jnp.sum(normalize(a) * normalize(b), axis=-1)


def normalize(x: jax.Array) -> jax.Array:
    """Scales vectors [..., N] to length 1, float32; 0 stays 0."""
    y = x.astype(jnp.float32)
    return y * jax.lax.rsqrt(jnp.sum(jnp.square(y), axis=-1, keepdims=True) + 1e-12)
