"""Small grids (Catch, MinAtar): convolutions see the grid, the hidden state is a vector.

A vector keeps the search as cheap as a fully connected one, which dominates the cost of acting; dynamics and heads are
those of `mlp`.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax

from seedzero.networks import mlp


class Representation(nn.Module):
    """Grid [B, H, W, C] -> hidden state [B, width], through two 3x3 convolutions."""

    width: int
    channels: int
    dtype: Any

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        x = observation.astype(self.dtype)
        for _ in range(2):
            x = nn.relu(nn.Conv(self.channels, (3, 3), dtype=self.dtype)(x))
        x = x.reshape(x.shape[0], -1)
        return mlp.normalize(nn.Dense(self.width, dtype=self.dtype)(x))
