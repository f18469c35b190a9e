"""Operations of torsos: convolutions as matrix products, for loops on a CPU, and the words of texts.

Within a loop, XLA's CPU compiler computes the gradient of a convolution's kernel 5 to 60 times more slowly than
outside one. A matrix product is as fast in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Turns texts, given as bytes, into words, given as numbers, on the device.
#
# Shape letters: B batch, L bytes of a text, W words.
_SPACE = ord(" ")
_FACTOR, _MIX = 0x01000193, 0x85EBCA6B
"""Odd constants without a pattern, from FNV and MurmurHash."""


def words(text: jax.Array, num_words: int, num_buckets: int) -> jax.Array:
    """Returns [B, W] int32: hashes, from 1 to `num_buckets`, of each text's first words.

    0 where there are fewer words.

    Spaces and control bytes separate words; a word's number does not depend on its position.

    Args:
      text: [B, L] uint8, padded with 0.
      num_words: W; further words are ignored.
      num_buckets: number of hashes; rarely, two words share one.
    """
    is_letter = text > _SPACE
    begins = is_letter & ~jnp.pad(is_letter[:, :-1], ((0, 0), (1, 0)))
    word = jnp.cumsum(begins, axis=1) - 1  # index of each letter's word
    place = jnp.arange(text.shape[1])
    begin = jax.lax.cummax(jnp.where(begins, place, 0), axis=1)
    powers = jnp.asarray(_powers(text.shape[1]))
    terms = (text.astype(jnp.uint32) + 1) * powers[place - begin]
    mine = is_letter[..., None] & (word[..., None] == jnp.arange(num_words))  # [B, L, W]
    hashed = jnp.sum(jnp.where(mine, terms[..., None], jnp.uint32(0)), axis=1, dtype=jnp.uint32)
    hashed = (hashed ^ (hashed >> 15)) * jnp.uint32(_MIX)
    bucket = (hashed ^ (hashed >> 13)) % num_buckets + 1
    return jnp.where(mine.any(axis=1), bucket, 0).astype(jnp.int32)


def _powers(length: int) -> np.ndarray:
    """Returns [length] uint32: powers of a factor, modulo 2^32."""
    found = [1]
    for _ in range(length - 1):
        found.append(found[-1] * _FACTOR % 2**32)
    return np.array(found, np.uint32)


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
