"""A value that sees all that training sees: an agent's own observation, and arrays for training alone.

MAPPO (Yu et al. 2022, arXiv 2103.01955) has such a value: it may see all agents, because acting does not need it.

Shape letters: N rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.config import shared
from seedzero.core import types
from seedzero.networks import mlp, observations

PARAMS = "central_value"
"""Name of its parameters among the agent's; acting does without them."""
_ORTHOGONAL = nn.initializers.orthogonal(2**0.5)


class CentralValue(NamedTuple):
    """Pure functions of an agent's parameters, and of moments of all arrays; all numbers are float32."""

    init: Callable[[jax.Array], dict[str, Any]]  # key -> parameters, to add to the agent's
    # (the agent's parameters, moments, observation {name: [B, T, ...]}) -> values [B, T]
    values: Callable[[Any, Any, observations.Observation], jax.Array]
    no_moments: Callable[[], Any]  # () -> moments before the first batch; an empty tuple: nothing is normalized
    # (moments, observation {name: [N, ...]}, counted [N] bool, axis_name) -> moments with these observations added
    add_moments: Callable[..., Any]


class _Value(nn.Module):
    """Maps features [N, F] to values [N], with the layers of PPO's value for vectors."""

    width: int
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.tanh(mlp.first(self.width, kernel_init=_ORTHOGONAL, name="first")(x))
        x = nn.tanh(nn.Dense(self.width, dtype=self.dtype, kernel_init=_ORTHOGONAL, name="second")(x))
        value = nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0), name="value")
        return value(x.astype(jnp.float32))[..., 0]


def acting(params: Any) -> Any:
    """Returns an agent's parameters without those of its central value."""
    return {name: part for name, part in params.items() if name != PARAMS} if PARAMS in params else params


def make(layers: shared.NetworkConfig, spec: types.EnvSpec, platform: str) -> CentralValue:
    """Returns the value of all arrays of a spec, joined to one vector."""
    inputs = observations.InputFunctions("mlp", spec, layers.frame_stack, layers.normalize_observations)
    model = _Value(layers.width, observations.compute_dtype(layers.compute_dtype, platform))

    def flat(moments: Any, observation: observations.Observation) -> jax.Array:
        found = inputs.features(moments or None, observation).main
        return found.reshape(found.shape[0], -1)

    def init(key: jax.Array) -> dict[str, Any]:
        return {PARAMS: model.init(key, flat((), observations.zeros(spec, layers.frame_stack, 1)))["params"]}

    def values(params: Any, moments: Any, observation: observations.Observation) -> jax.Array:
        shape = next(iter(observation.values())).shape[:2]
        found: Any = model.apply({"params": params[PARAMS]}, flat(moments, observations.flat(observation)))
        return found.reshape(shape)  # type: ignore[no-any-return]

    def add_moments(moments: Any, *seen: Any) -> Any:
        return inputs.add_moments(moments, *seen) if moments else ()

    return CentralValue(init, values, lambda: inputs.no_moments() or (), add_moments)
