"""Ape-X DQN (Horgan et al. 2018): double Q-learning (van Hasselt et al. 2016) of a dueling network (Wang et al. 2016).

It learns n-step returns that are sampled by priority, and every environment explores with its own epsilon.

Shape letters: B batch, J = n + 1 positions of a window, A actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp

from seedzero.agents import base, learning, q_learner
from seedzero.config import apex_config, configs
from seedzero.core import types
from seedzero.networks import actor_critic
from seedzero.ops import nstep, q_learning
from seedzero.replay import sampling, sources, windowing

_Parts: TypeAlias = q_learner.QLearnerParts[apex_config.ApexConfig]


def make(config: configs.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
    """Returns the agent. It reads the configuration's section apex and the shared ones."""
    settings = config.apex
    parts = q_learner.make(config, settings, spec, platform)
    return base.Agent(
        data=sources.Replay(
            length=settings.n_step + 1,
            observe=(0, settings.n_step),  # where an episode ends earlier, its last observation
            prioritization=sampling.prioritization(config.replay),
        ),
        stack=config.network.frame_stack,
        stored=q_learner.stored(spec),
        init=lambda key: q_learner.init(parts, key),
        acting=lambda state: state.params,
        initial_memory=lambda num_slots: jnp.zeros(num_slots),
        act=lambda params, memory, inputs, key: _act(parts, params, memory, inputs, key),
        update=lambda state, windows, key, axis_name: _update(parts, state, windows, axis_name),
        has_policy=False,
    )


def _q(parts: _Parts, params: base.Params, observation: Mapping[str, jax.Array]) -> jax.Array:
    """Returns Q values [B, A] on the network's scale."""
    num_rows = jax.tree.leaves(observation)[0].shape[0]  # len() of a symbolic batch is not a number
    empty = jnp.zeros(num_rows)
    steps = actor_critic.Steps.single(observation, empty > 0, empty, empty.astype(jnp.int32))
    _, q = parts.network.unroll(params, parts.network.initial_state(num_rows), steps)
    return q[:, 0]


# Acting ------------------------------------------------------------------------------------------------------------


def _act(
    parts: _Parts, params: base.Params, memory: jax.Array, inputs: base.Inputs, key: jax.Array
) -> tuple[jax.Array, base.Outputs]:
    """Acts; the memory is the Q value [B] of the action before, on the network's scale.

    The memory gives the completed step its priority, which is its error over one step. The paper takes n steps, but
    the n-th reward comes n - 1 rows later, and a row gets its priority when the next row completes it.
    """
    settings, q = parts.reward, _q(parts, params, inputs.observation)
    action, greedy = q_learner.choose(parts, q, inputs, key)
    value = parts.scale.expand(q_learning.of_action(q, greedy))
    reward = nstep.scaled_reward(inputs.reward, settings.scale, settings.clip)
    target = parts.scale.squash(reward + settings.discount * jnp.where(inputs.terminated, 0.0, value))
    return q_learning.of_action(q, action), base.Outputs(
        action, q_learner.taken(parts, action, inputs), jnp.abs(target - memory)
    )


# Learning ----------------------------------------------------------------------------------------------------------


def _update(
    parts: _Parts, state: learning.TrainState, windows: windowing.Windows, axis_name: str | None
) -> tuple[learning.TrainState, jax.Array, base.Metrics]:
    target = _targets(parts, state, windows)
    observation, action = windowing.observed(windows, 0), windows.stored["action"][:, 0]

    def loss(params: base.Params) -> tuple[jax.Array, tuple[base.Metrics, jax.Array]]:
        q = q_learning.of_action(_q(parts, params, observation), action)
        error = target - q
        value = jnp.mean(windows.weight * 0.5 * jnp.square(error))
        metrics = {"loss": value, "q_mean": jnp.mean(q), "q_target_mean": jnp.mean(target)}
        return value, (metrics, jnp.abs(error))

    gradients, metrics, priority = learning.gradients(loss, state.params, axis_name)
    state, metrics = q_learner.apply_gradients(parts, state, gradients, metrics, windows, axis_name)
    return state, priority, metrics


def _targets(parts: _Parts, state: learning.TrainState, windows: windowing.Windows) -> jax.Array:
    """Returns the n-step double-Q targets [B] of the windows' first rows, on the network's scale."""
    settings, last = parts.reward, jnp.sum(windows.valid, axis=1, dtype=jnp.int32) - 1
    observation, legal = windowing.observed(windows, 1), None
    if parts.spec.has_action_mask:
        legal = jnp.take_along_axis(windows.stored["legal"], last[:, None, None], axis=1)[:, 0]
    best = q_learning.best_action(_q(parts, state.params, observation), legal)
    value = parts.scale.expand(q_learning.of_action(_q(parts, state.target_params, observation), best))
    returns = q_learning.n_step_returns(
        nstep.scaled_reward(windows.reward[:, 1:], settings.scale, settings.clip),
        settings.discount * ~windows.terminated[:, 1:],
        # Only the last valid position is read, and that is this observation.
        jnp.broadcast_to(value[:, None], windows.valid.shape),
        windows.valid[:, 1:],
        n_step=parts.config.n_step,
    )
    return parts.scale.squash(returns[:, 0])
