"""Bytes to hashed words, against a program in Python's whole numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.core import packing
from seedzero.ops import text_ops


def _words(*texts: str, num_words: int = 6, num_buckets: int = 1000, num_bytes: int = 40) -> list[list[int]]:
    encoded = jnp.asarray(packing.encode_texts(texts, num_bytes))
    found = jax.jit(text_ops.words, static_argnums=(1, 2))(encoded, num_words, num_buckets)
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
