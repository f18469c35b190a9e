"""SAC's networks: an actor, and twin critics that take observations with actions (Haarnoja et al. 2018).

Shape letters: N observations, D numbers of an action.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.config import shared
from seedzero.core import types
from seedzero.networks import mlp, observations, own_torso

Params: TypeAlias = Any

LOWEST_LOG_STD, HIGHEST_LOG_STD = -20.0, 2.0


class SacNetwork(NamedTuple):
    """Pure functions of parameters; all numbers are float32."""

    init_actor: Callable[[jax.Array], Params]  # key -> the actor's parameters
    init_critics: Callable[[jax.Array], Params]  # key -> the critics' parameters
    # (actor's parameters, observation {name: [N, *shape]}) -> (means [N, D], logs of standard deviations [N, D]) of a
    # normal distribution, which tanh squashes to actions in -1 to 1
    act: Callable[[Params, observations.Observation], tuple[jax.Array, jax.Array]]
    # (critics' parameters, observation, action [N, D] in -1 to 1) -> values [2, N], one per critic
    value: Callable[[Params, observations.Observation, jax.Array], jax.Array]


def make(layers: shared.NetworkConfig, spec: types.EnvSpec, platform: str) -> SacNetwork:
    """Returns the networks for an environment with continuous actions; flattens grids and images to vectors.

    A user's torso precedes the actor's layers and, with separate parameters, those of both critics; it gets images as
    images.
    """
    own = own_torso.load(layers, spec)
    dtype = observations.compute_dtype(layers.compute_dtype, platform)
    kind = "mlp" if own is None else shared.choose_kind("network.kind", "auto", spec)
    inputs = observations.InputFunctions(kind, spec, layers.frame_stack, normalizes=False)
    num_dimensions = len(spec.action_low)
    actor = _Layers(layers.width, 2 * num_dimensions, dtype, own)
    critics = _Critics(layers.width, dtype, own)

    def seen(observation: observations.Observation) -> tuple[jax.Array, ...]:
        return inputs.features(None, observation).given

    def act(params: Params, observation: observations.Observation) -> tuple[jax.Array, jax.Array]:
        found: Any = actor.apply({"params": params}, *seen(observation))
        mean, log_std = jnp.split(found, 2, axis=-1)
        return mean, jnp.clip(log_std, LOWEST_LOG_STD, HIGHEST_LOG_STD)

    def value(params: Params, observation: observations.Observation, action: jax.Array) -> jax.Array:
        found: Any = critics.apply({"params": params}, action, *seen(observation))
        return jnp.asarray(found)

    one = observations.zeros(spec, layers.frame_stack, 1)
    action = jnp.zeros((1, num_dimensions))
    return SacNetwork(
        init_actor=lambda key: actor.init(key, *seen(one))["params"],
        init_critics=lambda key: critics.init(key, action, *seen(one))["params"],
        act=act,
        value=value,
    )


def _flat(torso: nn.Module | None, given: tuple[jax.Array, ...]) -> jax.Array:
    """Returns prepared observations, or a torso's features of them, as vectors [N, F] float32."""
    x = given[0] if torso is None else torso(*given)
    return x.reshape(x.shape[0], -1).astype(jnp.float32)


class _Layers(nn.Module):
    """Maps observations [N, ...] to [N, num_outputs] float32, through two hidden layers."""

    width: int
    num_outputs: int
    dtype: Any
    own_torso: nn.Module | None = None

    @nn.compact
    def __call__(self, *given: jax.Array) -> jax.Array:
        x = _flat(self.own_torso, given)
        x = nn.relu(mlp.first(self.width)(x))
        x = nn.relu(nn.Dense(self.width, dtype=self.dtype)(x))
        return nn.Dense(self.num_outputs)(x.astype(jnp.float32))


class _Critics(nn.Module):
    """Maps actions [N, D] and observations [N, ...] to values [2, N]."""

    width: int
    dtype: Any
    own_torso: nn.Module | None = None

    @nn.compact
    def __call__(self, action: jax.Array, *given: jax.Array) -> jax.Array:
        x = jnp.concatenate([_flat(self.own_torso, given), action], axis=-1)
        values = [_Layers(self.width, 1, self.dtype, name=f"critic_{number}")(x)[:, 0] for number in range(2)]
        return jnp.stack(values)
