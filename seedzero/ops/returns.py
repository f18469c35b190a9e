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
    num_rewards: jax.Array | None = None,
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
      num_rewards: [B] int32, from 1 to n: in place of n for all returns of a window; None: n.
    """
    positions = jnp.arange(num_positions)
    last = jnp.sum(valid, axis=1, dtype=jnp.int32)[:, None] - 1
    absorbing_end = jnp.take_along_axis(terminated, last, axis=1)
    behind = positions > last

    returns = _n_step_returns(reward, value * ~terminated, valid, last, discount, n, num_positions, num_rewards)
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
    reward: jax.Array,
    value: jax.Array,
    valid: jax.Array,
    last: jax.Array,
    discount: float,
    n: int,
    num_positions: int,
    num_rewards: jax.Array | None,
) -> jax.Array:
    """Returns G_k [B, num_positions]; arbitrary (finite) where k > last."""
    padded = jnp.pad(jnp.where(valid, reward, 0.0), ((0, 0), (0, n)))
    discounts = discount ** jnp.arange(n, dtype=reward.dtype)
    if num_rewards is not None:
        discounts = jnp.where(jnp.arange(n) < num_rewards[:, None, None], discounts, 0.0)
    ahead = jnp.arange(num_positions)[:, None] + 1 + jnp.arange(n)
    summed = jnp.sum(padded[:, ahead] * discounts, axis=-1)
    bootstrap_at = jnp.minimum(jnp.arange(num_positions) + (n if num_rewards is None else num_rewards[:, None]), last)
    num_steps = jnp.maximum(bootstrap_at - jnp.arange(num_positions), 0)
    bootstrap = jnp.take_along_axis(value, jnp.maximum(bootstrap_at, 0), axis=1)
    return summed + discount ** num_steps.astype(reward.dtype) * bootstrap


def num_rewards_by_age(age: jax.Array, *, n: int, decay_age: int) -> jax.Array:
    """Returns how many rewards returns have before they bootstrap, int32 from 1 to n, for ages of any shape.

    EfficientZero's off-policy correction (Ye et al. 2021, section 4.3): what was done long ago is not what would be
    done now, so n - floor(age / (tau T)), clipped to 1 .. n, of T updates in all; tau = 0.3 there.

    Args:
      age: [...] int32, updates since the step was taken.
      n: rewards before the return of a new step bootstraps.
      decay_age: tau T, updates.
    """
    return jnp.clip(n - age // decay_age, 1, n)


def with_search_values(targets: Targets, value: jax.Array, valid: jax.Array, is_old: jax.Array) -> Targets:
    """Returns targets with the search's values in place of the returns in some windows.

    EfficientZero V2's mixed value target (Wang et al. 2024, equation 16). Terminated positions and those behind the
    end have no search's value: theirs stays.

    Args:
      targets: of n-step returns.
      value: [B, K+1] that searches found.
      valid: [B, K+1] bool, true: a search looked at the position.
      is_old: [B] bool, true: the window gets them.
    """
    return targets._replace(value=jnp.where(is_old[:, None] & valid, value, targets.value))


def value_prefixes(reward: jax.Array, horizon: int) -> jax.Array:
    """Returns [B, K] sums of rewards [B, K] up to each one, undiscounted, that begin anew every `horizon` steps.

    The targets of EfficientZero's value prefix (Ye et al. 2021, section 4.2).
    """
    batch_size, num_steps = reward.shape
    padded = jnp.pad(reward, ((0, 0), (0, -num_steps % horizon)))
    return jnp.cumsum(padded.reshape(batch_size, -1, horizon), axis=-1).reshape(batch_size, -1)[:, :num_steps]


def scale_gradient(x: jax.Array, factor: float) -> jax.Array:
    """Returns x; gradients through it are multiplied by `factor`."""
    return x * factor + jax.lax.stop_gradient(x) * (1.0 - factor)
