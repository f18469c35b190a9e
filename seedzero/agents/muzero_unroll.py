"""Unrolls MuZero's model along the actions of a window (Schrittwieser et al. 2020, appendix G).

Shape letters: B batch, K unrolled steps, A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from seedzero.agents import base, muzero_chance, muzero_model
from seedzero.ops import binned_actions, nstep

HIDDEN_GRADIENT_SCALE = 0.5
"""Gradients into the hidden state are halved at each unrolled step (appendix G)."""


def unroll(
    parts: muzero_model.Parts,
    params: base.Params,
    hidden: jax.Array,
    actions: jax.Array,
    taken: jax.Array,
    key: jax.Array,
    outcomes: muzero_chance.Outcomes | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Returns logits: policy [B, K+1, A], value [B, K+1, bins], reward [B, K, bins]; hidden states [B, K+1, ...].

    The afterstates [B, K, ...] come last; they are empty without chance.

    The gradient into the state is halved at the start of each unrolled step (appendix G), so that what reaches the
    dynamics does not grow with K. If the model predicts sums of rewards, the logits are those of the sums.

    Args:
      hidden: [B, ...] at the first position.
      actions: [B, K] or [B, K, D] as stored.
      taken: [B, K] bool, true: the action was taken; elsewhere the episode was over, and an action is drawn from the
        policy at the unrolled state.
      key: draws these actions.
      outcomes: what chance decided in each step; None if the model has no chance.
    """
    network, params = parts.network, parts.network.cast(params)
    fixed = jax.lax.stop_gradient(params)
    hiddens, rewards, afterstates = [hidden], [], []
    noise = _noise(parts, key, actions)
    for k in range(actions.shape[1]):
        policy_logits, _ = network.predict(fixed, jax.lax.stop_gradient(hidden))
        action = _absorbed(parts, policy_logits, noise[k])
        action = jnp.where(taken[:, k].reshape(-1, *[1] * (action.ndim - 1)), actions[:, k], action)
        hidden = nstep.scale_gradient(hidden, HIDDEN_GRADIENT_SCALE)
        if outcomes is not None:
            stepped = muzero_chance.step(parts, params, hidden, action, outcomes, taken[:, k], k)
            hidden, reward_logits, afterstate = stepped
            afterstates.append(afterstate)
        elif network.prefix is None:
            hidden, reward_logits = network.dynamics(params, hidden, action)
        else:
            if k % muzero_model.PREFIX_HORIZON == 0:
                carry = network.prefix.initial(len(actions))
            hidden, carry, reward_logits = network.prefix.step(params, hidden, action, carry)
        hiddens.append(hidden)
        rewards.append(reward_logits)
    # All states at once: a fraction of the operations of one state after the other.
    states = jnp.stack(hiddens, axis=1)
    predictions = network.predict(params, states.reshape(-1, *states.shape[2:]))
    policy_logits, value_logits = (logits.reshape(*states.shape[:2], -1) for logits in predictions)
    behind = jnp.stack(afterstates, axis=1) if afterstates else states[:, :0]
    return policy_logits, value_logits, jnp.stack(rewards, axis=1), states, behind


def _noise(parts: muzero_model.Parts, key: jax.Array, actions: jax.Array) -> jax.Array:
    """Returns the random numbers of `_absorbed` for each of K steps, for actions [B, K] or [B, K, D]."""
    num_rows, num_steps = actions.shape[:2]
    if not parts.spec.is_continuous:
        return jax.random.gumbel(key, (num_steps, num_rows, parts.spec.num_actions))
    return jax.random.uniform(key, (num_steps, num_rows, 1, len(parts.spec.action_low)))


def _absorbed(parts: muzero_model.Parts, policy_logits: jax.Array, noise: jax.Array) -> jax.Array:
    """Returns actions [B] or [B, D] to unroll behind an end, drawn from policies [B, A] or [B, D * bins].

    MuZero draws them evenly (appendix G). But if a state and action may or may not end the episode, the model's next
    state stands for both, and an action that only occurs behind the end would seem to cause it: actions that the
    policy never takes would be worth 0. Drawn from the policy, they say nothing about the end.

    noise: Gumbel noise [B, A], or uniform noise [B, 1, D].
    """
    if not parts.spec.is_continuous:
        return jnp.argmax(policy_logits + noise, axis=-1).astype(jnp.int32)
    num_bins = parts.config.network.action_bins
    return binned_actions.sample(policy_logits, noise, num_bins=num_bins, uniform_share=0.0).actions[:, 0]
