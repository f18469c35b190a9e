"""Fully connected parts: hidden states are vectors [B, width]. Shape letters: B batch, A actions."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


def normalize(x: jax.Array) -> jax.Array:
    """Returns each row of x [B, ...] with mean 0 and variance 1 over all its elements; computed in float32.

    Hidden states pass through this at the end of representation and dynamics, so that any number of unrolled steps
    keeps their scale.
    """
    axes = tuple(range(1, x.ndim))
    y = x.astype(jnp.float32)
    centered = y - jnp.mean(y, axis=axes, keepdims=True)
    variance = jnp.mean(jnp.square(centered), axis=axes, keepdims=True)
    return (centered * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype)


class Representation(nn.Module):
    """Observation [B, ...], flattened -> hidden state [B, width]."""

    width: int
    dtype: Any

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        x = observation.reshape(observation.shape[0], -1).astype(self.dtype)
        x = nn.Dense(self.width, dtype=self.dtype)(x)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        return normalize(nn.Dense(self.width, dtype=self.dtype)(x))


class Dynamics(nn.Module):
    """Hidden state [B, width], action [B] int32 -> next hidden state [B, width]: a residual step."""

    num_actions: int
    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array, action: jax.Array) -> jax.Array:
        width = hidden.shape[-1]
        one_hot = jax.nn.one_hot(action, self.num_actions, dtype=self.dtype)
        x = nn.Dense(width, dtype=self.dtype)(jnp.concatenate([hidden, one_hot], axis=-1))
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        return normalize(hidden + nn.Dense(width, dtype=self.dtype)(x))


class Head(nn.Module):
    """Hidden state [B, width] -> logits [B, num_outputs] float32, exactly 0 at initialization."""

    width: int
    num_outputs: int
    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        x = nn.Dense(self.width, dtype=self.dtype)(hidden)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        x = nn.Dense(self.num_outputs, dtype=self.dtype, kernel_init=nn.initializers.zeros)(x)
        return x.astype(jnp.float32)
