"""Parts that Ape-X and R2D2 share: network, optimizer, exploration, and one step of learning.

Shape letters: B batch, A actions.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from seedzero.agents import base, exploration, learning
from seedzero.config import apex_config, configs, r2d2_config, shared
from seedzero.core import types
from seedzero.networks import actor_critic
from seedzero.ops import q_learning
from seedzero.replay import sources, windowing

Config = TypeVar("Config", bound=apex_config.ApexConfig | r2d2_config.R2D2Config)


_EPSILON_EXPONENT = 7.0
"""Exponent of the ladder of epsilons (Horgan et al. 2018, section 4.1, alpha)."""


class QLearnerParts(NamedTuple, Generic[Config]):
    """Parts for acting and learning. num_envs: environments on the ladder of epsilons; 0 gives each slot its own."""

    config: Config
    reward: shared.RewardConfig
    spec: types.EnvSpec
    network: actor_critic.RecurrentNetwork[tuple[jax.Array, jax.Array]]
    optimizer: optax.GradientTransformation
    learning_rate: float
    scale: q_learning.Scale
    num_envs: int


def make(config: configs.Config, settings: Config, spec: types.EnvSpec, platform: str) -> QLearnerParts[Config]:
    """Returns the parts. settings: the agent's section of the configuration."""
    network = actor_critic.dueling(config.network, spec, platform)
    return QLearnerParts(
        settings,
        config.reward,
        spec,
        network,
        learning.optimizer(config.optimizer, is_centered=True),
        config.optimizer.learning_rate,
        q_learning.scale(rescale=settings.rescale_values),
        config.replay.num_sharing,
    )


def init(parts: QLearnerParts[Config], key: jax.Array) -> learning.TrainState:
    """Returns the state before the first update, with a target network."""
    return learning.init(parts.network.init(key), parts.optimizer, has_target=True)


def stored(spec: types.EnvSpec) -> dict[str, sources.Stored]:
    """Returns the specification of the arrays that are stored with an action, see `taken`."""
    legal = {"legal": sources.Stored((spec.num_actions,), np.dtype(bool))} if spec.has_action_mask else {}
    return {"action": sources.Stored((), np.dtype(np.int32)), **legal}


def taken(parts: QLearnerParts[Config], action: jax.Array, inputs: base.Inputs) -> dict[str, jax.Array]:
    return {"action": action, **({"legal": inputs.action_mask} if parts.spec.has_action_mask else {})}


def choose(
    parts: QLearnerParts[Config], q: jax.Array, inputs: base.Inputs, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns actions [B] int32, where rows that explore use their environment's own epsilon, and the best actions.

    q: [B, A].
    """
    greedy = q_learning.best_action(q, inputs.action_mask)
    epsilon = exploration.epsilons(
        inputs.slot,
        parts.num_envs or inputs.num_slots,
        base=parts.config.epsilon,
        exponent=_EPSILON_EXPONENT,
    )
    epsilon = jnp.where(inputs.explores, epsilon, 0.0)
    return exploration.epsilon_greedy(key, greedy, epsilon, inputs.action_mask), greedy


def apply_gradients(
    parts: QLearnerParts[Config],
    state: learning.TrainState,
    gradients: base.Params,
    metrics: base.Metrics,
    windows: windowing.Windows,
    axis_name: str | None,
) -> tuple[learning.TrainState, base.Metrics]:
    """Returns the state after one optimizer step, in which the target network may be a new copy, and the metrics."""
    state, metrics = learning.apply_gradients(
        state,
        gradients,
        metrics,
        optimizer=parts.optimizer,
        schedule=optax.constant_schedule(parts.learning_rate),
        target_updates=parts.config.target_updates,
    )
    return learning.add_moments(parts.network, state, windows, axis_name), metrics
