"""Products of matrices against XLA's convolutions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

from seedzero.ops import convolution

LAYOUT = ("NHWC", "HWIO", "NHWC")


@pytest.mark.parametrize(
    ("image", "kernel", "strides", "padding"),
    [
        ((5, 4), (3, 3), (1, 1), "SAME"),
        ((7, 10), (4, 4), (2, 2), "SAME"),  # more behind than before
        ((9, 8), (3, 2), (2, 1), "VALID"),  # the last row is never read
        ((6, 6), (1, 1), (1, 1), ((0, 0), (0, 0))),
        ((5, 6), (3, 3), (2, 3), ((2, 0), (0, 1))),
    ],
)
def test_a_product_of_patches_is_a_convolution(
    image: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int], padding: Any
) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, *image, 3)).astype(np.float32)
    weights = rng.normal(size=(*kernel, 3, 5)).astype(np.float32)
    shape = jax.eval_shape(lambda: convolution.convolve(x, weights, strides, padding)).shape
    change = rng.normal(size=shape).astype(np.float32)

    def both(convolve: Any) -> Any:
        def compute(x: Any, weights: Any, change: Any) -> Any:
            made, pull = jax.vjp(convolve, x, weights)
            return made, *pull(change)

        return jax.jit(compute)(x, weights, change)

    expected = both(lambda x, k: lax.conv_general_dilated(x, k, strides, padding, dimension_numbers=LAYOUT))
    found = both(lambda x, k: convolution.convolve(x, k, strides, padding))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
