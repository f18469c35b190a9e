"""Residual networks for pixels: hidden states are images [B, ceil(H/16), ceil(W/16), C], 6x6 for frames of 84 or 96.

Blocks are pre-activation (He et al. 2016) with LayerNorm over height, width and channels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.networks import mlp

HEAD_CHANNELS = 16


@dataclasses.dataclass(frozen=True)
class ResNetSize:
    channels: int  # of the hidden state
    stage_blocks: int  # residual blocks after each of the first three downsamplings
    tower_blocks: int  # residual blocks of the representation after the last downsampling
    dynamics_blocks: int  # residual blocks of the dynamics


SIZES = {
    "small": ResNetSize(channels=64, stage_blocks=1, tower_blocks=2, dynamics_blocks=1),
    "middle": ResNetSize(channels=128, stage_blocks=1, tower_blocks=3, dynamics_blocks=2),
    # Three blocks end the downsampling, ten are the representation's own.
    "large": ResNetSize(channels=256, stage_blocks=3, tower_blocks=3 + 10, dynamics_blocks=6),
}


class _NormedConv(nn.Module):
    """LayerNorm, ReLU and a 3x3 convolution, which needs no bias because every LayerNorm adds one."""

    channels: int
    dtype: Any
    strides: int = 1
    kernel_scale: float = 2.0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.relu(nn.LayerNorm(dtype=self.dtype, reduction_axes=(-3, -2, -1), feature_axes=-1)(x))
        init = nn.initializers.variance_scaling(self.kernel_scale, "fan_in", "truncated_normal")
        return nn.Conv(
            self.channels, (3, 3), strides=self.strides, use_bias=False, dtype=self.dtype, kernel_init=init
        )(x)


class Block(nn.Module):
    """Adds two convolutions of x [B, H, W, C] to x; the second one starts small."""

    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = _NormedConv(x.shape[-1], self.dtype)(x)
        return x + _NormedConv(x.shape[-1], self.dtype, kernel_scale=0.02)(y)


class Representation(nn.Module):
    """Maps an image [B, H, W, C], with a vector [B, N] or None, to a hidden state.

    Halves the size four times (twice by convolution, twice by pooling) among residual blocks. The vector's features
    are added at every position of the smallest image, before its blocks.
    """

    size: ResNetSize
    dtype: Any

    @nn.compact
    def __call__(self, observation: jax.Array, vector: jax.Array | None = None) -> jax.Array:
        size, dtype = self.size, self.dtype
        x = nn.Conv(size.channels // 2, (3, 3), strides=2, use_bias=False, dtype=dtype)(observation.astype(dtype))
        x = _blocks(x, size.stage_blocks, dtype)
        x = _NormedConv(size.channels, dtype, strides=2)(x)
        for _ in range(2):
            x = _halve(_blocks(x, size.stage_blocks, dtype))
        if vector is not None:
            features = mlp.Vector(size.channels, dtype, name=mlp.VECTOR_LAYERS)(vector)
            x = x + nn.Dense(size.channels, dtype=dtype, name="planes")(features)[:, None, None]
        return mlp.normalize(_blocks(x, size.tower_blocks, dtype))


def _blocks(x: jax.Array, num_blocks: int, dtype: Any) -> jax.Array:
    for _ in range(num_blocks):
        x = Block(dtype)(x)
    return x


def _halve(x: jax.Array) -> jax.Array:
    pool: Callable[..., jax.Array] = nn.avg_pool
    # Dividing by the counts turns bfloat16 into float32.
    return pool(x, (3, 3), strides=(2, 2), padding="SAME", count_include_pad=False).astype(x.dtype)


class _ActionConv(nn.Module):
    """Convolves (3x3, no bias) the hidden state and A action planes, of which the action's is 1 and the others are 0.

    For continuous actions the planes hold the action's numbers.

    A constant plane's contribution depends only on the position, through the kernel taps inside the image. So the
    planes are never created: A contributions are computed once per call, and each row takes its action's. On an
    accelerator this saves joined and padded channels, a tenth of the time of the dynamics.
    """

    num_actions: int
    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array, action: jax.Array) -> jax.Array:
        height, width, channels = hidden.shape[1:]
        num_planes = self.num_actions or action.shape[-1]
        shape = (3, 3, channels + num_planes, channels)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape).astype(self.dtype)
        of_hidden, of_action = kernel[:, :, :channels], kernel[:, :, channels:]
        x = jax.lax.conv_general_dilated(hidden, of_hidden, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        images = jnp.einsum("yi,xj,ijac->ayxc", _taps_inside(height), _taps_inside(width), of_action)
        # Not images[action], whose gradient adds one row after another.
        encoded = mlp.encode_action(action, self.num_actions, self.dtype)
        return x + jnp.einsum("ba,ayxc->byxc", encoded, images.astype(self.dtype))


def _taps_inside(length: int) -> jax.Array:
    """Returns [length, 3]: 1 if a kernel's tap at that position lies inside the image, else 0."""
    place = jnp.arange(length)[:, None] + jnp.arange(-1, 2)
    return ((place >= 0) & (place < length)).astype(jnp.float32)


class Dynamics(nn.Module):
    """Maps a hidden state [B, H, W, C] and an action [B] int32 or [B, D] to the next hidden state."""

    size: ResNetSize
    num_actions: int
    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array, action: jax.Array) -> jax.Array:
        x = hidden + _ActionConv(self.num_actions, self.dtype, name="Conv_0")(nn.relu(hidden), action)
        return mlp.normalize(_blocks(x, self.size.dynamics_blocks, self.dtype))


class Head(nn.Module):
    """Maps a hidden state [B, H, W, C] to logits [B, num_outputs] float32, exactly 0 at initialization."""

    width: int
    num_outputs: int
    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        x = nn.Conv(HEAD_CHANNELS, (1, 1), use_bias=False, dtype=self.dtype)(hidden)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype, reduction_axes=(-3, -2, -1), feature_axes=-1)(x))
        x = nn.relu(nn.Dense(self.width, dtype=self.dtype)(x.reshape(x.shape[0], -1)))
        return mlp.output(self.num_outputs)(x.astype(jnp.float32))
