"""PPO (Schulman et al. 2017): an actor-critic that learns several times from each batch of its newest steps.

Every step is in one update, which goes over all of its steps several times in minibatches; clipping keeps the policy
near the one that acted. A row's action answers its observation; the action on an episode's last observation is none,
and the next row begins another episode. Details are those of Huang et al. 2022, "The 37 implementation details of
proximal policy optimization".

Shape letters: B batch, L steps of an unroll, N = B * L steps of an update, M of a minibatch, A actions, D numbers of
a continuous action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from seedzero.agents import base, learning, sampled
from seedzero.config import config as config_lib
from seedzero.config import ppo as ppo_config
from seedzero.core import types
from seedzero.networks import observations
from seedzero.networks import ppo as ppo_network
from seedzero.ops import gae, gaussians, statistics
from seedzero.replay import data
from seedzero.replay import windows as windows_lib

_ILLEGAL = -1e9
_LARGEST_REWARD = 10.0
"""Of rewards that are divided by the deviation of returns (Huang et al. 2022, detail 7 for continuous actions)."""


class Acting(NamedTuple):
    """What acts: parameters, and the moments of observations; None: nothing is normalized."""

    params: base.Params
    moments: Any


class TrainState(NamedTuple):
    """What learns.

    Attributes:
      params: newest parameters.
      opt_state: of the optimizer.
      num_updates: scalar int32, updates done, refused ones included.
      num_rejected: scalar int32, refused updates in a row: a loss or gradient was not finite.
      moments: of observations' features, as in `Acting`.
      returns: moments of discounted returns; an empty tuple where rewards are not normalized.
    """

    params: base.Params
    opt_state: Any
    num_updates: jax.Array
    num_rejected: jax.Array
    moments: Any
    returns: Any


class _Steps(NamedTuple):
    """N steps of an update.

    Attributes:
      observation: {name: [N, *shape]}.
      action: [N] int32, or [N, D] before bounds.
      log_prob: [N] of the action when it was chosen.
      value: [N] when it was chosen.
      legal: [N, A] bool; None where the spec has no mask.
      advantage: [N].
      target: [N] of the value.
      counted: [N], 1: a step; 0: an episode's last observation, or padding.
    """

    observation: Mapping[str, jax.Array]
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    legal: jax.Array | None
    advantage: jax.Array
    target: jax.Array
    counted: jax.Array


class _Parts(NamedTuple):
    config: ppo_config.PPOConfig
    spec: types.EnvSpec
    network: ppo_network.Network
    optimizer: optax.GradientTransformation


def make(config: config_lib.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
    """Returns the agent; of the configuration it reads the section ppo.

    Raises:
      ConfigError: a torso that does not fit the observations.
    """
    settings = config.ppo
    network = ppo_network.make(
        spec,
        platform,
        torso=settings.torso,
        width=settings.width,
        frame_stack=settings.frame_stack,
        initial_std=settings.initial_std,
        normalizes=settings.normalize_observations,
        compute_dtype=settings.compute_dtype,
    )
    parts = _Parts(settings, spec, network, _optimizer(settings))
    return base.Agent(
        data=data.Queue(settings.unroll_length, settings.batch_size, settings.max_lag, settings.wait_seconds),
        stack=settings.frame_stack,
        stored=_stored(settings, spec),
        init=lambda key: _init(parts, key),
        acting=lambda state: Acting(state.params, state.moments),
        initial_memory=lambda num_slots: jnp.zeros(num_slots) if settings.normalize_rewards else (),
        act=lambda params, memory, inputs, key: _act(parts, params, memory, inputs, key),
        update=lambda state, windows, key, axis_name: _update(parts, state, windows, key, axis_name),
    )


def _stored(config: ppo_config.PPOConfig, spec: types.EnvSpec) -> dict[str, data.Stored]:
    number = np.dtype(np.float32)
    action = data.Stored(spec.action_shape, number if spec.is_continuous else np.dtype(np.int32))
    stored = {"action": action, "log_prob": data.Stored((), number), "value": data.Stored((), number)}
    if spec.has_action_mask:
        stored["legal"] = data.Stored((spec.num_actions,), np.dtype(bool))
    if config.normalize_rewards:
        stored["return"] = data.Stored((), number)
    return stored


def _optimizer(config: ppo_config.PPOConfig) -> optax.GradientTransformation:
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    return optax.chain(clip, optax.scale_by_adam(eps=config.adam_epsilon))


def _init(parts: _Parts, key: jax.Array) -> TrainState:
    params = parts.network.init(key)
    return TrainState(
        params=params,
        opt_state=parts.optimizer.init(params),
        num_updates=jnp.zeros((), jnp.int32),
        num_rejected=jnp.zeros((), jnp.int32),
        moments=parts.network.no_moments,
        returns=statistics.no_moments(1) if parts.config.normalize_rewards else (),
    )


# Acting ------------------------------------------------------------------------------------------------------------


def _act(parts: _Parts, params: Acting, memory: Any, inputs: base.Inputs, key: jax.Array) -> tuple[Any, base.Outputs]:
    predicted = parts.network.predict(params.params, params.moments, inputs.observation)
    legal = inputs.action_mask if parts.spec.has_action_mask else None
    choose = _choose_vector if parts.spec.is_continuous else _choose_number
    action = choose(predicted, legal, inputs.explore, key)
    log_prob, _ = _log_prob_and_entropy(parts, predicted, action, legal)
    stored = {"action": action, "log_prob": log_prob, "value": predicted.value}
    if legal is not None:
        stored["legal"] = legal
    if parts.config.normalize_rewards:
        memory = parts.config.discount * jnp.where(inputs.first, 0.0, memory) + _scaled(parts.config, inputs.reward)
        stored["return"] = memory
    if parts.spec.is_continuous:
        action = sampled.to_environment(jnp.tanh(action) if parts.config.squash else action, parts.spec)
    return memory, base.Outputs(action, stored)


def _choose_number(
    predicted: ppo_network.Prediction, legal: jax.Array | None, explore: jax.Array, key: jax.Array
) -> jax.Array:
    logits = _masked(predicted.policy, legal)
    action = jnp.where(explore, jax.random.categorical(key, logits), jnp.argmax(logits, axis=-1))
    return action.astype(jnp.int32)


def _choose_vector(
    predicted: ppo_network.Prediction, _: jax.Array | None, explore: jax.Array, key: jax.Array
) -> jax.Array:
    noise = jnp.exp(predicted.log_std) * jax.random.normal(key, predicted.policy.shape)
    return predicted.policy + jnp.where(explore[:, None], noise, 0.0)


def _masked(logits: jax.Array, legal: jax.Array | None) -> jax.Array:
    return logits if legal is None else jnp.where(legal, logits, _ILLEGAL)


def _log_prob_and_entropy(
    parts: _Parts, predicted: ppo_network.Prediction, action: jax.Array, legal: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Returns the log probability [N] of actions, and the policy's entropy [N].

    Those of vectors are before the bounds: what clips or squashes them is the same for the policies that are compared.
    """
    if parts.spec.is_continuous:
        entropy = gaussians.entropy(predicted.log_std)
        return gaussians.log_density(action, predicted.policy, predicted.log_std), jnp.broadcast_to(
            entropy, action.shape[:1]
        )
    log_pi = jax.nn.log_softmax(_masked(predicted.policy, legal))
    chosen = jnp.take_along_axis(log_pi, action[:, None], axis=-1)[:, 0]
    return chosen, -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)


def _scaled(config: ppo_config.PPOConfig, reward: jax.Array) -> jax.Array:
    reward = reward * config.reward_scale
    return jnp.clip(reward, -config.clip_reward, config.clip_reward) if config.clip_reward else reward


# Learning ----------------------------------------------------------------------------------------------------------


def _update(
    parts: _Parts, state: TrainState, windows: windows_lib.Windows, key: jax.Array, axis_name: str | None
) -> tuple[TrainState, None, base.Metrics]:
    windows = learning.clear_padding(windows)
    moments, returns = _count(parts, state, windows, axis_name)
    batch = _steps(parts, returns, windows)
    rate, clip_ratio = _rates(parts.config, state.num_updates)

    def learn(carry: tuple[base.Params, Any], rows: jax.Array) -> tuple[tuple[base.Params, Any], base.Metrics]:
        params, opt_state = carry
        minibatch = _normalized(parts.config, jax.tree.map(lambda x: x[rows], batch), axis_name)
        num_steps = _sum(minibatch.counted, axis_name)

        def loss(params: base.Params) -> tuple[jax.Array, tuple[base.Metrics, None]]:
            value, metrics = _loss_and_metrics(parts, params, state.moments, minibatch, num_steps, clip_ratio)
            return value, (metrics, None)

        gradients, metrics, _ = learning.gradients(loss, params, axis_name)
        directions, new_opt_state = parts.optimizer.update(gradients, opt_state, params)
        new_params = jax.tree.map(lambda p, d: p - rate * d, params, directions)
        carry = _where(num_steps > 0, (new_params, new_opt_state), (params, opt_state))
        return carry, {**metrics, "grad_norm": optax.tree.norm(gradients)}

    rows = _minibatches(key, len(batch.counted), parts.config)
    (params, opt_state), metrics = jax.lax.scan(learn, (state.params, state.opt_state), rows)
    is_finite = jnp.all(jnp.isfinite(metrics["loss"]) & jnp.isfinite(metrics["grad_norm"]))
    params, opt_state = _where(is_finite, (params, opt_state), (state.params, state.opt_state))
    num_rejected = jnp.where(is_finite, 0, state.num_rejected + 1)
    metrics = {name: jnp.mean(x) for name, x in metrics.items()}
    metrics |= {"learning_rate": rate, "num_rejected": num_rejected}
    new_state = TrainState(params, opt_state, state.num_updates + 1, num_rejected, moments, returns)
    return new_state, None, {name: jnp.asarray(x, jnp.float32) for name, x in metrics.items()}


def _steps(parts: _Parts, returns: Any, windows: windows_lib.Windows) -> _Steps:
    """Returns the steps of the windows, with advantages and targets from the values that were found when acting.

    returns: moments of discounted returns, these windows included: else the first reward ever seen would be divided
      by a deviation of 0.
    """
    config, stored = parts.config, windows.stored
    reward = _scaled(config, windows.reward[:, 1:])
    if config.normalize_rewards:
        reward = reward * jax.lax.rsqrt(returns.variance[0] + 1e-8)
        reward = jnp.clip(reward, -_LARGEST_REWARD, _LARGEST_REWARD)
    is_step = ~(windows.terminated | windows.truncated)[:, :-1]
    value, discount = stored["value"], config.discount * ~windows.terminated[:, 1:]
    advantage = gae.advantages(value, reward, discount, is_step, trace_decay=config.trace_decay)

    def flat(x: jax.Array) -> jax.Array:
        return x.reshape(-1, *x.shape[2:])

    return _Steps(
        observation=observations.flat(windows_lib.observed(windows, slice(-1))),
        action=flat(stored["action"][:, :-1]),
        log_prob=flat(stored["log_prob"][:, :-1]),
        value=flat(value[:, :-1]),
        legal=flat(stored["legal"][:, :-1]) if parts.spec.has_action_mask else None,
        advantage=flat(advantage),
        target=flat(advantage + value[:, :-1]),
        counted=flat((is_step & (windows.weight[:, None] > 0)).astype(jnp.float32)),
    )


def _rates(config: ppo_config.PPOConfig, num_updates: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the learning rate and the ratio's clip of an update."""
    share = jnp.ones(())
    if config.decay_updates:
        share = jnp.maximum(0.0, 1.0 - num_updates / config.decay_updates)
    return config.learning_rate * share, config.clip_ratio * (share if config.decay_clip else jnp.ones(()))


def _minibatches(key: jax.Array, num_steps: int, config: ppo_config.PPOConfig) -> jax.Array:
    """Returns [epochs * minibatches, M] int32: the steps of each minibatch, every epoch in an order of its own."""
    size = max(1, num_steps // config.num_minibatches)
    count = min(config.num_minibatches, num_steps)
    orders = jax.vmap(lambda key: jax.random.permutation(key, num_steps))(jax.random.split(key, config.num_epochs))
    return orders[:, : count * size].reshape(config.num_epochs * count, size)


def _normalized(config: ppo_config.PPOConfig, batch: _Steps, axis_name: str | None) -> _Steps:
    """Returns a minibatch whose advantages have, over all devices, mean 0 and variance 1, if configured."""
    if not config.normalize_advantages:
        return batch
    num_steps = jnp.maximum(_sum(batch.counted, axis_name), 1.0)
    mean = _sum(batch.counted * batch.advantage, axis_name) / num_steps
    variance = _sum(batch.counted * jnp.square(batch.advantage - mean), axis_name) / num_steps
    return batch._replace(advantage=(batch.advantage - mean) / (jnp.sqrt(variance) + 1e-8))


def _loss_and_metrics(
    parts: _Parts,
    params: base.Params,
    moments: Any,
    batch: _Steps,
    num_steps: jax.Array,
    clip_ratio: jax.Array,
) -> tuple[jax.Array, base.Metrics]:
    """Returns the loss and metrics of a minibatch, with the weights that make their mean over devices one over steps.

    Schulman et al. 2017, equations 7 and 9. num_steps: mean over the devices of their numbers of steps.
    """
    config = parts.config
    predicted = parts.network.predict(params, moments, batch.observation)
    log_prob, entropy = _log_prob_and_entropy(parts, predicted, batch.action, batch.legal)
    log_ratio = jnp.where(batch.counted > 0, log_prob - batch.log_prob, 0.0)
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - clip_ratio, 1.0 + clip_ratio)
    gain = jnp.minimum(ratio * batch.advantage, clipped * batch.advantage)
    error = jnp.square(predicted.value - batch.target)
    if config.clip_value:
        near = batch.value + jnp.clip(predicted.value - batch.value, -config.clip_value, config.clip_value)
        error = jnp.maximum(error, jnp.square(near - batch.target))

    def mean(x: jax.Array) -> jax.Array:
        return jnp.sum(batch.counted * x) / jnp.maximum(num_steps, 1e-8)

    policy, value, spread = -mean(gain), mean(0.5 * error), mean(entropy)
    loss = policy + config.value_loss_weight * value - config.entropy_weight * spread
    return loss, {
        "loss": loss,
        "loss_policy": policy,
        "loss_value": value,
        "policy_entropy": spread,
        "policy_kl": mean(ratio - 1.0 - log_ratio),
        "clip_fraction": mean(jnp.abs(ratio - 1.0) > clip_ratio),
        "value_mean": mean(predicted.value),
        "value_target_mean": mean(batch.target),
    }


def _count(parts: _Parts, state: TrainState, windows: windows_lib.Windows, axis_name: str | None) -> tuple[Any, Any]:
    """Returns the moments of observations and of discounted returns with the windows' rows added."""
    shape = (windows.reward.shape[0], windows.reward.shape[1] - 1)
    counted = jnp.broadcast_to(windows.weight[:, None] > 0, shape).reshape(-1)
    moments, returns = state.moments, state.returns
    if moments is not None:
        observation = observations.flat(windows_lib.observed(windows, slice(-1)))
        moments = parts.network.add_moments(moments, observation, counted, axis_name)
    if parts.config.normalize_rewards:
        found = windows.stored["return"][:, :-1].reshape(-1, 1)
        returns = statistics.add_features(returns, found, counted, axis_name)
    return moments, returns


def _sum(x: jax.Array, axis_name: str | None) -> jax.Array:
    """Returns the sum of x, its mean over the devices."""
    total = jnp.sum(x)
    return total if axis_name is None else jax.lax.pmean(total, axis_name)


def _where(condition: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
