"""MuZero's targets and loss (Schrittwieser et al. 2020), with EfficientZero's additions.

Shape letters: B batch, J positions of a window, K unrolled steps, A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from seedzero.agents import base
from seedzero.agents import muzero_model as model
from seedzero.config import muzero as muzero_config
from seedzero.core import types
from seedzero.networks import muzero as networks
from seedzero.networks import projection
from seedzero.ops import augment, binned_actions, returns
from seedzero.replay import rings
from seedzero.replay import windows as windows_lib

HIDDEN_GRADIENT_SCALE = 0.5
"""Gradients into the hidden state are halved at each unrolled step (appendix G)."""


def offsets(config: muzero_config.MuZeroConfig) -> tuple[int, ...]:
    """Returns the positions whose observations a window needs, ascending: first those of the loss."""
    return tuple(sorted({*range(1 + consistency_steps(config)), *_bootstrap_offsets(config)}))


def _bootstrap_offsets(config: muzero_config.MuZeroConfig) -> range:
    """Returns the positions that the target network values."""
    if not config.target_network_updates:
        return range(0)
    return range(1 if config.n_step_decay_age else config.n_step, config.n_step + config.unroll_steps + 1)


def consistency_steps(config: muzero_config.MuZeroConfig) -> int:
    """Returns how many unrolled states are compared with later observations."""
    if not config.consistency_weight:
        return 0
    return config.consistency_steps or config.unroll_steps


def make_targets(
    parts: model.Parts, target_params: base.Params, windows: windows_lib.Windows, num_updates: jax.Array | int = 0
) -> returns.Targets:
    """Returns the targets of the sampled position and of the K after it; num_updates: done so far."""
    config, num_rewards = parts.config.muzero, None
    if config.n_step_decay_age:
        age = _age(windows, num_updates)
        num_rewards = returns.num_rewards_by_age(age, n=config.n_step, decay_age=config.n_step_decay_age)
    value = windows.stored["value"]
    if config.target_network_updates:
        value = _target_network_values(parts, target_params, windows)
    return returns.n_step_targets(
        windows.reward,
        value,
        windows.terminated,
        windows.truncated,
        windows.valid,
        discount=model.signed_discount(parts),
        n=config.n_step,
        num_positions=config.unroll_steps + 1,
        num_rewards=num_rewards,
    )


def mix_search_values(
    parts: model.Parts, windows: windows_lib.Windows, targets: returns.Targets, num_updates: jax.Array
) -> returns.Targets:
    """Returns the targets with the values as stored in old windows, once the model can be relied on.

    EfficientZero V2's mixed value target (Wang et al. 2024, equation 16), which counts a step's age in steps stored
    since; here it is in updates. Priorities stay those of the n-step returns: how far the stored value is from itself
    says nothing.
    """
    config = parts.config.muzero
    if not config.search_value_age:
        return targets
    is_old = (_age(windows, num_updates) >= config.search_value_age) & (num_updates >= config.search_value_start)
    # Terminated positions and positions after the end have no search value and keep their return.
    searched = windows.valid & ~windows.terminated
    num_positions = config.unroll_steps + 1
    value = windows.stored["value"][:, :num_positions]
    is_replaced = is_old[:, None] & searched[:, :num_positions]
    return targets._replace(value=jnp.where(is_replaced, value, targets.value))


def _age(windows: windows_lib.Windows, num_updates: jax.Array | int) -> jax.Array:
    """Returns [B] int32: updates since the network that acted at the sampled position."""
    return num_updates - windows.stored[rings.VERSION][:, 0]


def _target_network_values(parts: model.Parts, target_params: base.Params, windows: windows_lib.Windows) -> jax.Array:
    """Returns values [B, J], right at the positions that returns bootstrap from.

    The window's last observations are those at n, .., n + K, or at its last position where that comes earlier. A
    return bootstraps from position min(k + n, last): that is observation k of them. Positions before n can only be the
    last one, which every observation shows then. Where old steps bootstrap earlier, 1 stands for n.
    """
    offsets = _bootstrap_offsets(parts.config.muzero)
    observation = windows.observation[types.OBSERVATION][:, -len(offsets) :]
    flat = observation.reshape(-1, *observation.shape[2:])
    params = parts.network.cast(target_params)
    _, logits = parts.network.predict(params, parts.network.represent(params, flat))
    values = model.decode(parts, logits).reshape(observation.shape[:2])
    positions = jnp.arange(windows.reward.shape[1])
    return values[:, jnp.clip(positions - offsets.start, 0, len(offsets) - 1)]


def unroll_actions(parts: model.Parts, windows: windows_lib.Windows, key: jax.Array) -> jax.Array:
    """Returns the K actions [B, K] or [B, K, D] to unroll.

    Where no step was taken they are random: any action is absorbed.
    """
    num_steps = parts.config.muzero.unroll_steps
    taken = windows.stored["action"][:, :num_steps]
    if parts.spec.is_continuous:
        random = jax.random.uniform(key, taken.shape, taken.dtype, -1.0, 1.0)
        return jnp.where(windows.valid[:, 1 : num_steps + 1, None], taken, random)
    random = jax.random.randint(key, taken.shape, 0, parts.spec.num_actions, taken.dtype)
    return jnp.where(windows.valid[:, 1 : num_steps + 1], taken, random)


def augment_windows(parts: model.Parts, windows: windows_lib.Windows, key: jax.Array) -> windows_lib.Windows:
    """Returns windows with randomly changed observations, for the loss; targets come from what was really seen."""
    config = parts.config.muzero
    if not config.shift_pixels and not config.intensity_scale:
        return windows
    observation = windows.observation[types.OBSERVATION][:, : 1 + consistency_steps(config)]
    height, width = parts.spec.observation_shape[:2]
    # The frames of a stack lie side by side where they have no channels.
    num_frames = parts.config.network.frame_stack if len(parts.spec.observation_shape) == 2 else 1
    images = observation.reshape(observation.shape[0] * observation.shape[1], height, num_frames, width, -1)
    shift_key, intensity_key = jax.random.split(key)
    if config.shift_pixels:
        images = augment.random_shift(shift_key, images, config.shift_pixels, axes=(1, 3))
    if config.intensity_scale:
        images = augment.random_intensity(intensity_key, images, config.intensity_scale)
    return windows._replace(observation={types.OBSERVATION: images.reshape(observation.shape)})


def loss_and_metrics(
    parts: model.Parts, params: base.Params, windows: windows_lib.Windows, actions: jax.Array, targets: returns.Targets
) -> tuple[jax.Array, base.Metrics]:
    """Returns the mean loss and metrics (equation 1, with the scaling of appendix G)."""
    config = parts.config.muzero
    observation = windows.observation[types.OBSERVATION][:, 0]
    policy_logits, value_logits, reward_logits, hidden = unroll(parts, params, observation, actions)
    policy = _step_mean(_policy_errors(parts, policy_logits, windows), targets.policy_mask, windows.weight)
    value_errors = _cross_entropy(value_logits, model.encode(parts, targets.value))
    value = _step_mean(value_errors, targets.value_mask, windows.weight)
    rewards = targets.reward
    if parts.network.prefix is not None:
        rewards = returns.value_prefixes(rewards, config.value_prefix_horizon)
    reward_errors = _cross_entropy(reward_logits, model.encode(parts, rewards))
    no_reward = jnp.zeros_like(reward_errors[:, :1])
    reward = _step_mean(
        jnp.concatenate([no_reward, reward_errors], axis=1),
        jnp.concatenate([no_reward > 0, targets.reward_mask], axis=1),
        windows.weight,
    )
    loss = config.policy_loss_weight * policy + config.value_loss_weight * value + config.reward_loss_weight * reward
    entropy = _entropy(parts, policy_logits)
    if config.entropy_weight:
        loss -= config.entropy_weight * _step_mean(entropy, targets.policy_mask, windows.weight)
    more: base.Metrics = {}
    if parts.network.projection is not None:
        consistency, more = _consistency(parts, parts.network.projection, params, hidden, windows)
        loss += config.consistency_weight * consistency
    return loss, {
        "loss": loss,
        "loss_policy": policy,
        "loss_value": value,
        "loss_reward": reward,
        "value_mean": jnp.mean(model.decode(parts, value_logits[:, 0])),
        "value_target_mean": jnp.mean(targets.value[:, 0]),
        "policy_entropy": jnp.mean(entropy[:, 0]),
        **more,
    }


def _policy_errors(parts: model.Parts, logits: jax.Array, windows: windows_lib.Windows) -> jax.Array:
    """Returns [B, K+1] for logits [B, K+1, A] or [B, K+1, D * bins]."""
    num_positions, num_bins = logits.shape[1], parts.config.network.action_bins
    policy = windows.stored["policy"][:, :num_positions]
    if not parts.spec.is_continuous:
        return _cross_entropy(logits, policy)
    actions = windows.stored["sampled"][:, :num_positions]
    target = binned_actions.target(actions, policy, num_bins=num_bins)
    return binned_actions.cross_entropy(logits, target, num_bins=num_bins)


def _entropy(parts: model.Parts, logits: jax.Array) -> jax.Array:
    """Returns [B, K+1] for logits [B, K+1, A] or [B, K+1, D * bins], in nats."""
    if parts.spec.is_continuous:
        return binned_actions.entropy(logits, num_bins=parts.config.network.action_bins)
    log_policy = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_policy) * log_policy, axis=-1)


def _consistency(
    parts: model.Parts,
    projector: networks.Projection,
    params: base.Params,
    hidden: jax.Array,
    windows: windows_lib.Windows,
) -> tuple[jax.Array, base.Metrics]:
    """Returns the consistency loss and its metrics (EfficientZero, Ye et al. 2021, equation 3).

    The minus cosine similarity of what is predicted from the k-th unrolled state [B, K+1, ...] and the projection of
    what was seen there, into which no gradient goes. The last observation of an episode counts; nothing behind it.
    "projection_spread" is about 1 where projections of different observations have nothing in common, and 0 where all
    are the same: then nothing is learned.
    """
    num_steps = consistency_steps(parts.config.muzero)
    params = parts.network.cast(params)
    seen = windows.observation[types.OBSERVATION][:, 1 : 1 + num_steps]
    batch_shape = seen.shape[:2]
    fixed = jax.lax.stop_gradient(params)
    target = projector.project(fixed, parts.network.represent(fixed, seen.reshape(-1, *seen.shape[2:])))
    imagined = hidden[:, 1 : 1 + num_steps]
    predicted = projector.predict(params, projector.project(params, imagined.reshape(-1, *imagined.shape[2:])))
    similarity = projection.cosine_similarity(predicted, target).reshape(batch_shape)
    reached = windows.valid[:, 1 : 1 + num_steps]
    summed = jnp.sum(jnp.where(reached, -similarity, 0.0), axis=1)
    loss = jnp.mean(windows.weight * summed) / parts.config.muzero.unroll_steps
    center = jnp.mean(projection.normalize(target), axis=0)
    return loss, {"loss_consistency": loss, "projection_spread": 1.0 - jnp.sum(jnp.square(center))}


def unroll(
    parts: model.Parts, params: base.Params, observation: jax.Array, actions: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Returns logits: policy [B, K+1, A], value [B, K+1, bins], reward [B, K, bins]; and hidden states [B, K+1, ...].

    The gradient into the state is halved at the start of each unrolled step (appendix G), so that what reaches the
    dynamics does not grow with K. Where sums of rewards are predicted, the logits are of those.
    """
    network = parts.network
    params = network.cast(params)
    hidden = network.represent(params, observation)
    hiddens, rewards = [hidden], []
    for k in range(actions.shape[1]):
        hidden = returns.scale_gradient(hidden, HIDDEN_GRADIENT_SCALE)
        if network.prefix is None:
            hidden, reward_logits = network.dynamics(params, hidden, actions[:, k])
        else:
            if k % parts.config.muzero.value_prefix_horizon == 0:
                carry = network.prefix.initial(len(actions))
            hidden, carry, reward_logits = network.prefix.step(params, hidden, actions[:, k], carry)
        hiddens.append(hidden)
        rewards.append(reward_logits)
    stacked = jnp.stack(hiddens, axis=1)
    batch_shape = stacked.shape[:2]
    policy_logits, value_logits = network.predict(params, stacked.reshape(-1, *hidden.shape[1:]))
    return (
        policy_logits.reshape(*batch_shape, -1),
        value_logits.reshape(*batch_shape, -1),
        jnp.stack(rewards, axis=1),
        stacked,
    )


def _cross_entropy(logits: jax.Array, target_probs: jax.Array) -> jax.Array:
    """Returns [...] for logits and probabilities [..., N]."""
    return -jnp.sum(target_probs * jax.nn.log_softmax(logits), axis=-1)


def _step_mean(errors: jax.Array, mask: jax.Array, weight: jax.Array) -> jax.Array:
    """Returns the mean over B of errors [B, K+1] summed over steps: the first whole, each unrolled one by 1 / K."""
    num_unrolled = errors.shape[1] - 1
    steps = jnp.where(mask, errors, 0.0)
    return jnp.mean(weight * (steps[:, 0] + jnp.sum(steps[:, 1:], axis=1) / num_unrolled))
