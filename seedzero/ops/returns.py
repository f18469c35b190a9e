"""Targets from windows of experience, and gradient scaling.

Shape letters: B batch, J positions of a window (0 the sampled one), K unrolled steps.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Targets(NamedTuple):
    """What MuZero's model is to predict along K + 1 positions. Masks: true means trained on.

    Attributes:
      value: [B, K+1] n-step returns.
      value_mask: [B, K+1] bool.
      reward: [B, K] reward[:, k-1] was received on the way to position k.
      reward_mask: [B, K] bool.
      policy_mask: [B, K+1] bool.
    """

    value: jax.Array
    value_mask: jax.Array
    reward: jax.Array
    reward_mask: jax.Array
    policy_mask: jax.Array


def n_step_targets(
    reward: jax.Array,
    value: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    valid: jax.Array,
    *,
    discount: float,
    n: int,
    num_positions: int,
) -> Targets:
    """Returns the targets of the first `num_positions` positions of each window.

    With `last` the last valid position and m = min(n, last - k), the return of position k <= last is
    (MuZero, Schrittwieser et al. 2020, section 3)

        G_k = sum over i = 1 .. m of discount^(i-1) reward_{k+i}  +  discount^m value_{k+m},

    where the value of a terminated position is 0. So a truncated episode, and one whose rest is not known, bootstraps
    from the last value there is; a termination does not. Behind a termination positions are absorbing: reward 0 and
    value 0 are trained, the policy is not. Behind any other last position nothing is known and nothing is trained,
    nor is the value of a last position that has nothing but itself to bootstrap from.

    Where two players take turns, rewards and values are those of whoever moves, who loses what the other one wins:
    with a negative discount the signs in G_k alternate as they do.

    Args:
      reward: [B, J] received on the way to each position.
      value: [B, J] to bootstrap from.
      terminated: [B, J] bool.
      truncated: [B, J] bool.
      valid: [B, J] bool, true: the position exists and belongs to the episode of position 0; a prefix of each row.
      discount: of one step; its negative where two players take turns.
      n: rewards before the return bootstraps.
      num_positions: K + 1; J must be at least K + 1 + n for full returns.
    """
    positions = jnp.arange(num_positions)
    last = jnp.sum(valid, axis=1, dtype=jnp.int32)[:, None] - 1
    absorbing_end = jnp.take_along_axis(terminated, last, axis=1)
    behind = positions > last

    returns = _n_step_returns(reward, value * ~terminated, valid, last, discount, n, num_positions)
    at_last_without_future = (positions == last) & ~absorbing_end
    value_mask = jnp.where(behind, absorbing_end, ~at_last_without_future)
    reached = valid[:, 1:num_positions]
    policy_mask = (valid & ~terminated & ~truncated)[:, :num_positions]
    return Targets(
        value=jnp.where(behind, 0.0, returns),
        value_mask=value_mask,
        reward=jnp.where(reached, reward[:, 1:num_positions], 0.0),
        reward_mask=reached | absorbing_end,
        policy_mask=policy_mask,
    )


def _n_step_returns(
    reward: jax.Array, value: jax.Array, valid: jax.Array, last: jax.Array, discount: float, n: int, num_positions: int
) -> jax.Array:
    """Returns G_k [B, num_positions]; arbitrary (finite) where k > last."""
    padded = jnp.pad(jnp.where(valid, reward, 0.0), ((0, 0), (0, n)))
    discounts = discount ** jnp.arange(n, dtype=reward.dtype)
    ahead = jnp.arange(num_positions)[:, None] + 1 + jnp.arange(n)
    summed = jnp.sum(padded[:, ahead] * discounts, axis=-1)
    bootstrap_at = jnp.minimum(jnp.arange(num_positions) + n, last)
    num_steps = jnp.maximum(bootstrap_at - jnp.arange(num_positions), 0)
    bootstrap = jnp.take_along_axis(value, jnp.maximum(bootstrap_at, 0), axis=1)
    return summed + discount ** num_steps.astype(reward.dtype) * bootstrap


def scale_gradient(x: jax.Array, factor: float) -> jax.Array:
    """Returns x; gradients through it are multiplied by `factor`."""
    return x * factor + jax.lax.stop_gradient(x) * (1.0 - factor)
