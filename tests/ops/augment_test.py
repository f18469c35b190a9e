"""Augmentations against an independent numpy implementation: padding and cropping."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.ops import augment


def _crops(image: np.ndarray, pixels: int) -> dict[tuple[int, int], np.ndarray]:
    """All moves of an image [H, W, C] by padding with its edge and cropping."""
    height, width = image.shape[:2]
    padded = np.pad(image, ((pixels, pixels), (pixels, pixels), (0, 0)), mode="edge")
    return {
        (i, j): padded[i : i + height, j : j + width] for i in range(2 * pixels + 1) for j in range(2 * pixels + 1)
    }


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_each_image_is_a_random_crop_of_itself_with_a_repeated_edge(dtype: type) -> None:
    images = np.random.default_rng(0).integers(0, 255, (200, 5, 7, 2)).astype(dtype)
    shifted = np.asarray(jax.jit(augment.random_shift, static_argnums=2)(jax.random.key(0), images, 2))
    assert shifted.dtype == dtype
    seen = set()
    for image, moved in zip(images, shifted, strict=True):
        matches = [move for move, crop in _crops(image, 2).items() if np.array_equal(crop, moved)]
        assert matches
        seen |= set(matches)
    assert len(seen) == 25  # every move is drawn: the chance of missing one of 25 is below 1 %, and the key is fixed


@pytest.mark.thorough
def test_height_and_width_may_be_any_axes() -> None:
    images = np.random.default_rng(0).integers(0, 255, (6, 5, 3, 7))
    key = jax.random.key(3)
    shifted = augment.random_shift(key, jnp.asarray(images), 2, axes=(1, 3))
    channels_last = augment.random_shift(key, jnp.asarray(np.moveaxis(images, 2, 3)), 2)
    np.testing.assert_array_equal(np.moveaxis(np.asarray(shifted), 2, 3), channels_last)
    assert (np.asarray(shifted) != images).any()


def test_the_intensity_of_an_image_is_scaled_as_a_whole_within_bounds() -> None:
    images = np.random.default_rng(0).integers(1, 255, (4000, 2, 3)).astype(np.uint8)
    scaled = jax.jit(augment.random_intensity, static_argnums=2)(jax.random.key(0), images, 0.05)
    assert scaled.dtype == jnp.float32
    factors = np.asarray(scaled) / images
    np.testing.assert_allclose(factors, np.broadcast_to(factors[:, :1, :1], factors.shape), rtol=1e-5)
    noise = (factors[:, 0, 0] - 1) / 0.05
    assert np.abs(noise).max() == pytest.approx(2.0, abs=1e-4)
    assert noise.mean() == pytest.approx(0.0, abs=0.06)
    # The variance of a normal number clipped at two: erf(sqrt 2) - 4 phi(2) + 4 * 2 (1 - Phi(2)).
    assert noise.var() == pytest.approx(0.9545 - 4 * 0.05399 + 8 * 0.02275, rel=0.06)
