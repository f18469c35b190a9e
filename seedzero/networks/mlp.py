"""Layers for hidden states of shape [B, width]. Shape letters: B batch, A actions."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

INPUT_LAYER = "Dense_0"
"""Name of a vector's first layer, which is computed in float32."""
VECTOR_LAYERS = "vector"
"""Name of the layers for a vector next to images."""
OUTPUT_LAYER = "Dense_1"
"""Name of a head's last layer, computed in float32: a difference of values below bfloat16's step would be lost."""

_USUAL = nn.initializers.lecun_normal()


def first(width: int, *, name: str | None = None, kernel_init: Any = _USUAL) -> nn.Dense:
    """Returns a vector's first layer, float32 on every device, because 100.0 and 100.2 would be equal in bfloat16."""
    return nn.Dense(width, precision=jax.lax.Precision.HIGHEST, kernel_init=kernel_init, name=name)


def output(num_outputs: int) -> nn.Dense:
    """Returns the last layer of a head, float32 on every device and exactly 0 at initialization."""
    exact = jax.lax.Precision.HIGHEST  # accelerators would round the factors
    return nn.Dense(num_outputs, precision=exact, kernel_init=nn.initializers.zeros, name=OUTPUT_LAYER)


def normalize(x: jax.Array) -> jax.Array:
    """Scales each row of x [B, ...] to mean 0 and variance 1 over all its elements; computes in float32.

    Representation and dynamics end with this, so that hidden states keep their scale over any number of unrolled
    steps.
    """
    axes = tuple(range(1, x.ndim))
    y = x.astype(jnp.float32)
    mean = jnp.mean(y, axis=axes, keepdims=True)
    # Not the mean square of y - mean, which needs the mean first and thus a second pass over the state.
    variance = jnp.maximum(jnp.mean(jnp.square(y), axis=axes, keepdims=True) - jnp.square(mean), 0.0)
    return ((y - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype)


def encode_action(action: jax.Array, num_actions: int, dtype: Any) -> jax.Array:
    """Encodes whole numbers [B] as one-hot vectors [B, A]; returns vectors [B, D] unchanged."""
    if jnp.issubdtype(action.dtype, jnp.floating):
        return action.astype(dtype)
    return jax.nn.one_hot(action, num_actions, dtype=dtype)


class Representation(nn.Module):
    """Maps an observation [B, ...], flattened, to a hidden state [B, width]."""

    width: int
    dtype: Any

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        x = observation.reshape(observation.shape[0], -1).astype(jnp.float32)
        x = first(self.width, name=INPUT_LAYER)(x)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        return normalize(nn.Dense(self.width, dtype=self.dtype, name="Dense_1")(x))


class Vector(nn.Module):
    """Maps a vector next to images [B, N] to features [B, width]; the first layer is float32, as for vectors alone."""

    width: int
    dtype: Any

    @nn.compact
    def __call__(self, vector: jax.Array) -> jax.Array:
        x = first(self.width)(vector.astype(jnp.float32))
        features: jax.Array = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        return features


class GridRepresentation(nn.Module):
    """Maps a grid (Catch, MinAtar) or image [B, H, W, C], with a vector [B, N] or None, to a hidden state [B, width].

    The grid goes through two 3x3 convolutions, the vector through a separate layer. The hidden state is a vector
    because the search dominates the cost of acting, which stays as low as without convolutions this way.
    """

    width: int
    channels: int
    dtype: Any
    # also use the largest value of each channel, which it finds anywhere in the grid; otherwise a single layer of all
    # positions must learn for each of them separately which things are next to each other
    pooled: bool = False
    first_stride: int = 1  # of the first convolution; if above 1, its kernel is twice as wide, instead of 3x3

    @nn.compact
    def __call__(self, observation: jax.Array, vector: jax.Array | None = None) -> jax.Array:
        x = observation.astype(self.dtype)
        first = 2 * self.first_stride if self.first_stride > 1 else 3
        for size, stride in ((first, self.first_stride), (3, 1)):
            x = nn.relu(nn.Conv(self.channels, (size, size), strides=stride, dtype=self.dtype)(x))
        found = jnp.max(x, axis=(1, 2))
        x = x.reshape(x.shape[0], -1)
        if vector is not None:
            x = jnp.concatenate([x, Vector(self.width, self.dtype, name=VECTOR_LAYERS)(vector)], axis=-1)
        hidden = nn.Dense(self.width, dtype=self.dtype)(x)
        if self.pooled:
            hidden = hidden + nn.Dense(self.width, dtype=self.dtype, name="pooled")(found)
        return normalize(hidden)


class Dynamics(nn.Module):
    """Maps a hidden state [B, width] and action [B] int32 or [B, D] to the next hidden state: a residual step."""

    num_actions: int
    dtype: Any
    # the action scales and shifts the hidden units (FiLM, Perez et al. 2018, equation 2), instead of being one more
    # input. What an action leads to is a conjunction, "it moves left, and there is something", which sums of inputs
    # learn later
    gated: bool = False

    @nn.compact
    def __call__(self, hidden: jax.Array, action: jax.Array) -> jax.Array:
        width = hidden.shape[-1]
        encoded = encode_action(action, self.num_actions, self.dtype)
        x = hidden if self.gated else jnp.concatenate([hidden, encoded], axis=-1)
        x = nn.LayerNorm(dtype=self.dtype)(nn.Dense(width, dtype=self.dtype)(x))
        if self.gated:
            # Scales of both signs, so that from the start some units react to some actions only.
            init, ones = nn.initializers.normal(1.0), nn.initializers.ones
            scale = nn.Dense(width, dtype=self.dtype, kernel_init=init, bias_init=ones, name="scale")(encoded)
            x = scale * x + nn.Dense(width, dtype=self.dtype, name="shift")(encoded)
        return normalize(hidden + nn.Dense(width, dtype=self.dtype)(nn.relu(x)))


class Head(nn.Module):
    """Maps a hidden state [B, width] to logits [B, num_outputs] float32, exactly 0 at initialization."""

    width: int
    num_outputs: int
    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        x = nn.Dense(self.width, dtype=self.dtype)(hidden)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        return output(self.num_outputs)(x.astype(jnp.float32))
