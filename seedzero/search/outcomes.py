"""Draws what chance does in a search by true rules that take a key: the keys of the outcomes of a step.

Shape letters: E positions.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

_NUM_FRESH = 32
"""Number of visits of a step, in a search of a game with chance, each of which has an outcome of its own."""
_CHANCE_KEY = 0x5EED
"""Folded into a search's key, because the search draws its noise from the key itself."""


def num_outcomes(num_simulations: int) -> int:
    """Returns how many outcomes of a step a search draws at most, all of the same probability.

    Up to a number each visit has its own. Then they grow as the root of the simulations, so that with more of these
    means come nearer to the expected ones, and paths get longer, too (progressive widening, Couëtoux et al. 2011).
    """
    return min(num_simulations, round(math.sqrt(_NUM_FRESH * num_simulations)))


def root_keys(key: jax.Array, num_rows: int) -> jax.Array:
    """Returns the data [E, ...] uint32 of the keys from which the searches of E positions draw the outcomes."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, _CHANCE_KEY), jnp.arange(num_rows))
    return jax.random.key_data(keys)


def outcome_keys(data: jax.Array, codes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns keys [E] of outcomes [E] int32 for a step, and the data [E, ...] of those for the steps behind it.

    data: of the state before. It depends on the outcomes since the root and not on the moves, so that a search
    compares moves by the same luck.
    """
    keys = jax.vmap(lambda one, code: jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(one), code)))(
        data, codes
    )
    return keys[:, 0], jax.random.key_data(keys[:, 1])
