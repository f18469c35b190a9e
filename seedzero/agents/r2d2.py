"""R2D2 (Kapturowski et al. 2019) is Ape-X DQN with an LSTM. It learns sequences from stored LSTM states.

Sequences cross episodes, and the LSTM is reset at each. The first steps of a sequence only bring the state up to date.

Shape letters: B batch, J positions of a window, T = J - 1 - burn-in steps that are learned, A actions.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base, learning, q_learner
from seedzero.config import configs, r2d2_config
from seedzero.core import types
from seedzero.networks import actor_critic
from seedzero.ops import nstep, q_learning, statistics
from seedzero.replay import sampling, sources, windowing

_PRIORITY_ETA = 0.9
"""Weight of a sequence's largest error in its priority; the mean error has the rest (section 2.3, eta)."""


_Parts: TypeAlias = q_learner.QLearnerParts[r2d2_config.R2D2Config]


def make(config: configs.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
    """Returns the agent. It reads the configuration's sections r2d2 and replay."""
    settings = config.r2d2
    parts = q_learner.make(config, settings, spec, platform)
    length = settings.num_positions
    return base.Agent(
        data=sources.Replay(
            length=length,
            observe=tuple(range(length)),
            stride=settings.period,
            # whole sequences, because the priority of a part would not change when the rest comes
            following=length - 1,
            crosses_episodes=True,
            prioritization=sampling.prioritization(config.replay),
        ),
        stack=config.network.frame_stack,
        reads_reward=True,
        stored=_stored(config, spec),
        init=lambda key: q_learner.init(parts, key),
        acting=lambda state: state.params,
        initial_memory=lambda num_slots: actor_critic.no_past(parts.network, spec, num_slots),
        act=lambda params, memory, inputs, key: _act(parts, params, memory, inputs, key),
        update=lambda state, windows, key, axis_name: _update(parts, state, windows, axis_name),
        has_policy=False,
    )


def _stored(config: configs.Config, spec: types.EnvSpec) -> dict[str, sources.Stored]:
    return {
        **q_learner.stored(spec),
        "last_action": sources.Stored((), np.dtype(np.int32), every=config.r2d2.period),
        "state": sources.Stored((2 * config.network.lstm_width,), np.dtype(np.float32), every=config.r2d2.period),
    }


# Acting ------------------------------------------------------------------------------------------------------------


def _act(
    parts: _Parts, params: base.Params, memory: actor_critic.Past, inputs: base.Inputs, key: jax.Array
) -> tuple[actor_critic.Past, base.Outputs]:
    # The state that an episode begins with is stored: rows of a resumed run are those of one that continued.
    memory = jax.tree.map(lambda x: jnp.where(inputs.first.reshape(-1, *[1] * (x.ndim - 1)), 0, x), memory)
    steps = actor_critic.Steps.single(inputs.observation, inputs.first, inputs.reward, memory.action)
    state, q = parts.network.unroll(params, memory.state, steps)
    action, _ = q_learner.choose(parts, q[:, 0], inputs, key)
    stored = {**q_learner.taken(parts, action, inputs), "last_action": memory.action, "state": memory.state}
    return actor_critic.Past(state, action), base.Outputs(action, stored)


# Learning ----------------------------------------------------------------------------------------------------------


def _update(
    parts: _Parts, state: learning.TrainState, windows: windowing.Windows, axis_name: str | None
) -> tuple[learning.TrainState, jax.Array, base.Metrics]:
    is_step = windows.valid[:, 1:] & ~(windows.terminated | windows.truncated)[:, :-1]
    is_learned = is_step[:, parts.config.burn_in :]
    target_q = _unroll(parts, state.target_params, windows)

    def loss(params: base.Params) -> tuple[jax.Array, tuple[base.Metrics, jax.Array]]:
        q = _unroll(parts, params, windows)
        target = jax.lax.stop_gradient(_targets(parts, q, target_q, windows, is_step))
        action = windows.stored["action"][:, parts.config.burn_in : -1]
        chosen = q_learning.of_action(q[:, :-1], action)
        error = jnp.where(is_learned, target - chosen, 0.0)
        value = jnp.mean(windows.weight * jnp.sum(0.5 * jnp.square(error), axis=1))
        q_mean, q_target_mean = (statistics.mean_where(x, is_learned) for x in (chosen, target))
        return value, ({"loss": value, "q_mean": q_mean, "q_target_mean": q_target_mean}, error)

    gradients, metrics, error = learning.gradients(loss, state.params, axis_name)
    state, metrics = q_learner.apply_gradients(parts, state, gradients, metrics, windows, axis_name)
    return state, q_learning.sequence_priority(error, is_learned, eta=_PRIORITY_ETA), metrics


def _unroll(parts: _Parts, params: base.Params, windows: windowing.Windows) -> jax.Array:
    """Returns Q values [B, T + 1, A] after the burn-in, through which no gradient goes (section 3)."""
    action, stored, burn_in = windows.stored["action"], windows.stored, parts.config.burn_in
    last_action = jnp.concatenate([stored["last_action"][:, :1], action[:, :-1]], axis=1)
    steps = actor_critic.Steps(windows.observation, windows.first, windows.reward, last_action)
    state = stored["state"][:, 0]
    if burn_in:
        state, _ = parts.network.unroll(params, state, jax.tree.map(lambda x: x[:, :burn_in], steps))
    _, q = parts.network.unroll(params, jax.lax.stop_gradient(state), jax.tree.map(lambda x: x[:, burn_in:], steps))
    return q


def _targets(
    parts: _Parts, q: jax.Array, target_q: jax.Array, windows: windowing.Windows, is_step: jax.Array
) -> jax.Array:
    """Returns the n-step double-Q targets [B, T] on the network's scale; returns at the window's end are shorter.

    Args:
      q: [B, T + 1, A] of the online network.
      target_q: [B, T + 1, A] of the target network.
      is_step: [B, J - 1] bool, true: an action was taken, and its outcome is known.
    """
    config, settings = parts.config, parts.reward
    reward, terminated = windows.reward[:, 1:], windows.terminated[:, 1:]
    legal = windows.stored["legal"][:, config.burn_in :] if parts.spec.has_action_mask else None
    value = parts.scale.expand(q_learning.of_action(target_q, q_learning.best_action(q, legal)))
    returns = q_learning.n_step_returns(
        nstep.scaled_reward(reward, settings.scale, settings.clip)[:, config.burn_in :],
        settings.discount * ~terminated[:, config.burn_in :],
        value,
        is_step[:, config.burn_in :],
        n_step=config.n_step,
    )
    return parts.scale.squash(returns)
