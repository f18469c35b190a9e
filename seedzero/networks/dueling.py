"""Dueling Q networks (Wang et al. 2016) on a torso, by choice with an LSTM between.

Shape letters: B batch, T steps of an unroll, A actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.config import kinds
from seedzero.core import types
from seedzero.networks import actor_critic, observations

_TORSOS = {"mlp": "mlp", "conv": "conv", "resnet": "nature", "nature": "nature", "deep": "deep"}


class DuelingNetwork(NamedTuple):
    """Pure functions of parameters.

    Attributes:
      init: key -> parameters, float32.
      initial_state: batch size -> recurrent state [B, 2 * LSTM units] float32; [B, 0] without an LSTM.
      unroll: (params, state, Steps) -> (state behind them, Q values [B, T, A]), float32.
    """

    init: Callable[[jax.Array], actor_critic.Params]
    initial_state: Callable[[int], jax.Array]
    unroll: Callable[[actor_critic.Params, jax.Array, actor_critic.Steps], tuple[jax.Array, jax.Array]]


def make(
    name: str,
    spec: types.EnvSpec,
    platform: str,
    *,
    torso: str,
    width: int,
    lstm_width: int,
    frame_stack: int,
    compute_dtype: str,
) -> DuelingNetwork:
    """Returns the network for an environment of discrete actions; lstm_width 0: without an LSTM.

    name: of the setting of the torso, for the error.

    Raises:
      ConfigError: the torso does not fit the observation's shape.
    """
    kind = _TORSOS[kinds.choose_kind(name, torso, spec)]
    read = observations.reader(kind, spec, frame_stack)
    dtype = observations.compute_dtype(compute_dtype, platform)
    model = _Model(kind, width, lstm_width, spec.num_actions, dtype)

    return DuelingNetwork(*actor_critic.functions(model, read, observations.zeros(spec, frame_stack, 1), lstm_width))


class _Model(nn.Module):
    """Features [B * T, ...], state [B, 2 * units], steps -> state, Q values [B, T, A]."""

    torso: str
    width: int
    lstm_width: int
    num_actions: int
    dtype: Any

    @nn.compact
    def __call__(
        self, seen: observations.Features, state: jax.Array, steps: actor_critic.Steps
    ) -> tuple[jax.Array, jax.Array]:
        x = actor_critic.Torso(self.torso, self.width, self.dtype)(*seen)
        x = x.reshape(*steps.first.shape, -1)
        if self.lstm_width:
            x = actor_critic.with_past(x, steps, self.num_actions)
            state, x = actor_critic.Recurrence(self.lstm_width, self.dtype)(state, x, steps.first)
        value, advantage = self._stream(x, 1), self._stream(x, self.num_actions)
        return state, value + advantage - jnp.mean(advantage, axis=-1, keepdims=True)  # equation 9

    def _stream(self, x: jax.Array, size: int) -> jax.Array:
        """Returns [B, T, size]; the last layer computes in float32: bfloat16 has a step of 0.5 at values of 64."""
        x = nn.relu(nn.Dense(self.width, dtype=self.dtype)(x)).astype(jnp.float32)
        return nn.Dense(size)(x)
