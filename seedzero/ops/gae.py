"""Generalized advantage estimation (Schulman et al. 2016).

Shape letters: B batch, T steps.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def advantages(
    value: jax.Array, reward: jax.Array, discount: jax.Array, is_step: jax.Array, *, trace_decay: float | jax.Array
) -> jax.Array:
    """Returns the advantages [B, T] of T consecutive steps (equation 16); add the values to get the value targets.

    Where an episode is cut off (truncated), its last observation is not a step: it bootstraps the step before it,
    and no trace crosses it. Its own advantage is 0.

    Args:
      value: [B, T + 1] of the acting policy.
      reward: [B, T] of step t, received on the way to t + 1.
      discount: [B, T] of what follows step t; 0 where t + 1 is terminal, negative where it is another player's turn.
      is_step: [B, T] bool; false: no action was taken at t.
      trace_decay: lambda, or that of each step [B, T].
    """
    difference = jnp.where(is_step, reward + discount * value[:, 1:] - value[:, :-1], 0.0)
    decay = jnp.where(is_step, discount * trace_decay, 0.0)
    return jax.lax.stop_gradient(decayed_sums(difference, decay))


def decayed_sums(x: jax.Array, decay: jax.Array) -> jax.Array:
    """Returns y [B, T] with y_t = x_t + decay_t y_{t+1}, and 0 after the last one; x and decay [B, T]."""

    def back(following: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, decay = step
        total = x + decay * following
        return total, total

    _, found = jax.lax.scan(back, jnp.zeros_like(x[:, 0]), (x.T, decay.T), reverse=True)
    return found.T
