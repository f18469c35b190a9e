"""Computes convolutions as matrix products, for loops on a CPU.

Within a loop, XLA's CPU compiler computes the gradient of a convolution's kernel 5 to 60 times more slowly than
outside one. A matrix product is as fast in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def convolve(x: jax.Array, kernel: jax.Array, strides: Sequence[int], padding: Any, **kwargs: Any) -> jax.Array:
    """Returns `lax.conv_general_dilated` of images x [B, H, W, C] and a kernel [h, w, C, N], both float.

    Args:
      strides: of height and width.
      padding: "SAME", "VALID", or (before, after) of height and width.
      **kwargs: flax's other arguments, which must mean no dilation, no groups, channels last.
    """
    height, width = kernel.shape[:2]
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(x.shape[1:3], (height, width), strides, padding)
    x = jnp.pad(x, ((0, 0), *padding, (0, 0)))
    rows, columns = ((x.shape[1 + i] - kernel.shape[i]) // strides[i] + 1 for i in range(2))
    down, right = strides
    taps = [
        x[:, i : i + down * (rows - 1) + 1 : down, j : j + right * (columns - 1) + 1 : right]
        for i in range(height)
        for j in range(width)
    ]
    patches = jnp.concatenate(taps, axis=-1)
    return patches @ kernel.reshape(-1, kernel.shape[-1])
