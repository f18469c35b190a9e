"""Draws the gamma noise of the search."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

NUM_PROPOSALS = 4
"""Number of proposals. Each is accepted with a probability of at least 0.95; in six of a million draws none is, and
the last one is used anyway."""


def log_gamma(key: jax.Array, alpha: float, shape: tuple[int, ...]) -> jax.Array:
    """Returns logarithms of draws from Gamma(alpha, 1), float32 (Marsaglia and Tsang 2000, with their boost).

    All proposals are made at once, because jax.random.loggamma's nested loops cost more than a whole simulation of the
    search. The logarithm is exact even if the draw underflows.
    """
    normal_key, uniform_key = jax.random.split(key)
    d = alpha + 1.0 - 1.0 / 3.0
    x = jax.random.normal(normal_key, (NUM_PROPOSALS, *shape))
    v = (1.0 + x / jnp.sqrt(9.0 * d)) ** 3
    log_v = jnp.log(jnp.maximum(v, np.finfo(np.float32).tiny))
    # In (0, 1], so that the logarithm is finite.
    log_uniform = jnp.log(1.0 - jax.random.uniform(uniform_key, (NUM_PROPOSALS + 1, *shape)))
    log_u, log_boost = log_uniform[:-1], log_uniform[-1]
    accepted = (v > 0) & (log_u < 0.5 * x**2 + d * (1.0 - v + log_v))
    first = jnp.argmax(accepted.at[-1].set(True), axis=0)
    log_draw = jnp.log(d) + jnp.take_along_axis(log_v, first[None], axis=0)[0]
    # Gamma(alpha) equals Gamma(alpha + 1) times the alpha-th root of a uniform draw.
    return log_draw + log_boost / alpha
