"""Products of matrices against XLA's convolutions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from seedzero.core import packing
from seedzero.ops import torso_ops

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
    shape = jax.eval_shape(lambda: torso_ops.convolve(x, weights, strides, padding)).shape
    change = rng.normal(size=shape).astype(np.float32)

    def both(convolve: Any) -> Any:
        def compute(x: Any, weights: Any, change: Any) -> Any:
            made, pull = jax.vjp(convolve, x, weights)
            return made, *pull(change)

        return jax.jit(compute)(x, weights, change)

    expected = both(lambda x, k: lax.conv_general_dilated(x, k, strides, padding, dimension_numbers=LAYOUT))
    found = both(lambda x, k: torso_ops.convolve(x, k, strides, padding))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def _words(*texts: str, num_words: int = 6, num_buckets: int = 1000, num_bytes: int = 40) -> list[list[int]]:
    encoded = jnp.asarray(packing.encode_texts(texts, num_bytes))
    found = jax.jit(torso_ops.words, static_argnums=(1, 2))(encoded, num_words, num_buckets)
    assert found.dtype == jnp.int32
    return [[int(word) for word in row] for row in found]


def _hashed(word: str, num_buckets: int = 1000) -> int:
    total = sum((byte + 1) * 0x01000193**place for place, byte in enumerate(word.encode())) % 2**32
    total = (total ^ (total >> 15)) * 0x85EBCA6B % 2**32
    return (total ^ (total >> 13)) % num_buckets + 1


@pytest.mark.parametrize("text", ["pick the red balloon", "a", "x y", "Füße gehen"])
def test_every_word_has_its_hash(text: str) -> None:
    expected = [_hashed(word) for word in text.split()]
    (found,) = _words(text)
    assert found == expected + [0] * (6 - len(expected))


def test_a_word_has_the_same_number_wherever_it_stands_and_its_letters_order_matters() -> None:
    (first,), (second,) = _words("go to the door"), _words("  the   door\tto")
    assert second[:3] == [first[2], first[3], first[1]]
    (third,) = _words("ab ba")
    assert third[0] != third[1]


def test_an_empty_text_has_no_words_and_further_ones_are_left_out() -> None:
    assert _words("", "a b c d", num_words=3) == [[0, 0, 0], [_hashed("a"), _hashed("b"), _hashed("c")]]


def test_words_spread_over_the_buckets() -> None:
    names = [f"word{number}" for number in range(200)]
    found = {_words(name, num_words=1)[0][0] for name in names[:50]}
    assert len(found) > 40 and all(1 <= number <= 1000 for number in found)


def test_texts_are_cut_and_padded() -> None:
    assert packing.encode_texts(["abc", "", "a\0b"], 2).tolist() == [[97, 98], [0, 0], [97, 32]]
    assert packing.encode_texts(["abc"], 2).dtype == np.uint8
