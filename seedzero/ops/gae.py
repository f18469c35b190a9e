"""Generalized advantage estimation (Schulman et al. 2016).

Shape letters: B batch, T steps.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def advantages(
    value: jax.Array, reward: jax.Array, discount: jax.Array, is_step: jax.Array, *, trace_decay: float
) -> jax.Array:
    """Returns the advantages [B, T] of T steps in a row (equation 16); the value targets are these plus the values.

    Where an episode is cut off (truncated), its last observation is no step: the value there bootstraps the step
    before it, and no trace crosses it. Its own advantage is 0.

    Args:
      value: [B, T + 1] of the policy that acted.
      reward: [B, T] of step t, received on the way to t + 1.
      discount: [B, T] of what follows step t; 0 where t + 1 is terminal.
      is_step: [B, T] bool; false: nothing was done at t.
      trace_decay: lambda.
    """
    difference = jnp.where(is_step, reward + discount * value[:, 1:] - value[:, :-1], 0.0)
    decay = jnp.where(is_step, discount * trace_decay, 0.0)

    def back(advantage: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        difference, decay = step
        advantage = difference + decay * advantage
        return advantage, advantage

    start = jnp.zeros_like(difference[:, 0])
    _, found = jax.lax.scan(back, start, (difference.T, decay.T), reverse=True)
    return jax.lax.stop_gradient(found.T)
