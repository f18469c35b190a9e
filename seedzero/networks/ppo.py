"""A policy and a value for PPO: two networks for vectors, one with convolutions for grids and images.

With an LSTM, both come from one torso.

Shape letters: B batch, T steps of an unroll, K numbers of a policy: logits of actions, or means of a vector's numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.config import kinds
from seedzero.core import types
from seedzero.networks import actor_critic, mlp, observations
from seedzero.networks import inputs as network_inputs
from seedzero.ops import convolution

Params: TypeAlias = Any

_TORSOS = {"mlp": "mlp", "conv": "conv", "resnet": "nature", "nature": "nature"}
_ORTHOGONAL = nn.initializers.orthogonal(2.0**0.5)


class PpoPrediction(NamedTuple):
    """What the network says of T steps, float32.

    Attributes:
      policy: [B, T, K] logits, or means of a normal distribution over vectors that fill -1 to 1.
      log_std: [K] logs of its standard deviations, the same for all observations; [0] where actions are numbers.
      value: [B, T].
    """

    policy: jax.Array
    log_std: jax.Array
    value: jax.Array


Unroll: TypeAlias = Callable[
    [Params, network_inputs.Moments | None, jax.Array, actor_critic.Steps], tuple[jax.Array, PpoPrediction]
]


class PpoNetwork(NamedTuple):
    """Pure functions of parameters.

    Attributes:
      init: key -> parameters, float32.
      initial_state: batch size -> recurrent state [B, 2 * LSTM units] float32; [B, 0] without an LSTM.
      unroll: (params, moments, state, Steps) -> (state behind them, Prediction). Where actions are vectors, so are the
        last ones, [B, T, K] in -1 to 1.
      unroll_in_loop: the same function for loops; on a CPU its convolutions are products of matrices.
      no_moments: () -> moments of the features before anything was seen; None: nothing is normalized.
      add_moments: (moments, observation, counted [N] bool, axis_name) -> moments with these observations.
    """

    init: Callable[[jax.Array], Params]
    initial_state: Callable[[int], jax.Array]
    unroll: Unroll
    unroll_in_loop: Unroll
    no_moments: Callable[[], network_inputs.Moments | None]
    add_moments: Callable[
        [network_inputs.Moments, network_inputs.Observation, jax.Array, str | None], network_inputs.Moments
    ]


def make(
    spec: types.EnvSpec,
    platform: str,
    *,
    torso: str,
    width: int,
    lstm_width: int,
    frame_stack: int,
    initial_std: float,
    normalizes: bool,
    compute_dtype: str,
) -> PpoNetwork:
    """Returns the network for an environment; lstm_width 0: without an LSTM.

    Raises:
      ConfigError: the torso does not fit the observation's shape.
    """
    kind = _TORSOS[kinds.choose_kind("ppo.torso", torso, spec)]
    inputs = network_inputs.InputFunctions(kind, spec, frame_stack, normalizes)
    num_outputs = spec.num_actions or len(spec.action_low)
    dtype = observations.compute_dtype(compute_dtype, platform)
    model = _Model(kind, width, lstm_width, num_outputs, initial_std if spec.is_continuous else 0.0, dtype)

    def initial_state(num_rows: int) -> jax.Array:
        return jnp.zeros((num_rows, 2 * lstm_width))

    def unroll_by(model: _Model) -> Unroll:
        def unroll(
            params: Params, moments: network_inputs.Moments | None, state: jax.Array, steps: actor_critic.Steps
        ) -> tuple[jax.Array, PpoPrediction]:
            seen = inputs.features(moments, observations.flat(steps.observation))
            out: Any = model.apply({"params": params}, seen, state, steps._replace(observation={}))
            return out[0], out[1]

        return unroll

    def init(key: jax.Array) -> Params:
        one = jnp.zeros((1, 1))
        last_action = jnp.zeros((1, 1, num_outputs)) if spec.is_continuous else one.astype(jnp.int32)
        steps = actor_critic.Steps({}, one > 0, one, last_action)
        return model.init(
            key, inputs.features(None, observations.zeros(spec, frame_stack, 1)), initial_state(1), steps
        )["params"]

    in_loop = model.clone(convolve=convolution.convolve) if platform == "cpu" else model
    return PpoNetwork(init, initial_state, unroll_by(model), unroll_by(in_loop), inputs.no_moments, inputs.add_moments)


class _Model(nn.Module):
    """Features [B * T, ...], state [B, 2 * units], steps -> state, Prediction. initial_std 0: actions are numbers.

    convolve: in place of `lax.conv_general_dilated`.
    """

    kind: str
    width: int
    lstm_width: int
    num_outputs: int
    initial_std: float
    dtype: Any
    convolve: Any = None

    @nn.compact
    def __call__(
        self, seen: observations.Features, state: jax.Array, steps: actor_critic.Steps
    ) -> tuple[jax.Array, PpoPrediction]:
        if self.kind == "mlp" and not self.lstm_width:
            # What a small network learns of values, on the scale of returns, would drown what the policy needs.
            policy, value = self._vectors(seen.main, "policy"), self._vectors(seen.main, "value")
        else:
            x = self._vectors(seen.main, "torso") if self.kind == "mlp" else self._pictures(*seen)
            if self.lstm_width:
                x = x.reshape(*steps.first.shape, -1).astype(self.dtype)
                x = actor_critic.with_past(x, steps, 0 if self.initial_std else self.num_outputs)
                state, x = actor_critic.Recurrence(self.lstm_width, self.dtype)(state, x, steps.first)
            policy = value = x.astype(jnp.float32)
        policy = nn.Dense(self.num_outputs, kernel_init=nn.initializers.orthogonal(0.01), name="policy")(policy)
        value = nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0), name="value")(value)
        log_std = jnp.zeros(0)
        if self.initial_std:
            log_std = self.param(
                "log_std", nn.initializers.constant(jnp.log(self.initial_std)), (self.num_outputs,), jnp.float32
            )
        return state, PpoPrediction(policy.reshape(*steps.first.shape, -1), log_std, value.reshape(steps.first.shape))

    def _vectors(self, x: jax.Array, name: str) -> jax.Array:
        x = x.reshape(x.shape[0], -1)
        x = nn.tanh(mlp.first(self.width, kernel_init=_ORTHOGONAL, name=f"{name}_0")(x))
        return nn.tanh(self._dense(self.width, f"{name}_1")(x)).astype(jnp.float32)

    def _pictures(self, x: jax.Array, vector: jax.Array | None = None) -> jax.Array:
        small = ((max(1, self.width // 8), 3, 1),)
        for channels, kernel, stride in actor_critic.NATURE if self.kind == "nature" else small:
            size, init = (kernel, kernel), _ORTHOGONAL
            x = nn.Conv(
                channels, size, stride, kernel_init=init, dtype=self.dtype, conv_general_dilated=self.convolve
            )(x)
            x = nn.relu(x)
        x = x.reshape(x.shape[0], -1)
        if vector is not None:
            beside = nn.relu(mlp.first(self.width, kernel_init=_ORTHOGONAL, name="vector")(vector))
            x = jnp.concatenate([x, beside.astype(self.dtype)], axis=-1)
        return nn.relu(self._dense(self.width, "torso")(x)).astype(jnp.float32)

    def _dense(self, width: int, name: str) -> nn.Dense:
        return nn.Dense(width, dtype=self.dtype, kernel_init=_ORTHOGONAL, name=name)
