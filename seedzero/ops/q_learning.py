"""Computes targets for Q-learning: n-step returns, double Q, values on a squashed scale, priorities of sequences.

Shape letters: B batch, T steps, A actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedzero.ops import value_transforms


class Scale(NamedTuple):
    """The scale on which a network predicts values."""

    squash: Callable[[jax.Array], jax.Array]  # from returns to the network's scale, elementwise
    expand: Callable[[jax.Array], jax.Array]  # its inverse


def scale(*, rescale: bool) -> Scale:
    """Returns h of Pohlen et al. 2018 (proposition A.2) and its inverse; without `rescale` both are the identity."""
    if rescale:
        return Scale(value_transforms.signed_hyperbolic, value_transforms.inverse_signed_hyperbolic)
    return Scale(lambda x: x, lambda x: x)


def best_action(q: jax.Array, legal: jax.Array | None) -> jax.Array:
    """Returns the legal action [...] int32 with the largest q [..., A]; legal: [..., A] bool, or None if all are."""
    return jnp.argmax(q if legal is None else jnp.where(legal, q, -jnp.inf), axis=-1).astype(jnp.int32)


def of_action(q: jax.Array, action: jax.Array) -> jax.Array:
    """Returns q [...] of actions [...], given q [..., A]."""
    return jnp.take_along_axis(q, action[..., None], axis=-1)[..., 0]


def n_step_returns(
    reward: jax.Array, discount: jax.Array, value: jax.Array, is_step: jax.Array, *, n_step: int
) -> jax.Array:
    """Returns [B, T]: the sum of the next n discounted rewards and the discounted value after them.

    A return is shorter at the end of the arrays, and where nothing follows an observation because the episode was
    truncated: the value there bootstraps it. Where an episode terminates the discount is 0, and the return ends.

    Args:
      reward: [B, T] of step t, received on the way to t + 1.
      discount: [B, T] of what follows step t; 0 where t + 1 is terminal.
      value: [B, T + 1] of the observations.
      is_step: [B, T] bool; false: nothing is known to follow t, so its return is its value.
      n_step: n, at least 1.
    """
    returns = value[:, :-1]
    for _ in range(n_step):
        following = jnp.concatenate([returns[:, 1:], value[:, -1:]], axis=1)
        returns = jnp.where(is_step, reward + discount * following, value[:, :-1])
    return returns


def sequence_priority(error: jax.Array, is_step: jax.Array, *, eta: float) -> jax.Array:
    """Returns [B]: eta max |error| + (1 - eta) mean |error| over the steps (Kapturowski et al. 2019, section 2.3).

    Returns 0 for rows without steps.

    Args:
      error: [B, T] temporal differences.
      is_step: [B, T] bool; others do not count.
      eta: from 0 to 1.
    """
    size, num_steps = jnp.where(is_step, jnp.abs(error), 0.0), jnp.sum(is_step, axis=1)
    mean = jnp.sum(size, axis=1) / jnp.maximum(num_steps, 1)
    return eta * jnp.max(size, axis=1) + (1.0 - eta) * mean
