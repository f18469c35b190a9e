"""Policies over continuous actions: a histogram or a normal distribution for each dimension.

Each of D dimensions of [-1, 1] has M bins of equal width and a categorical distribution over them; within a bin an
action is uniform (the discretized, factorized policy of Tang and Agrawal 2020, with a density instead of M points). A
policy may have several peaks, stays within the bounds, and is uniform if all logits are 0. Sampling inverts its
distribution function: for given uniform numbers, the actions are a function of the logits.

Shape letters: B batch, K samples, D dimensions, M = num_bins. Logits are [..., D * M], a dimension's bins together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# Independent normal distributions over the D dimensions of an action, and their image under tanh.
_LOG_ROOT_2_PI = 0.5 * math.log(2.0 * math.pi)


def log_density(x: jax.Array, mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """Returns the log density [...] at x [..., D]; log_std broadcasts to x's shape."""
    deviation = (x - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * jnp.square(deviation) - log_std - _LOG_ROOT_2_PI, axis=-1)


def gaussian_entropy(log_std: jax.Array) -> jax.Array:
    """Returns the entropy [...], given the logs of standard deviations [..., D]."""
    return jnp.sum(log_std + 0.5 + _LOG_ROOT_2_PI, axis=-1)


def log_tanh_slope(x: jax.Array) -> jax.Array:
    """Returns the log [...] of tanh's slope at x [..., D], summed over D.

    The density of tanh(x) is that of x divided by this slope (Haarnoja et al. 2018, appendix C). The form used for
    log(1 - tanh(x)^2) is finite for all x.
    """
    return jnp.sum(2.0 * (math.log(2.0) - x - jax.nn.softplus(-2.0 * x)), axis=-1)


_EDGE = 1e-4
"""Smallest distance of samples from a bin's edges, as a share of its width, so that rounding never changes the bin."""

_FIXED_SEED = 0


class Samples(NamedTuple):
    """Actions drawn from a proposal."""

    actions: jax.Array  # [B, K, D] within -1 to 1
    log_prior: jax.Array  # [B, K] log policy - log proposal of each action; 0 if the proposal is the policy itself


def sample(logits: jax.Array, uniform: jax.Array, *, num_bins: int, uniform_share: float) -> Samples:
    """Draws actions from the proposal (1 - uniform_share) * policy + uniform_share * uniform, in each dimension.

    Args:
      logits: [B, D * M] of the policy.
      uniform: [B, K, D] or [1, K, D] numbers in [0, 1): equal numbers give equal quantiles of the proposal.
      uniform_share: 0 to 1.
    """
    log_policy = _log_policy(logits, num_bins)[:, None]
    proposal = (1.0 - uniform_share) * jnp.exp(log_policy) + uniform_share / num_bins
    highest = jnp.cumsum(proposal, axis=-1)
    index = jnp.sum(uniform[..., None] >= highest[..., :-1], axis=-1)
    is_bin = jax.nn.one_hot(index, num_bins, dtype=bool)

    def of_bin(table: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(is_bin, table, 0.0), axis=-1)

    # A drawn bin is not empty, except for rounding.
    mass = jnp.maximum(of_bin(proposal), np.finfo(np.float32).tiny)
    share = jnp.clip(1.0 - (of_bin(highest) - uniform) / mass, _EDGE, 1.0 - _EDGE)
    log_ratio = of_bin(log_policy) - jnp.log(mass) if uniform_share else jnp.zeros_like(share)
    return Samples(2.0 * (index + share) / num_bins - 1.0, jnp.sum(log_ratio, axis=-1))


def target(actions: jax.Array, weights: jax.Array, *, num_bins: int) -> jax.Array:
    """Returns the target probabilities of the bins, [..., D * M]: the total weight of the samples in each bin.

    Sampled MuZero's policy loss, - sum over k of w_k log pi(a_k), is the cross entropy with this target, summed over
    dimensions: log pi is a sum over dimensions, and equal for all actions of a bin.

    Args:
      actions: [..., K, D] within -1 to 1.
      weights: [..., K] of the samples, summing to 1.
    """
    index = jnp.clip(jnp.floor((actions + 1.0) * (num_bins / 2.0)).astype(jnp.int32), 0, num_bins - 1)
    in_bins = jnp.sum(jax.nn.one_hot(index, num_bins) * weights[..., None, None], axis=-3)
    return in_bins.reshape(*in_bins.shape[:-2], -1)


def cross_entropy(logits: jax.Array, targets: jax.Array, *, num_bins: int) -> jax.Array:
    """Returns the cross entropy [...] of logits and targets [..., D * M], summed over dimensions."""
    return -jnp.sum(targets.reshape(*targets.shape[:-1], -1, num_bins) * _log_policy(logits, num_bins), axis=(-2, -1))


def entropy(logits: jax.Array, *, num_bins: int) -> jax.Array:
    """Returns the entropy [...] of the distributions over bins, in nats, summed over dimensions."""
    log_policy = _log_policy(logits, num_bins)
    return -jnp.sum(jnp.exp(log_policy) * log_policy, axis=(-2, -1))


def latin_hypercube(key: jax.Array, shape: tuple[int, int, int]) -> jax.Array:
    """Draws stratified uniform numbers [B, K, D]: in each dimension, each K-th of [0, 1) holds one of the K numbers.

    Each of the K vectors is uniform over the unit cube (McKay, Beckman and Conover 1979), but means over the K vary
    less than for independent vectors, so that a policy fitted to its own samples drifts less.
    """
    order_key, place_key = jax.random.split(key)
    draws = jax.random.uniform(order_key, shape)
    # For so few numbers, ranking by comparison runs and compiles faster than sorting. (Equal draws share a stratum.)
    order = jnp.sum(draws[:, :, None] > draws[:, None], axis=2)
    # float32 may round the highest number up to 1.
    return jnp.minimum((order + jax.random.uniform(place_key, shape)) / shape[1], 1.0 - 2.0**-24)


def fixed_hypercube(num_samples: int, num_dimensions: int) -> np.ndarray:
    """Returns constant stratified numbers [K, D] float32: the midpoints of the K intervals."""
    random = np.random.default_rng(_FIXED_SEED)
    order = np.stack([random.permutation(num_samples) for _ in range(num_dimensions)], axis=1)
    return ((order + 0.5) / num_samples).astype(np.float32)


def _log_policy(logits: jax.Array, num_bins: int) -> jax.Array:
    """Returns log probabilities [..., D, M] float32."""
    return jax.nn.log_softmax(logits.astype(jnp.float32).reshape(*logits.shape[:-1], -1, num_bins))
