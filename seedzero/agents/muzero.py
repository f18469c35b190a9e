"""MuZero (Schrittwieser et al. 2020), with Gumbel or PUCT search.

Shape letters: B batch, J positions of a window, K unrolled steps, A actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from seedzero import search
from seedzero.agents import base
from seedzero.core import config as configuration
from seedzero.core import errors, types
from seedzero.networks import muzero as networks
from seedzero.ops import returns, value_transforms
from seedzero.replay import rings

HIDDEN_GRADIENT_SCALE = 0.5
"""Gradients into the hidden state are halved at each unrolled step (appendix G)."""


class Parts(NamedTuple):
    """What the functions of this agent share."""

    config: configuration.Config
    spec: types.EnvSpec
    network: networks.Network
    optimizer: optax.GradientTransformation
    schedule: Callable[[jax.Array], jax.Array]


def make(config: configuration.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
    """Returns the agent.

    Args:
      config: sections search, network, muzero and optimizer are used.
      spec: what one environment looks like.
      platform: "cpu", "gpu" or "tpu".

    Raises:
      ConfigError: a configuration that cannot work with this environment.
    """
    _check_players(config, spec)
    network = networks.make(config.network, spec, platform)
    parts = Parts(config, spec, network, make_optimizer(config.optimizer), make_schedule(config.optimizer))
    n, num_steps = config.muzero.n_step, config.muzero.unroll_steps
    bootstrap_offsets = tuple(range(n, n + num_steps + 1)) if config.muzero.target_network_updates else ()
    return base.Agent(
        extras={
            "action": ((), np.dtype(np.int32)),
            "policy": ((spec.num_actions,), np.dtype(np.float32)),
            "value": ((), np.dtype(np.float32)),
        },
        future=n + num_steps,
        offsets=(0, *bootstrap_offsets),
        stack=config.network.frame_stack,
        prioritization=rings.prioritization(config.replay),
        init=lambda key: _init(parts, key),
        initial_memory=lambda num_slots: _initial_memory(parts, num_slots),
        act=lambda params, memory, inputs, key: _act(parts, params, memory, inputs, key),
        update=lambda state, windows, key, axis_name: _update(parts, state, windows, key, axis_name),
    )


def _check_players(config: configuration.Config, spec: types.EnvSpec) -> None:
    if spec.num_players not in (1, 2):
        raise errors.ConfigError(f"agent muzero plays games of 1 or 2 players; this one has {spec.num_players}")
    stack = config.network.frame_stack
    if spec.num_players == 2 and stack > 1:
        raise errors.ConfigError(
            f"network.frame_stack={stack} in a game of two players: the frames are both players' in training, but "
            "one's against an opponent; give --network.frame_stack=1"
        )


# State ------------------------------------------------------------------------------------------------------------


def _init(parts: Parts, key: jax.Array) -> base.TrainState:
    params = parts.network.init(key)
    has_target = parts.config.muzero.target_network_updates > 0
    return base.TrainState(
        params=params,
        # A copy: donated buffers must not appear twice in one state.
        target_params=jax.tree.map(jnp.copy, params) if has_target else (),
        opt_state=parts.optimizer.init(params),
        num_updates=jnp.zeros((), jnp.int32),
        num_rejected=jnp.zeros((), jnp.int32),
    )


def _initial_memory(parts: Parts, num_slots: int) -> base.Memory:
    """Returns the frames before the newest one, [S, *shape with stack - 1 frames on the last axis]."""
    num_past = parts.config.network.frame_stack - 1
    if num_past == 0:
        return ()
    shape = networks.stack_shape(parts.spec.observation_shape, num_past)
    return jnp.zeros((num_slots, *shape), parts.spec.observation_dtype)


# Acting -----------------------------------------------------------------------------------------------------------


def _act(
    parts: Parts, params: base.Params, memory: base.Memory, inputs: base.ActInputs, key: jax.Array
) -> tuple[base.Memory, base.ActOutputs]:
    memory, observation = push_frame(parts, memory, inputs.observation, inputs.first)
    params = parts.network.cast(params)
    found = search.search(
        params,
        key,
        _root(parts, params, observation),
        _recurrent_fn(parts),
        config=parts.config.search,
        invalid_actions=~inputs.action_mask if parts.spec.has_action_mask else None,
        explore=inputs.explore,
    )
    extras = {"action": found.action, "policy": found.action_weights, "value": found.root_value}
    return memory, base.ActOutputs(found.action, extras)


def push_frame(parts: Parts, memory: base.Memory, frame: jax.Array, first: jax.Array) -> tuple[base.Memory, jax.Array]:
    """Returns the new memory and the stacked observation; a first frame stands for the past it does not have."""
    frame = frame.reshape(frame.shape[0], *networks.stack_shape(parts.spec.observation_shape, 1))
    num_past = parts.config.network.frame_stack - 1
    if num_past == 0:
        return (), frame
    is_first = first.reshape(-1, *[1] * (frame.ndim - 1))
    past = jnp.where(is_first, jnp.concatenate([frame] * num_past, axis=-1), memory)
    stacked = jnp.concatenate([past, frame], axis=-1)
    return stacked[..., frame.shape[-1] :], stacked


def _root(parts: Parts, params: base.Params, observation: jax.Array) -> search.Root:
    hidden = parts.network.represent(params, observation)
    policy_logits, value_logits = parts.network.predict(params, hidden)
    return search.Root(policy_logits, _decode(parts, value_logits), hidden)


def _recurrent_fn(parts: Parts) -> search.RecurrentFn:
    def step(params: base.Params, action: jax.Array, hidden: jax.Array) -> tuple[search.Prediction, jax.Array]:
        hidden, reward_logits = parts.network.dynamics(params, hidden, action)
        policy_logits, value_logits = parts.network.predict(params, hidden)
        reward, value = _decode(parts, reward_logits), _decode(parts, value_logits)
        discount = jnp.full_like(reward, signed_discount(parts))
        return search.Prediction(reward, discount, policy_logits, value), hidden

    return step


def signed_discount(parts: Parts) -> float:
    """Returns what a value is multiplied by one step earlier: between two players also by -1.

    A value is that of the player to move; what the other one gains, this one loses.
    """
    discount = parts.config.muzero.discount
    return discount if parts.spec.num_players == 1 else -discount


def _decode(parts: Parts, logits: jax.Array) -> jax.Array:
    return value_transforms.expectation(logits, parts.config.network.support_limit)


# Learning ---------------------------------------------------------------------------------------------------------


def _update(
    parts: Parts, state: base.TrainState, windows: rings.Windows, key: jax.Array, axis_name: str | None
) -> tuple[base.TrainState, jax.Array, base.Metrics]:
    targets = make_targets(parts, state.target_params, windows)
    actions = unroll_actions(parts, windows, key)
    # Gradients with respect to what differs between devices stay local; those of shared parameters JAX would sum.
    params = state.params if axis_name is None else jax.lax.pcast(state.params, axis_name, to="varying")
    gradient_fn = jax.value_and_grad(lambda p: loss_and_metrics(parts, p, windows, actions, targets), has_aux=True)
    (_, metrics), gradients = gradient_fn(params)
    if axis_name is not None:
        gradients, metrics = jax.lax.pmean((gradients, metrics), axis_name)
    state, metrics = _apply_gradients(parts, state, gradients, metrics)
    # MuZero (appendix G): how far the search's value was from the n-step return.
    priority = jnp.abs(windows.extras["value"][:, 0] - targets.value[:, 0])
    return state, priority, metrics


def make_targets(parts: Parts, target_params: base.Params, windows: rings.Windows) -> returns.Targets:
    """Returns the targets of the sampled position and of the K after it."""
    value = windows.extras["value"]
    if parts.config.muzero.target_network_updates:
        value = _target_network_values(parts, target_params, windows)
    return returns.n_step_targets(
        windows.reward,
        value,
        windows.terminated,
        windows.truncated,
        windows.valid,
        discount=signed_discount(parts),
        n=parts.config.muzero.n_step,
        num_positions=parts.config.muzero.unroll_steps + 1,
    )


def _target_network_values(parts: Parts, target_params: base.Params, windows: rings.Windows) -> jax.Array:
    """Returns values [B, J], right at the positions that returns bootstrap from.

    The window holds the observations at n, .., n + K, or at its last position where that comes earlier. A return
    bootstraps from position min(k + n, last): that is observation k. Positions before n can only be the last one,
    which every observation shows then.
    """
    n, num_steps = parts.config.muzero.n_step, parts.config.muzero.unroll_steps
    observation = windows.observation[:, 1:]
    flat = observation.reshape(-1, *observation.shape[2:])
    params = parts.network.cast(target_params)
    _, logits = parts.network.predict(params, parts.network.represent(params, flat))
    values = _decode(parts, logits).reshape(observation.shape[:2])
    positions = jnp.arange(windows.reward.shape[1])
    return values[:, jnp.clip(positions - n, 0, num_steps)]


def unroll_actions(parts: Parts, windows: rings.Windows, key: jax.Array) -> jax.Array:
    """Returns the K actions [B, K] to unroll; where no step was taken they are random: any action is absorbed."""
    num_steps = parts.config.muzero.unroll_steps
    taken = windows.extras["action"][:, :num_steps]
    random = jax.random.randint(key, taken.shape, 0, parts.spec.num_actions, taken.dtype)
    return jnp.where(windows.valid[:, 1 : num_steps + 1], taken, random)


def loss_and_metrics(
    parts: Parts, params: base.Params, windows: rings.Windows, actions: jax.Array, targets: returns.Targets
) -> tuple[jax.Array, base.Metrics]:
    """Returns the mean loss and metrics (equation 1, with the scaling of appendix G)."""
    config = parts.config.muzero
    policy_logits, value_logits, reward_logits = unroll(parts, params, windows.observation[:, 0], actions)
    policy_targets = windows.extras["policy"][:, : config.unroll_steps + 1]
    policy = _step_mean(_cross_entropy(policy_logits, policy_targets), targets.policy_mask, windows.weight)
    value = _step_mean(_cross_entropy(value_logits, _encode(parts, targets.value)), targets.value_mask, windows.weight)
    reward_errors = _cross_entropy(reward_logits, _encode(parts, targets.reward))
    no_reward = jnp.zeros_like(reward_errors[:, :1])
    reward = _step_mean(
        jnp.concatenate([no_reward, reward_errors], axis=1),
        jnp.concatenate([no_reward > 0, targets.reward_mask], axis=1),
        windows.weight,
    )
    loss = config.policy_loss_weight * policy + config.value_loss_weight * value + config.reward_loss_weight * reward
    root_log_policy = jax.nn.log_softmax(policy_logits[:, 0])
    return loss, {
        "loss": loss,
        "loss_policy": policy,
        "loss_value": value,
        "loss_reward": reward,
        "value_mean": jnp.mean(_decode(parts, value_logits[:, 0])),
        "value_target_mean": jnp.mean(targets.value[:, 0]),
        "policy_entropy": -jnp.mean(jnp.sum(jnp.exp(root_log_policy) * root_log_policy, axis=-1)),
    }


def unroll(
    parts: Parts, params: base.Params, observation: jax.Array, actions: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns logits of the policy [B, K+1, A], the value [B, K+1, bins] and the reward [B, K, bins].

    The gradient into the state is halved at the start of each unrolled step (appendix G), so that what reaches the
    dynamics does not grow with K.
    """
    network = parts.network
    params = network.cast(params)
    hidden = network.represent(params, observation)
    hiddens, rewards = [hidden], []
    for k in range(actions.shape[1]):
        hidden = returns.scale_gradient(hidden, HIDDEN_GRADIENT_SCALE)
        hidden, reward_logits = network.dynamics(params, hidden, actions[:, k])
        hiddens.append(hidden)
        rewards.append(reward_logits)
    stacked = jnp.stack(hiddens, axis=1)
    batch_shape = stacked.shape[:2]
    policy_logits, value_logits = network.predict(params, stacked.reshape(-1, *hidden.shape[1:]))
    return (
        policy_logits.reshape(*batch_shape, -1),
        value_logits.reshape(*batch_shape, -1),
        jnp.stack(rewards, axis=1),
    )


def _encode(parts: Parts, x: jax.Array) -> jax.Array:
    return value_transforms.two_hot(x, parts.config.network.num_bins, parts.config.network.support_limit)


def _cross_entropy(logits: jax.Array, target_probs: jax.Array) -> jax.Array:
    """Returns [...] for logits and probabilities [..., N]."""
    return -jnp.sum(target_probs * jax.nn.log_softmax(logits), axis=-1)


def _step_mean(errors: jax.Array, mask: jax.Array, weight: jax.Array) -> jax.Array:
    """Returns the mean over B of errors [B, K+1] summed over steps: the first whole, each unrolled one by 1 / K."""
    num_unrolled = errors.shape[1] - 1
    steps = jnp.where(mask, errors, 0.0)
    return jnp.mean(weight * (steps[:, 0] + jnp.sum(steps[:, 1:], axis=1) / num_unrolled))


# Optimizing -------------------------------------------------------------------------------------------------------


def make_optimizer(config: configuration.OptimizerConfig) -> optax.GradientTransformation:
    """Returns AdamW without its learning rate: clipping, Adam's direction, decay of all kernels."""
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    decay = optax.add_decayed_weights(config.weight_decay, mask=_is_kernel)
    return optax.chain(clip, optax.scale_by_adam(), decay)


def _is_kernel(params: base.Params) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def make_schedule(config: configuration.OptimizerConfig) -> Callable[[jax.Array], jax.Array]:
    """Returns the function from the number of updates done to the learning rate, both scalars."""
    peak, decay_updates = config.learning_rate, config.decay_updates
    after: dict[str, Any] = {
        "constant": optax.constant_schedule(peak),
        "cosine": optax.cosine_decay_schedule(peak, decay_updates, alpha=config.decay_rate),
        "exponential": optax.exponential_decay(peak, decay_updates, config.decay_rate),
    }

    def schedule(num_updates: jax.Array) -> jax.Array:
        warm = jnp.minimum((num_updates + 1) / max(1, config.warmup_updates), 1.0)
        return jnp.asarray(warm * after[config.schedule](jnp.maximum(num_updates - config.warmup_updates, 0)))

    return schedule


def _apply_gradients(
    parts: Parts, state: base.TrainState, gradients: base.Params, metrics: base.Metrics
) -> tuple[base.TrainState, base.Metrics]:
    """Returns the state after one optimizer step; parameters and optimizer stay where a number is not finite."""
    grad_norm = optax.tree.norm(gradients)
    learning_rate = parts.schedule(state.num_updates)
    directions, opt_state = parts.optimizer.update(gradients, state.opt_state, state.params)
    params = jax.tree.map(lambda p, d: p - learning_rate * d, state.params, directions)
    accepted = jnp.isfinite(metrics["loss"]) & jnp.isfinite(grad_norm)
    params, opt_state = jax.tree.map(
        lambda new, old: jnp.where(accepted, new, old), (params, opt_state), (state.params, state.opt_state)
    )
    num_updates = state.num_updates + 1
    new_state = base.TrainState(
        params=params,
        target_params=_next_target(parts, state.target_params, params, num_updates),
        opt_state=opt_state,
        num_updates=num_updates,
        num_rejected=jnp.where(accepted, 0, state.num_rejected + 1),
    )
    more = {"grad_norm": grad_norm, "learning_rate": learning_rate, "num_rejected": new_state.num_rejected}
    return new_state, {name: jnp.asarray(x, jnp.float32) for name, x in (metrics | more).items()}


def _next_target(parts: Parts, target_params: base.Params, params: base.Params, num_updates: jax.Array) -> base.Params:
    every = parts.config.muzero.target_network_updates
    if not every:
        return target_params
    due = num_updates % every == 0
    return jax.tree.map(lambda new, old: jnp.where(due, new, old), params, target_params)
