"""The encoder of a model with chance infers a code for what chance has drawn (Antonoglou et al. 2022, section 4).

Shape letters: B batch, C codes.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.networks import resnet


class Encoder(nn.Module):
    """Maps hidden states [B, ...] of an observation and of the next one to preferences for codes [B, C] float32.

    The code with the highest preference is chosen. Preferences are random at initialization, unlike a head's logits,
    so that different outcomes have different codes from the start. Their squares sum to 1, because no gradient would
    ever reverse a preference that can grow without bound.
    """

    width: int
    num_codes: int
    dtype: Any

    @nn.compact
    def __call__(self, before: jax.Array, after: jax.Array) -> jax.Array:
        x = jnp.concatenate([before, after], axis=-1)
        if x.ndim > 2:
            x = nn.Conv(resnet.HEAD_CHANNELS, (1, 1), use_bias=False, dtype=self.dtype)(x)
            x = nn.LayerNorm(dtype=self.dtype, reduction_axes=(-3, -2, -1), feature_axes=-1)(x)
            x = nn.relu(x).reshape(x.shape[0], -1)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(nn.Dense(self.width, dtype=self.dtype)(x)))
        x = nn.Dense(self.num_codes, dtype=self.dtype)(x).astype(jnp.float32)
        return x * jax.lax.rsqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True) + 1e-2)
