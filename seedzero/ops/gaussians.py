"""Independent normal distributions over the D dimensions of an action, and their image under tanh."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

_LOG_ROOT_2_PI = 0.5 * math.log(2.0 * math.pi)


def log_density(x: jax.Array, mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """Returns the log density [...] at x [..., D]; log_std broadcasts to x's shape."""
    deviation = (x - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * jnp.square(deviation) - log_std - _LOG_ROOT_2_PI, axis=-1)


def entropy(log_std: jax.Array) -> jax.Array:
    """Returns the entropy [...], given the logs of standard deviations [..., D]."""
    return jnp.sum(log_std + 0.5 + _LOG_ROOT_2_PI, axis=-1)


def log_tanh_slope(x: jax.Array) -> jax.Array:
    """Returns the log [...] of tanh's slope at x [..., D], summed over D.

    The density of tanh(x) is that of x divided by this slope (Haarnoja et al. 2018, appendix C). The form used for
    log(1 - tanh(x)^2) is finite for all x.
    """
    return jnp.sum(2.0 * (math.log(2.0) - x - jax.nn.softplus(-2.0 * x)), axis=-1)
