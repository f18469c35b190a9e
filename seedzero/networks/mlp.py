"""Parts for hidden states of shape [B, width]. Shape letters: B batch, A actions."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

INPUT_LAYER = "Dense_0"
"""A vector's first layer, computed in float32."""
VECTOR_LAYERS = "vector"
"""The layers for a vector beside images."""
OUTPUT_LAYER = "Dense_1"
"""A head's last layer. It is computed in float32: a difference of values below bfloat16's step would be lost."""

_USUAL = nn.initializers.lecun_normal()


def first(width: int, *, name: str | None = None, kernel_init: Any = _USUAL) -> nn.Dense:
    """Returns a vector's first layer: float32 on every device. In bfloat16 100.0 and 100.2 would be the same."""
    return nn.Dense(width, precision=jax.lax.Precision.HIGHEST, kernel_init=kernel_init, name=name)


def output(num_outputs: int) -> nn.Dense:
    """Returns the last layer of a head: float32 on every device, exactly 0 at initialization."""
    exact = jax.lax.Precision.HIGHEST  # accelerators would round the factors
    return nn.Dense(num_outputs, precision=exact, kernel_init=nn.initializers.zeros, name=OUTPUT_LAYER)


def normalize(x: jax.Array) -> jax.Array:
    """Returns each row of x [B, ...] with mean 0 and variance 1 over all its elements; computed in float32.

    Representation and dynamics end with this, so that hidden states keep their scale over any number of unrolled
    steps.
    """
    axes = tuple(range(1, x.ndim))
    y = x.astype(jnp.float32)
    mean = jnp.mean(y, axis=axes, keepdims=True)
    # Not the mean square of y - mean: that needs the mean first, a second pass over the state.
    variance = jnp.maximum(jnp.mean(jnp.square(y), axis=axes, keepdims=True) - jnp.square(mean), 0.0)
    return ((y - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype)


def encode_action(action: jax.Array, num_actions: int, dtype: Any) -> jax.Array:
    """Returns whole numbers [B] as one-hot vectors [B, A], vectors [B, D] unchanged."""
    if jnp.issubdtype(action.dtype, jnp.floating):
        return action.astype(dtype)
    return jax.nn.one_hot(action, num_actions, dtype=dtype)


class Representation(nn.Module):
    """Observation [B, ...], flattened -> hidden state [B, width]."""

    width: int
    dtype: Any

    @nn.compact
    def __call__(self, observation: jax.Array, vector: None = None) -> jax.Array:
        x = observation.reshape(observation.shape[0], -1).astype(jnp.float32)
        x = first(self.width, name=INPUT_LAYER)(x)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        return normalize(nn.Dense(self.width, dtype=self.dtype, name="Dense_1")(x))


class Vector(nn.Module):
    """A vector beside images [B, N] -> features [B, width]; the first layer in float32, as of vectors alone."""

    width: int
    dtype: Any

    @nn.compact
    def __call__(self, vector: jax.Array) -> jax.Array:
        x = first(self.width)(vector.astype(jnp.float32))
        features: jax.Array = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        return features


class GridRepresentation(nn.Module):
    """Grid (Catch, MinAtar) or image [B, H, W, C], vector [B, N] beside it or None -> hidden state [B, width].

    The grid goes through two 3x3 convolutions, the vector through a layer of its own.

    The search dominates the cost of acting; a vector keeps it as cheap as where there are no convolutions.
    """

    width: int
    channels: int
    dtype: Any
    # adds what each channel finds anywhere in the grid, its largest value. The layer of all places must learn for each
    # of them separately what is next to what
    pooled: bool = False
    first_stride: int = 1  # of the first convolution; above 1 its kernel is twice as wide, instead of 3x3

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
    """Hidden state [B, width], action [B] int32 or [B, D] -> next hidden state [B, width]: a residual step."""

    num_actions: int
    dtype: Any
    # the action scales and shifts the hidden units (FiLM, Perez et al. 2018, equation 2); else it is one more input of
    # them. What an action leads to is a conjunction, "it moves left, and there is something", which sums of inputs
    # learn later
    gated: bool = False

    @nn.compact
    def __call__(self, hidden: jax.Array, action: jax.Array) -> jax.Array:
        width = hidden.shape[-1]
        encoded = encode_action(action, self.num_actions, self.dtype)
        x = hidden if self.gated else jnp.concatenate([hidden, encoded], axis=-1)
        x = nn.LayerNorm(dtype=self.dtype)(nn.Dense(width, dtype=self.dtype)(x))
        if self.gated:
            # Scales of both signs: some units are for some actions only from the start.
            init, ones = nn.initializers.normal(1.0), nn.initializers.ones
            scale = nn.Dense(width, dtype=self.dtype, kernel_init=init, bias_init=ones, name="scale")(encoded)
            x = scale * x + nn.Dense(width, dtype=self.dtype, name="shift")(encoded)
        return normalize(hidden + nn.Dense(width, dtype=self.dtype)(nn.relu(x)))


class Head(nn.Module):
    """Hidden state [B, width] -> logits [B, num_outputs] float32, exactly 0 at initialization."""

    width: int
    num_outputs: int
    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        x = nn.Dense(self.width, dtype=self.dtype)(hidden)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        return output(self.num_outputs)(x.astype(jnp.float32))
