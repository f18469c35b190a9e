"""Running statistics of a stream of batches: moments of features, and the scale of nonzero numbers.

Old batches fade, because each new batch multiplies their weight by `KEPT`. So the first batch counts fully at once,
and the statistics still follow a changing stream.

Shape letters: N samples of a batch, D features.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

KEPT = 0.9999
"""Factor of the earlier batches' weight when one is added."""
LIMIT = 10.0
"""Largest absolute value of a normalized feature, in standard deviations."""
_LARGEST = 1e15
"""Larger numbers are replaced by this one, because their squares would be infinite."""


class Moments(NamedTuple):
    """Mean and variance of each feature."""

    weight: jax.Array  # scalar, samples with fading weights; 0: none yet
    mean: jax.Array  # [D]
    variance: jax.Array  # [D]; 1 before the first batch


class Magnitude(NamedTuple):
    """Scale of nonzero numbers."""

    weight: jax.Array  # scalar, counted numbers with fading weights
    mean_square: jax.Array  # scalar; 1 before the first batch


def no_moments(num_features: int) -> Moments:
    """Returns the moments before the first batch, which leave features unchanged."""
    return Moments(jnp.zeros(()), jnp.zeros(num_features), jnp.ones(num_features))


def add_features(moments: Moments, x: jax.Array, counted: jax.Array, axis_name: str | None = None) -> Moments:
    """Adds each device's batch to the moments (Chan et al. 1979, equation 2.1).

    The result is the same on all devices of the mapped axis.

    Args:
      moments: so far.
      x: [N, D]; numbers that are not finite count as the mean so far.
      counted: [N] bool, true: the sample counts.
      axis_name: of the mapped axis; None for a single device.
    """
    weight = counted.astype(jnp.float32)[:, None]
    x = jnp.where(counted[:, None] & jnp.isfinite(x), jnp.clip(x, -_LARGEST, _LARGEST), moments.mean)
    added, before = _total(jnp.sum(weight), axis_name), KEPT * moments.weight
    number = jnp.maximum(added, 1.0)
    mean = _total(jnp.sum(weight * x, axis=0), axis_name) / number
    variance = _total(jnp.sum(weight * jnp.square(x - mean), axis=0), axis_name) / number
    share = added / jnp.maximum(before + added, 1e-8)
    away = mean - moments.mean
    # A mean of variances, not a difference of mean squares, because features may vary little around a large mean.
    within = (1.0 - share) * moments.variance + share * variance
    return Moments(before + added, moments.mean + share * away, within + share * (1.0 - share) * jnp.square(away))


def normalize(moments: Moments, x: jax.Array, *, least_deviation: float = 1e-8) -> jax.Array:
    """Normalizes features x [..., D] to mean 0 and variance 1, clipped at LIMIT; a constant feature becomes 0.

    least_deviation: its square is added to the variances, so that features which vary less come out smaller.
    """
    # The rounding errors of a constant are not variance.
    rounding = jnp.square(1e-5 * moments.mean)
    scaled = (x - moments.mean) * jax.lax.rsqrt(moments.variance + rounding + least_deviation**2)
    return jnp.clip(scaled, -LIMIT, LIMIT)


def no_size() -> Magnitude:
    """Returns the scale before the first batch: 1."""
    return Magnitude(jnp.zeros(()), jnp.ones(()))


def add_numbers(size: Magnitude, x: jax.Array, counted: jax.Array, axis_name: str | None = None) -> Magnitude:
    """Adds each device's numbers x [...] to the scale where `counted` [...] is true and they are finite and not 0.

    The result is the same on all devices of the mapped axis.
    """
    counted &= jnp.isfinite(x) & (x != 0)
    squares = jnp.square(jnp.clip(jnp.where(counted, x, 0.0), -_LARGEST, _LARGEST))
    added = _total(jnp.sum(counted, dtype=jnp.float32), axis_name)
    mean_square = _total(jnp.sum(squares), axis_name) / jnp.maximum(added, 1.0)
    before = KEPT * size.weight
    share = added / jnp.maximum(before + added, 1e-8)
    return Magnitude(before + added, (1.0 - share) * size.mean_square + share * mean_square)


def root_mean_square(size: Magnitude) -> jax.Array:
    """Returns the usual size of the numbers, a scalar above 0."""
    return jnp.sqrt(jnp.maximum(size.mean_square, 1e-30))


def batch_root_mean_square(x: jax.Array, counted: jax.Array, axis_name: str | None = None) -> jax.Array:
    """Returns the root mean square of a batch's counted numbers, a scalar, or 0 if none counts.

    x: [...]; counted: [...] bool. The result is the same on all devices of the mapped axis.
    """
    squares = _total(jnp.sum(jnp.square(jnp.where(counted, x, 0.0))), axis_name)
    return jnp.sqrt(squares / jnp.maximum(_total(jnp.sum(counted), axis_name), 1))


def mean_where(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Returns the mean of numbers or truth values x under a mask, [...] bool; 0 for an empty mask."""
    return jnp.sum(x, where=mask) / jnp.maximum(jnp.sum(mask), 1)


def _total(x: jax.Array, axis_name: str | None) -> jax.Array:
    return x if axis_name is None else jax.lax.psum(x, axis_name)
