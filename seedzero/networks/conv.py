"""Small grids (Catch, MinAtar): convolutions of the grid, a vector as hidden state.

The search dominates the cost of acting, and a vector keeps it as cheap as for `mlp`, whose dynamics and heads it uses.
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
