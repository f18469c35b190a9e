"""Encodes texts: hashed words are embedded, and an LSTM reads them (IMPALA, Espeholt et al. 2018, figure 3).

Shape letters: N texts, L bytes of a text, W words.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.ops import text_ops

NUM_WORDS, NUM_BUCKETS = 24, 1000
EMBEDDING_WIDTH, LSTM_WIDTH = 20, 64


class Encoder(nn.Module):
    """Maps texts [N, L] uint8 to features [N, LSTM_WIDTH], the state after the last word.

    0 for texts without words.
    """

    dtype: Any

    @nn.compact
    def __call__(self, text: jax.Array) -> jax.Array:
        words = text_ops.words(text, NUM_WORDS, NUM_BUCKETS)
        embedded = nn.Embed(NUM_BUCKETS + 1, EMBEDDING_WIDTH, dtype=self.dtype)(words)

        def step(cell: nn.Module, carry: Any, word: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
            x, is_word = word
            new, _ = cell(carry, x)
            return jax.tree.map(lambda a, b: jnp.where(is_word[:, None], a, b), new, carry), None

        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False}, in_axes=1)
        none = jnp.zeros((text.shape[0], LSTM_WIDTH), self.dtype)
        (_, hidden), _ = scan(nn.OptimizedLSTMCell(LSTM_WIDTH, dtype=self.dtype), (none, none), (embedded, words > 0))
        found: jax.Array = hidden
        return found
