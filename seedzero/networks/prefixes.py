"""EfficientZero's value prefix (Ye et al. 2021, section 4.2): an LSTM along imagined steps predicts sums of rewards.

The exact time of a reward is hard to predict and matters little; the sum so far is easier.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.networks import mlp

Carry: TypeAlias = tuple[jax.Array, jax.Array]
"""Cell and output of the LSTM, both [B, units] in the compute dtype."""

IMAGE_CHANNELS = 16
IMAGE_UNITS = 512
"""EfficientZero's sizes for hidden states that are images."""


class Head(nn.Module):
    """Maps a hidden state [B, ...] and a carry to the next carry and logits [B, num_outputs] float32.

    The logits are exactly 0 at initialization. The LSTM has `units` units, and the layer after it `width`.
    """

    units: int
    width: int
    num_outputs: int
    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array, carry: Carry) -> tuple[Carry, jax.Array]:
        x = hidden
        if x.ndim > 2:
            x = nn.Conv(IMAGE_CHANNELS, (1, 1), use_bias=False, dtype=self.dtype)(x)
            x = nn.relu(nn.LayerNorm(dtype=self.dtype, reduction_axes=(-3, -2, -1), feature_axes=-1)(x))
        x = x.reshape(x.shape[0], -1)
        (cell, output), _ = nn.OptimizedLSTMCell(self.units, dtype=self.dtype)(carry, x)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(output))
        x = nn.relu(nn.Dense(self.width, dtype=self.dtype)(x))
        logits = mlp.output(self.num_outputs)(x.astype(jnp.float32))
        return (cell.astype(self.dtype), output.astype(self.dtype)), logits

    def initial_carry(self, batch_size: int) -> Carry:
        """Returns the carry before the first step of a sum."""
        zeros = jnp.zeros((batch_size, self.units), self.dtype)
        return zeros, zeros
