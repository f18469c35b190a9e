"""Turns texts, given as bytes, into words, given as numbers, on the device.

Shape letters: B batch, L bytes of a text, W words.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

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
