"""Random numbers of the search."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

NUM_PROPOSALS = 6
"""Each is accepted with a probability of at least 0.95: that none is happens once in 6e7 draws, and then the last one
counts all the same."""


def log_gamma(key: jax.Array, alpha: float, shape: tuple[int, ...]) -> jax.Array:
    """Returns logarithms of draws from Gamma(alpha, 1), float32 (Marsaglia and Tsang 2000, with their boost).

    The proposals are made side by side instead of one after the other until one fits: jax.random.loggamma runs a
    loop in a loop, which costs more than a whole simulation of the search.

    Args:
      key: consumed.
      alpha: larger than 0; the logarithm is exact where the draw itself is too small for a float.
      shape: of the result.
    """
    normal_key, uniform_key, boost_key = jax.random.split(key, 3)
    d = alpha + 1.0 - 1.0 / 3.0
    x = jax.random.normal(normal_key, (NUM_PROPOSALS, *shape))
    v = (1.0 + x / jnp.sqrt(9.0 * d)) ** 3
    log_v = jnp.log(jnp.maximum(v, np.finfo(np.float32).tiny))
    log_u = jnp.log(_positive_uniform(uniform_key, x.shape))
    accepted = (v > 0) & (log_u < 0.5 * x**2 + d * (1.0 - v + log_v))
    first = jnp.argmax(accepted.at[-1].set(True), axis=0)
    log_draw = jnp.log(d) + jnp.take_along_axis(log_v, first[None], axis=0)[0]
    # Gamma(alpha) is Gamma(alpha + 1) times the alpha-th root of a uniform draw.
    return log_draw + jnp.log(_positive_uniform(boost_key, shape)) / alpha


def _positive_uniform(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Returns draws from (0, 1]."""
    return 1.0 - jax.random.uniform(key, shape)
