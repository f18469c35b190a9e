"""SAC (Haarnoja et al. 2018, "Soft actor-critic algorithms and applications") learns continuous actions from a replay.

The policy maximizes return and entropy. It is a normal distribution that tanh squashes to -1 to 1, which stand for the
environment's bounds. Before the first update, actions are uniform within the bounds.

Shape letters: B batch, D numbers of an action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from seedzero.agents import base, learning, sampled
from seedzero.config import configs
from seedzero.core import types
from seedzero.networks import sac_net
from seedzero.ops import action_distributions
from seedzero.replay import sources, windowing


class Params(NamedTuple):
    """Learned parameters: the actor's, the critics', and the log of the temperature (alpha), a scalar."""

    actor: base.Params
    critics: base.Params
    log_temperature: jax.Array


class SacActing(NamedTuple):
    """Acting state: the actor's parameters, and their number of updates, a scalar int32; 0: random actions."""

    actor: base.Params
    num_updates: jax.Array


class _Parts(NamedTuple):
    config: configs.Config
    spec: types.EnvSpec
    network: sac_net.SacNetwork
    optimizer: optax.GradientTransformation


def make(config: configs.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
    """Returns the agent. It reads the configuration's section sac and the shared ones."""
    network = sac_net.make(config.network, spec, platform)
    parts = _Parts(config, spec, network, learning.optimizer(config.optimizer))
    return base.Agent(
        data=sources.Replay(length=2, observe=(0, 1)),
        stack=config.network.frame_stack,
        stored={"action": sources.Stored(spec.action_shape, np.dtype(np.float32))},
        init=lambda key: _init(parts, key),
        acting=lambda state: SacActing(state.params.actor, state.num_updates),
        initial_memory=lambda num_slots: (),
        act=lambda params, memory, inputs, key: _act(parts, params, inputs, key),
        update=lambda state, windows, key, axis_name: _update(parts, state, windows, key, axis_name),
    )


def _init(parts: _Parts, key: jax.Array) -> learning.TrainState:
    actor_key, critic_key = jax.random.split(key)
    log_temperature = jnp.log(jnp.float32(parts.config.sac.initial_temperature))
    params = Params(parts.network.init_actor(actor_key), parts.network.init_critics(critic_key), log_temperature)
    target = jax.tree.map(jnp.copy, params.critics)
    return learning.init(params, parts.optimizer)._replace(target_params=target)


# Acting ------------------------------------------------------------------------------------------------------------


def _act(parts: _Parts, params: SacActing, inputs: base.Inputs, key: jax.Array) -> tuple[tuple[()], base.Outputs]:
    mean, log_std = parts.network.act(params.actor, inputs.observation)
    normal_key, even_key = jax.random.split(key)
    sampled_action = jnp.tanh(mean + jnp.exp(log_std) * jax.random.normal(normal_key, mean.shape))
    even = jax.random.uniform(even_key, mean.shape, minval=-1.0, maxval=1.0)
    drawn = jnp.where(inputs.explores[:, None] & (params.num_updates == 0), even, sampled_action)
    action = jnp.where(inputs.draws[:, None], drawn, jnp.tanh(mean))
    return (), base.Outputs(sampled.to_environment(action, parts.spec), {"action": action})


# Learning ----------------------------------------------------------------------------------------------------------


def _update(
    parts: _Parts, state: learning.TrainState, windows: windowing.Windows, key: jax.Array, axis_name: str | None
) -> tuple[learning.TrainState, None, base.Metrics]:
    windows = learning.clear_padding(windows)

    def loss(params: Params) -> tuple[jax.Array, tuple[base.Metrics, None]]:
        value, metrics = _loss_and_metrics(parts, params, state.target_params, windows, key)
        return value, (metrics, None)

    gradients, metrics, _ = learning.gradients(loss, state.params, axis_name)
    schedule = optax.constant_schedule(parts.config.optimizer.learning_rate)
    state, metrics = learning.apply_gradients(state, gradients, metrics, optimizer=parts.optimizer, schedule=schedule)
    target = optax.incremental_update(state.params.critics, state.target_params, parts.config.sac.target_rate)
    return state._replace(target_params=target), None, metrics


def _loss_and_metrics(
    parts: _Parts, params: Params, target_params: base.Params, windows: windowing.Windows, key: jax.Array
) -> tuple[jax.Array, base.Metrics]:
    """Returns the sum of three losses, each with a gradient into its own parameters alone, and metrics."""
    config, network = parts.config, parts.network
    fixed = jax.lax.stop_gradient(params)
    now, following = (windowing.observed(windows, position) for position in range(2))
    keys, temperature = jax.random.split(key), jnp.exp(fixed.log_temperature)

    # The critics, equations 5 and 6, with the smaller target, as in TD3.
    next_action, next_log_prob = _sample(parts, fixed.actor, following, keys[0])
    next_value = jnp.min(network.value(target_params, following, next_action), axis=0) - temperature * next_log_prob
    discount = config.reward.discount * ~windows.terminated[:, 1]
    target = jax.lax.stop_gradient(config.reward.scale * windows.reward[:, 1] + discount * next_value)
    values = network.value(params.critics, now, windows.stored["action"][:, 0])
    critic_loss = 0.5 * jnp.sum(jnp.square(values - target), axis=0)

    # The actor, equation 9.
    action, log_prob = _sample(parts, params.actor, now, keys[1])
    worth = jnp.min(network.value(fixed.critics, now, action), axis=0)
    actor_loss = temperature * log_prob - worth

    # The temperature, equation 18, learned by its log.
    wanted = config.sac.entropy_per_dimension * len(parts.spec.action_low)
    temperature_loss = -params.log_temperature * (jax.lax.stop_gradient(log_prob) + wanted)

    def mean(x: jax.Array) -> jax.Array:
        return jnp.mean(windows.weight * x)

    loss = mean(critic_loss) + mean(actor_loss) + mean(temperature_loss)
    return loss, {
        "loss": loss,
        "loss_value": mean(critic_loss),
        "loss_policy": mean(actor_loss),
        "policy_entropy": -mean(log_prob),
        "temperature": temperature,
        "value_mean": mean(values[0]),
        "value_target_mean": mean(target),
    }


def _sample(
    parts: _Parts, actor: base.Params, observation: Mapping[str, jax.Array], key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Draws actions [B, D] in -1 to 1 from the policy, and returns them with their log densities [B] (appendix C)."""
    mean, log_std = parts.network.act(actor, observation)
    x = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)
    return jnp.tanh(x), action_distributions.log_density(x, mean, log_std) - action_distributions.log_tanh_slope(x)
