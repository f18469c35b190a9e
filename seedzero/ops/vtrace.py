"""V-trace: off-policy corrected value targets and policy advantages (IMPALA, Espeholt et al. 2018).

Shape letters: B batch, T steps.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedzero.ops import gae


class VtraceTargets(NamedTuple):
    """Targets of an actor-critic; without gradients."""

    value: jax.Array  # [B, T] targets v_s (equation 1, with lambda as in remark 2)
    advantage: jax.Array  # [B, T] weights of the policy gradient, including importance weights (section 4.2)
    q_estimate: jax.Array  # [B, T] q_s = r_s + discount v_{s+1} of the action, without the action's own weight


def targets(
    value: jax.Array,
    reward: jax.Array,
    discount: jax.Array,
    log_rho: jax.Array,
    is_step: jax.Array,
    *,
    clip_rho: float = 1.0,
    clip_c: float | jax.Array = 1.0,
    trace_decay: float | jax.Array = 1.0,
) -> VtraceTargets:
    """Returns the targets of T consecutive steps.

    Where an episode is cut off (truncated), its last observation is not a step: it bootstraps the step before it,
    and no trace crosses it.

    Args:
      value: [B, T + 1] of the target policy.
      reward: [B, T] of step t, received on the way to t + 1.
      discount: [B, T] of what follows step t; 0 where t + 1 is terminal, negative where it is another player's turn.
      log_rho: [B, T] log of pi(a | x) / mu(a | x).
      is_step: [B, T] bool; false: no action was taken at t.
      clip_rho: largest importance weight of a temporal difference (rho-bar), and of the policy gradient.
      clip_c: largest importance weight of a trace (c-bar), or that of each step [B, T].
      trace_decay: lambda, or that of each step [B, T].
    """
    rho = jnp.minimum(clip_rho, jnp.exp(log_rho))
    trace = trace_decay * jnp.minimum(clip_c, jnp.exp(log_rho))
    now, following = value[:, :-1], value[:, 1:]
    difference = jnp.where(is_step, rho * (reward + discount * following - now), 0.0)
    decay = jnp.where(is_step, discount * trace, 0.0)
    target = now + gae.decayed_sums(difference, decay)
    # After step t the estimate mixes target and value by lambda, as the targets themselves do.
    share = jnp.asarray(trace_decay)[:, :-1] if jnp.ndim(trace_decay) else trace_decay
    mixed = share * target[:, 1:] + (1.0 - share) * value[:, 1:-1]
    bootstrap = jnp.concatenate([mixed, value[:, -1:]], axis=1)
    q_estimate = reward + discount * bootstrap
    advantage = jnp.where(is_step, rho * (q_estimate - now), 0.0)
    return VtraceTargets(*map(jax.lax.stop_gradient, (target, advantage, q_estimate)))
