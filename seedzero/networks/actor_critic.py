"""A policy and a value on one torso, by choice with an LSTM between: the networks of IMPALA (Espeholt et al. 2018).

Shape letters: B batch, T steps of an unroll, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.config import kinds
from seedzero.core import types
from seedzero.networks import mlp, observations, text

Params: TypeAlias = Any

DEEP_CHANNELS = (16, 32, 32)
SHALLOW = ((16, 8, 4), (32, 4, 2))
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel size and stride of the convolutions (nature: Mnih et al. 2015)."""
_ORTHOGONAL = nn.initializers.orthogonal(2**0.5)
_VALUE = "Dense_1"
"""Name of the value's layer in saved runs."""
_ILLEGAL = -1e9
_TORSOS = {"mlp": "mlp", "conv": "conv", "resnet": "deep", "deep": "deep", "shallow": "shallow"}


class Steps(NamedTuple):
    """What a network is shown of T steps.

    Attributes:
      observation: {name: [B, T, *shape]}, stacked frames on the last axis.
      first: [B, T] bool, true: an episode begins; the recurrent state is 0 there.
      reward: [B, T] received on the way to the observation; read by an LSTM, but where an episode begins.
      last_action: [B, T] int32 of the step before, or [B, T, D] of vectors; read likewise.
      task: [B, T] int32, whose value is wanted where there is one for each task; None: the first one's.
    """

    observation: Mapping[str, jax.Array]
    first: jax.Array
    reward: jax.Array
    last_action: jax.Array
    task: jax.Array | None = None


class ActorCriticNetwork(NamedTuple):
    """Pure functions of parameters.

    Attributes:
      init: key -> parameters, float32.
      initial_state: batch size -> recurrent state [B, 2 * LSTM units] float32; [B, 0] without an LSTM.
      unroll: (params, state, Steps) -> (state behind them, policy logits [B, T, A], value [B, T]), float32.
      rescale: (params, factor [N], shift [N]) -> parameters with which the value v of task i is factor_i v + shift_i.
    """

    init: Callable[[jax.Array], Params]
    initial_state: Callable[[int], jax.Array]
    unroll: Callable[[Params, jax.Array, Steps], tuple[jax.Array, jax.Array, jax.Array]]
    rescale: Callable[[Params, jax.Array, jax.Array], Params]


def masked(logits: jax.Array, legal: jax.Array | None) -> jax.Array:
    """Returns logits [..., A] with those of illegal actions far below all others; legal: bool, None: all are."""
    return logits if legal is None else jnp.where(legal, logits, _ILLEGAL)


def make(
    spec: types.EnvSpec,
    platform: str,
    *,
    torso: str,
    width: int,
    lstm_width: int,
    frame_stack: int,
    compute_dtype: str,
    own_torso: nn.Module | None = None,
    num_values: int = 1,
) -> ActorCriticNetwork:
    """Returns the network for an environment of discrete actions; lstm_width 0: without an LSTM.

    own_torso: replaces the torso; from prepared observations [N, ...] to features [N, F], or of any other shape.
    num_values: N, tasks that have a value of their own.

    Raises:
      ConfigError: the torso does not fit the observation's shape.
    """
    kind = _TORSOS[kinds.choose_kind("vtrace.torso", torso, spec)]
    dtype = observations.compute_dtype(compute_dtype, platform)
    read = observations.reader(kind, spec, frame_stack)
    model = _Model(kind, width, lstm_width, spec.num_actions, dtype, own_torso, num_values)
    texts = [array for array in spec.arrays if array.text]

    def read_all(observation: Mapping[str, jax.Array]) -> _Seen:
        newest = tuple(observation[array.name][..., -array.shape[0] :] for array in texts)
        return _Seen(read(observation), newest)

    def rescale(params: Params, factor: jax.Array, shift: jax.Array) -> Params:
        head = params[_VALUE]
        return {**params, _VALUE: {"kernel": head["kernel"] * factor, "bias": head["bias"] * factor + shift}}

    return ActorCriticNetwork(
        *functions(model, read_all, observations.zeros(spec, frame_stack, 1), lstm_width), rescale
    )


def functions(
    model: nn.Module,
    read: Callable[[Mapping[str, jax.Array]], Any],
    observation: Mapping[str, jax.Array],
    lstm_width: int,
) -> tuple[Callable[[jax.Array], Params], Callable[[int], jax.Array], Callable[[Params, jax.Array, Steps], Any]]:
    """Returns init, initial_state and unroll of a network, see `ActorCriticNetwork`.

    Args:
      model: (what `read` returns, state, Steps without observations) -> what unroll returns.
      read: observations {name: [B * T, ...]} -> features [B * T, ...].
      observation: of one environment, {name: [1, ...]}.
      lstm_width: units; 0: without an LSTM.
    """

    def initial_state(num_rows: int) -> jax.Array:
        return jnp.zeros((num_rows, 2 * lstm_width))

    def unroll(params: Params, state: jax.Array, steps: Steps) -> Any:
        seen = read(observations.flat(steps.observation))
        return model.apply({"params": params}, seen, state, steps._replace(observation={}))

    def init(key: jax.Array) -> Params:
        one = jnp.zeros((1, 1))
        steps = Steps({}, one > 0, one, one.astype(jnp.int32))
        return model.init(key, read(observation), initial_state(1), steps)["params"]

    return init, initial_state, unroll


class _Seen(NamedTuple):
    """Features [N, ...], and texts of N rows, [N, L] uint8 each."""

    features: observations.Features
    texts: tuple[jax.Array, ...]


class _Model(nn.Module):
    """What is seen [B * T], state [B, 2 * units], steps -> state, logits [B, T, A], value [B, T] of their tasks."""

    torso: str
    width: int
    lstm_width: int
    num_actions: int
    dtype: Any
    own_torso: nn.Module | None = None
    num_values: int = 1

    @nn.compact
    def __call__(self, seen: _Seen, state: jax.Array, steps: Steps) -> tuple[jax.Array, ...]:
        torso = self.own_torso or _Torso(self.torso, self.width, self.dtype)
        x = torso(*seen.features.given).astype(self.dtype)
        if seen.texts:
            read = [text.Encoder(self.dtype)(given) for given in seen.texts]
            x = jnp.concatenate([x.reshape(x.shape[0], -1), *read], axis=-1)
        x = x.reshape(*steps.first.shape, -1)
        if self.lstm_width:
            x = with_past(x, steps, self.num_actions)
            state, x = _Recurrence(self.lstm_width, self.dtype)(state, x, steps.first)
        x = x.astype(jnp.float32)  # bfloat16 has a step of 0.5 at values of 64
        logits = nn.Dense(self.num_actions, kernel_init=nn.initializers.orthogonal(0.01))(x)
        values = nn.Dense(self.num_values, kernel_init=nn.initializers.orthogonal(1.0), name=_VALUE)(x)
        task = jnp.zeros_like(steps.first, jnp.int32) if steps.task is None else steps.task
        if self.num_values == 1:
            return state, logits, values[..., 0]
        return state, logits, jnp.take_along_axis(values, task[..., None], axis=-1)[..., 0]


def with_past(x: jax.Array, steps: Steps, num_actions: int) -> jax.Array:
    """Returns features [B, T, F] with the last reward, clipped to -1 to 1, and the last action behind them.

    Both are 0 where an episode begins.

    num_actions: 0: actions are vectors [B, T, D].
    """
    action = jax.nn.one_hot(steps.last_action, num_actions) if num_actions else steps.last_action
    reward = jnp.clip(steps.reward, -1.0, 1.0)[..., None]
    past = jnp.concatenate([reward.astype(x.dtype), action.astype(x.dtype)], axis=-1)
    return jnp.concatenate([x, jnp.where(steps.first[..., None], 0, past)], axis=-1)


class _Recurrence(nn.Module):
    """An LSTM over T steps that begins anew where an episode does."""

    units: int
    dtype: Any

    @nn.compact
    def __call__(self, state: jax.Array, x: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(cell: nn.Module, carry: Any, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
            x, first = inputs
            carry = jax.tree.map(lambda leaf: jnp.where(first[:, None], 0.0, leaf), carry)
            new, out = cell(carry, x)
            return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), new), out

        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1)
        cell = nn.OptimizedLSTMCell(self.units, dtype=self.dtype)
        carry = tuple(jnp.split(state, 2, axis=-1))
        carry, out = scan(cell, carry, (x, first))
        return jnp.concatenate(carry, axis=-1), out


class _Torso(nn.Module):
    """Observations [N, ...], vectors [N, ...] beside images or None -> features [N, width]."""

    kind: str
    width: int
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array, vector: jax.Array | None = None) -> jax.Array:
        if self.kind == "mlp":
            x = nn.relu(mlp.first(self.width, kernel_init=_ORTHOGONAL)(x.reshape(x.shape[0], -1)))
        x = x.astype(self.dtype)
        if self.kind == "deep":
            x = self._deep(x)
        elif self.kind in ("shallow", "nature"):
            for channels, kernel, stride in SHALLOW if self.kind == "shallow" else NATURE:
                x = nn.relu(nn.Conv(channels, (kernel, kernel), strides=stride, dtype=self.dtype)(x))
        elif self.kind == "conv":
            for _ in range(2):
                x = nn.relu(nn.Conv(max(1, self.width // 4), (3, 3), dtype=self.dtype)(x))
        x = x.reshape(x.shape[0], -1)
        if vector is not None:
            beside = nn.relu(mlp.first(self.width, kernel_init=_ORTHOGONAL, name="vector")(vector))
            x = jnp.concatenate([x, beside.astype(self.dtype)], axis=-1)
        return nn.relu(nn.Dense(self.width, dtype=self.dtype, kernel_init=_ORTHOGONAL)(x))

    def _deep(self, x: jax.Array) -> jax.Array:
        """Returns IMPALA's residual network (figure 3): three times convolution, pooling, two residual blocks."""
        pool: Callable[..., jax.Array] = nn.max_pool
        for channels in DEEP_CHANNELS:
            x = nn.Conv(channels, (3, 3), dtype=self.dtype)(x)
            x = pool(x, (3, 3), strides=(2, 2), padding="SAME")
            for _ in range(2):
                y = nn.Conv(channels, (3, 3), dtype=self.dtype)(nn.relu(x))
                x = x + nn.Conv(channels, (3, 3), dtype=self.dtype)(nn.relu(y))
        return nn.relu(x)


# Flax names parameters by their class: those of saved runs have the names above.
Torso, Recurrence = _Torso, _Recurrence
