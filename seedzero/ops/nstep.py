"""Computes n-step targets from windows of experience; scales rewards and gradients.

Shape letters: B batch, J positions of a window (0: the sampled one), K unrolled steps.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedzero.ops import vtrace


def scaled_reward(reward: jax.Array, factor: float, limit: float) -> jax.Array:
    """Returns rewards multiplied by a factor, then clipped to [-limit, limit]; limit 0 does not clip."""
    reward = reward * factor
    return jnp.clip(reward, -limit, limit) if limit else reward


class Targets(NamedTuple):
    """Targets for MuZero's model at K + 1 positions. Masks: true means trained on."""

    value: jax.Array  # [B, K+1] n-step returns
    value_mask: jax.Array  # [B, K+1] bool
    reward: jax.Array  # [B, K]; reward[:, k-1] is for the step to position k
    reward_mask: jax.Array  # [B, K] bool
    policy_mask: jax.Array  # [B, K+1] bool
    q_estimate: jax.Array  # [B, K+1] returns after taking the stored actions, for the policy gradient


class Experience(NamedTuple):
    """What targets are computed from, for each window."""

    reward: jax.Array  # [B, J] for the step to each position
    value: jax.Array  # [B, J] to bootstrap from
    terminated: jax.Array  # [B, J] bool
    truncated: jax.Array  # [B, J] bool
    # [B, J] bool, true: the position exists and belongs to position 0's episode; a prefix of each row
    valid: jax.Array
    own: jax.Array | None = None  # [B, J] bool, true: the learning player moved; None: at all positions


def of_player(seen: Experience, mover: jax.Array) -> Experience:
    """Returns experience with player 0's rewards and values, for games where a player may move several times in a row.

    seen: rewards of the last mover, values of the next. mover: [B, J] the player to move, 0 or 1.
    """
    sign = _sign(mover, seen.value)
    reward = seen.reward * jnp.concatenate([sign[:, :1], sign[:, :-1]], axis=1)
    return seen._replace(reward=reward, value=seen.value * sign)


def of_movers(targets: Targets, mover: jax.Array) -> Targets:
    """Turns player 0's targets into those of the movers; mover: [B, J] as in `of_player`."""
    sign = _sign(mover[:, : targets.value.shape[1]], targets.value)
    return targets._replace(
        value=targets.value * sign,
        reward=targets.reward * sign[:, : targets.reward.shape[1]],
        q_estimate=targets.q_estimate * sign,
    )


def _sign(mover: jax.Array, like: jax.Array) -> jax.Array:
    return 1 - 2 * mover.astype(like.dtype)


def n_step_targets(
    seen: Experience,
    *,
    discount: float,
    n: int,
    num_positions: int,
    learns_others: bool = False,
) -> Targets:
    """Returns the targets of the first `num_positions` positions of each window.

    With `last` the last valid position and m = min(n, last - k), the return of position k <= last is (MuZero,
    Schrittwieser et al. 2020, section 3)

        G_k = sum over i = 1 .. m of discount^(i-1) reward_{k+i}  +  discount^m value_{k+m},

    with value 0 at a terminated position. A truncated or unfinished episode thus bootstraps from its last value; a
    terminated one does not. Positions after a termination are absorbing: reward 0 and value 0 are targets, the policy
    is not trained. Positions after any other last position are unknown and not trained. The value of a non-terminated
    last position is not trained either: it could only bootstrap from itself.

    If two players alternate, rewards and values are the mover's, and the game is zero-sum: a negative discount makes
    the signs in G_k alternate. For several moves in a row, see `of_player`.

    If others move, too, only own positions train policy and value. A return then has the rewards up to the last own or
    terminated position not after k + m, and bootstraps there; if that is k, its value is not trained.

    Args:
      discount: per step; negative if two players alternate.
      n: number of rewards before the bootstrap value.
      num_positions: K + 1; J must be at least K + 1 + n for full returns.
      learns_others: train all positions of windows that begin at an own one, and no other windows. The number of steps
        then tells the model who moves: the player itself after an even number.
    """
    last = jnp.sum(seen.valid, axis=1, dtype=jnp.int32)[:, None] - 1
    num_ahead: jax.Array | int = n
    if seen.own is not None:
        num_ahead = _num_ahead(seen.own | seen.terminated, last, n, num_positions)
    value = seen.value * ~seen.terminated
    padded = jnp.pad(jnp.where(seen.valid, seen.reward, 0.0), ((0, 0), (0, n)))
    discounts = discount ** jnp.arange(n, dtype=seen.reward.dtype)
    if not isinstance(num_ahead, int):
        discounts = jnp.where(jnp.arange(n) < num_ahead[..., None], discounts, 0.0)
    ahead = jnp.arange(num_positions)[:, None] + 1 + jnp.arange(n)
    summed = jnp.sum(padded[:, ahead] * discounts, axis=-1)
    bootstrap_at = jnp.minimum(jnp.arange(num_positions) + num_ahead, last)
    num_steps = jnp.maximum(bootstrap_at - jnp.arange(num_positions), 0)
    bootstrap = jnp.take_along_axis(value, jnp.maximum(bootstrap_at, 0), axis=1)
    returns = summed + discount ** num_steps.astype(seen.reward.dtype) * bootstrap
    targets = _targets(returns, returns, seen)
    if seen.own is None:
        return targets
    own, valid, terminated = (x[:, :num_positions] for x in (seen.own, seen.valid, seen.terminated))
    learned = own[:, :1] if learns_others else own
    is_free = ~valid | terminated  # worth 0 for either mover, or unknown anyway
    return targets._replace(
        value_mask=targets.value_mask & (is_free | learned & (num_ahead > 0)),
        policy_mask=targets.policy_mask & learned,
    )


def _num_ahead(counts: jax.Array, last: jax.Array, most: int, num_positions: int) -> jax.Array:
    """Returns the steps [B, K+1] int32 from each position to the last counted one at most `most` further on.

    A number below 1 means that there is none after the position. counts: [B, J] bool; last: [B, 1], the last valid
    position.
    """
    positions = jnp.arange(counts.shape[1], dtype=jnp.int32)
    newest = jax.lax.cummax(jnp.where(counts, positions, -1), axis=1)
    starts = positions[:num_positions]
    return jnp.take_along_axis(newest, jnp.clip(starts + most, 0, last), axis=1) - starts


def corrected_targets(seen: Experience, log_ratio: jax.Array, *, discount: float, num_positions: int) -> Targets:
    """Returns the targets of `n_step_targets` with returns corrected by V-trace (IMPALA, Espeholt et al. 2018).

    A return includes rewards up to the end of the window as far as the target policy would have acted alike:

        G_k = value_k + sum over i >= k of discount^(i-k) c_k .. c_i (reward_{i+1} + discount value_{i+1} - value_i)

    with c_i = min(1, exp(log_ratio_i)). If all ratios are 1, it is the return with all rewards to the end.

    The policy gradient multiplies by c_k itself (section 4.2), so the estimate for the action of position k omits it:
    reward_{k+1} + discount G_{k+1}.

    Args:
      seen: its values are the target policy's.
      discount, num_positions: as for `n_step_targets`.
      log_ratio: [B, J] log of target policy / acting policy for the action at each position.
    """
    value, reward = seen.value * ~seen.terminated, seen.reward[:, 1:]
    corrected = vtrace.targets(value, reward, jnp.full_like(reward, discount), log_ratio[:, :-1], seen.valid[:, 1:])
    value, q_estimate = (x[:, :num_positions] for x in (corrected.value, corrected.q_estimate))
    return _targets(value, q_estimate, seen)


def going_on(terminated: jax.Array, valid: jax.Array, *, num_positions: int) -> tuple[jax.Array, jax.Array]:
    """Returns whether the episode continues at each position, and whether that is known, both [B, K+1] bool.

    An ended episode stays ended after a termination. After any other last position nothing is known.

    Args:
      terminated, valid: [B, J], as in `Experience`.
      num_positions: K + 1.
    """
    last = jnp.sum(valid, axis=1, dtype=jnp.int32)[:, None] - 1
    has_end = jnp.take_along_axis(terminated, last, axis=1)
    positions = jnp.arange(num_positions)
    return ~has_end | (positions < last), has_end | (positions <= last)


def turns(
    mover: jax.Array, terminated: jax.Array, valid: jax.Array, *, num_positions: int
) -> tuple[jax.Array, jax.Array]:
    """Returns whether the mover changes in each of K steps, and whether that is known, both [B, K] bool.

    Nobody moves in an ended episode.

    Args:
      mover: [B, J] the player to move, 0 or 1.
      terminated, valid: [B, J], as in `Experience`.
      num_positions: K + 1.
    """
    changes = (mover[:, 1:] != mover[:, :-1])[:, : num_positions - 1]
    return changes, (valid & ~terminated)[:, 1:num_positions]


def _targets(returns: jax.Array, q_estimate: jax.Array, seen: Experience) -> Targets:
    """Builds targets from returns and estimates [B, K+1], which may be arbitrary after the last valid position."""
    num_positions, valid = returns.shape[1], seen.valid
    last = jnp.sum(valid, axis=1, dtype=jnp.int32)[:, None] - 1
    positions = jnp.arange(num_positions)
    absorbing_end = jnp.take_along_axis(seen.terminated, last, axis=1)
    behind = positions > last
    at_last_without_future = (positions == last) & ~absorbing_end
    value_mask = jnp.where(behind, absorbing_end, ~at_last_without_future)
    reached = valid[:, 1:num_positions]
    policy_mask = (valid & ~seen.terminated & ~seen.truncated)[:, :num_positions]
    return Targets(
        value=jnp.where(behind, 0.0, returns),
        value_mask=value_mask,
        reward=jnp.where(reached, seen.reward[:, 1:num_positions], 0.0),
        reward_mask=reached | absorbing_end,
        policy_mask=policy_mask,
        q_estimate=jnp.where(behind, 0.0, q_estimate),
    )


def value_prefixes(reward: jax.Array, horizon: int) -> jax.Array:
    """Returns undiscounted cumulative sums [B, K] of rewards [B, K], restarted every `horizon` steps.

    The targets of EfficientZero's value prefix (Ye et al. 2021, section 4.2).
    """
    batch_size, num_steps = reward.shape
    padded = jnp.pad(reward, ((0, 0), (0, -num_steps % horizon)))
    return jnp.cumsum(padded.reshape(batch_size, -1, horizon), axis=-1).reshape(batch_size, -1)[:, :num_steps]


def at_first(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Returns [B]: x [B, P] at the first true position of the mask [B, P] bool, NaN if there is none."""
    found = jnp.take_along_axis(x, jnp.argmax(mask, axis=1)[:, None], axis=1)[:, 0]
    return jnp.where(jnp.any(mask, axis=1), found, jnp.nan)


def scale_gradient(x: jax.Array, factor: float) -> jax.Array:
    """Returns x, with gradients multiplied by `factor`."""
    return x * factor + jax.lax.stop_gradient(x) * (1.0 - factor)
