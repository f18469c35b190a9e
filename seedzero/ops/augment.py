"""Image augmentation.

Random shifts are from DrQ (Kostrikov et al. 2021, section 3.1), random intensities from SPR (Schwarzer et al. 2021,
appendix); EfficientZero (Ye et al. 2021) uses both.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def random_shift(key: jax.Array, images: jax.Array, pixels: int, axes: tuple[int, int] = (1, 2)) -> jax.Array:
    """Shifts each image at random by up to `pixels` in both directions; repeats the edge to fill the gap.

    Equals edge padding by `pixels` and a random crop. Along each axis all shifts are computed and each image selects
    its own, which passes over whole vectors; a TPU's gather would read a tile for every row and column.

    Images are [B, ...] of any dtype, and each b moves as one. `axes` are those of height and width.
    """
    moves = jax.random.randint(key, (2, images.shape[0]), -pixels, pixels + 1)
    for move, axis in zip(moves, axes, strict=True):
        length, move = images.shape[axis], move.reshape(-1, *[1] * (images.ndim - 1))
        edges = [(pixels, pixels) if i == axis else (0, 0) for i in range(images.ndim)]
        padded, moved = jnp.pad(images, edges, mode="edge"), images
        for start in range(2 * pixels + 1):
            crop = jax.lax.slice_in_dim(padded, start, start + length, axis=axis)
            moved = jnp.where(move == start - pixels, crop, moved)
        images = moved
    return images


def random_intensity(key: jax.Array, images: jax.Array, scale: float) -> jax.Array:
    """Multiplies each image of [B, ...], any dtype, by its 1 + scale * clip(z, -2, 2), z standard normal; float32."""
    noise = jnp.clip(jax.random.normal(key, (images.shape[0], *[1] * (images.ndim - 1))), -2.0, 2.0)
    return images.astype(jnp.float32) * (1.0 + scale * noise)
