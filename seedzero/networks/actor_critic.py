"""Networks of agents without a model: a torso, an optional LSTM after it, and one of three heads.

V-trace's head predicts a policy and a value (IMPALA, Espeholt et al. 2018). That of Ape-X and R2D2 has the dueling
streams of Q values (Wang et al. 2016). PPO's head predicts a policy and a value, from two networks for vectors or from
one with convolutions for grids and images; with an LSTM, both come from one torso. A torso that does not fit the
observations raises ConfigError.

Shape letters: B batch, T steps of an unroll, A actions, K numbers of PPO's policy: logits of actions, or means of a
continuous action's numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.config import shared
from seedzero.core import types
from seedzero.networks import mlp, observations, own_torso, recurrence
from seedzero.ops import torso_ops

# A value that sees all that training sees: an agent's own observation, and arrays for training alone.
#
# MAPPO (Yu et al. 2022, arXiv 2103.01955) has such a value: it may see all agents, because acting does not need it.
#
# Shape letters: N rows.
PARAMS = "central_value"
"""Name of its parameters among the agent's; acting does without them."""


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


def without_central_value(params: Any) -> Any:
    """Returns an agent's parameters without those of its central value."""
    return {name: part for name, part in params.items() if name != PARAMS} if PARAMS in params else params


def make_central_value(layers: shared.NetworkConfig, spec: types.EnvSpec, platform: str) -> CentralValue:
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


# Encodes texts: hashed words are embedded, and an LSTM reads them (IMPALA, Espeholt et al. 2018, figure 3).
NUM_WORDS, NUM_BUCKETS = 24, 1000
EMBEDDING_WIDTH, LSTM_WIDTH = 20, 64


class Encoder(nn.Module):
    """Maps texts [N, L] uint8 to features [N, LSTM_WIDTH], the state after the last word.

    0 for texts without words.
    """

    dtype: Any

    @nn.compact
    def __call__(self, text: jax.Array) -> jax.Array:
        words = torso_ops.words(text, NUM_WORDS, NUM_BUCKETS)
        embedded = nn.Embed(NUM_BUCKETS + 1, EMBEDDING_WIDTH, dtype=self.dtype)(words)

        def step(cell: nn.Module, carry: Any, word: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
            x, is_word = word
            new, _ = cell(carry, x)
            return jax.tree.map(lambda a, b: jnp.where(is_word[:, None], a, b), new, carry), None

        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False}, in_axes=1)
        none = jnp.zeros((text.shape[0], LSTM_WIDTH), self.dtype)
        (_, hidden), _ = scan(nn.OptimizedLSTMCell(LSTM_WIDTH, dtype=self.dtype), (none, none), (embedded, words > 0))
        found: jax.Array = hidden
        return found


Params: TypeAlias = Any
Out = TypeVar("Out")

_DEEP_CHANNELS = (16, 32, 32)
_CONVOLUTIONS = {
    "shallow": ((16, 8, 4), (32, 4, 2)),
    "nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
    "patches": ((32, 4, 4), (32, 3, 2)),
}
"""Channels, kernel size and stride (nature: Mnih et al. 2015)."""
_ORTHOGONAL = nn.initializers.orthogonal(2**0.5)
_VALUE = "Dense_1"
"""Name of the layer of V-trace's value in saved runs."""
_RECURRENCE = "_Recurrence_0"
"""Name of the LSTM in saved runs."""
_ILLEGAL = -1e9


class Steps(NamedTuple):
    """Inputs to a network for T steps."""

    observation: Mapping[str, jax.Array]  # {name: [B, T, *shape]}, stacked frames on the last axis
    first: jax.Array  # [B, T] bool, true: an episode begins; the recurrent state is 0 there
    # [B, T] received on the way to the observation; an LSTM reads it, except where an episode begins
    reward: jax.Array
    # [B, T] int32 of the step before, or [B, T, K] in -1 to 1 if continuous; read like `reward`
    last_action: jax.Array
    # [B, T] int32, the task whose value is wanted, if each has one; None: the first task
    task: jax.Array | None = None

    @classmethod
    def single(cls, *inputs: Any) -> Steps:
        """Returns one step from the fields' arrays without the axis T."""
        found: Steps = jax.tree.map(lambda x: x[:, None], cls(*inputs))
        return found


class Past(NamedTuple):
    """What an agent with an LSTM remembers: its state [B, 2 * units], and the last action as in `Steps`."""

    state: jax.Array
    action: jax.Array


class RecurrentNetwork(NamedTuple, Generic[Out]):
    """Pure functions of parameters; all numbers are float32."""

    init: Callable[[jax.Array], Params]  # key -> parameters
    # batch size -> recurrent state [B, 2 * LSTM units]; [B, 0] without an LSTM
    initial_state: Callable[[int], jax.Array]
    # (params, state, Steps) -> (state after them, outputs of the head ...). Moments as the last argument normalize
    # the features
    unroll: Callable[..., Out]
    # the same function for use in loops; on a CPU, PPO's convolutions are matrix products then
    unroll_in_loop: Callable[..., Out]
    # () -> moments before the first batch; None: nothing is normalized
    no_moments: Callable[[], observations.Moments | None] = lambda: None
    # (moments, observation, counted [N] bool, axis_name) -> moments with these observations added
    add_moments: Callable[..., observations.Moments] = lambda moments, *_: moments


class PpoPrediction(NamedTuple):
    """Outputs of the network for T steps, float32."""

    policy: jax.Array  # [B, T, K] logits, or means of a normal distribution over continuous actions that fill -1 to 1
    # [K] logs of its standard deviations, the same for all observations; [0] for discrete actions
    log_std: jax.Array
    value: jax.Array  # [B, T]


def no_past(network: RecurrentNetwork[Any], spec: types.EnvSpec, num_rows: int) -> Past:
    """Returns the past before the first observation; without an LSTM its state has no numbers."""
    dtype = jnp.float32 if spec.is_continuous else jnp.int32
    return Past(network.initial_state(num_rows), jnp.zeros((num_rows, *spec.action_shape), dtype))


def masked(logits: jax.Array, legal: jax.Array | None) -> jax.Array:
    """Makes the logits [..., A] of illegal actions far lower than all others; legal: bool, or None if all are."""
    return logits if legal is None else jnp.where(legal, logits, _ILLEGAL)


def rescale(params: Params, factor: jax.Array, shift: jax.Array) -> Params:
    """Returns V-trace's parameters changed so that the value v of task i becomes factor_i v + shift_i.

    Both are [N].
    """
    head = params[_VALUE]
    return {**params, _VALUE: {"kernel": head["kernel"] * factor, "bias": head["bias"] * factor + shift}}


def actor_critic(
    layers: shared.NetworkConfig, spec: types.EnvSpec, platform: str, *, num_values: int = 1
) -> RecurrentNetwork[tuple[jax.Array, jax.Array, jax.Array]]:
    """Returns V-trace's network for discrete actions, with outputs state, policy logits [B, T, A], values [B, T].

    num_values: N, the number of tasks with their own values.
    """
    return _with_moments(_network(_ActorCritic, layers, spec, platform, "deep", num_values=num_values))


def dueling(
    layers: shared.NetworkConfig, spec: types.EnvSpec, platform: str
) -> RecurrentNetwork[tuple[jax.Array, jax.Array]]:
    """Returns the network for Q-learning with discrete actions: state, Q values [B, T, A]."""
    return _with_moments(_network(_Dueling, layers, spec, platform, "nature"))


def ppo(
    layers: shared.NetworkConfig, spec: types.EnvSpec, platform: str, *, initial_std: float
) -> RecurrentNetwork[tuple[jax.Array, PpoPrediction]]:
    """Returns PPO's network: state, prediction. Policy and value share the features of a user's torso."""
    more = {"num_dimensions": len(spec.action_low), "initial_std": initial_std}
    return _network(_Ppo, layers, spec, platform, "nature", layers.normalize_observations, **more)


def _with_moments(network: RecurrentNetwork[Any]) -> RecurrentNetwork[Any]:
    """Moves the network's moments, if any, into its parameters."""
    if network.no_moments() is None:
        return network

    def reading(unroll: Callable[..., Any]) -> Callable[..., Any]:
        return lambda params, state, steps: unroll(params, state, steps, params[observations.MOMENTS])

    return network._replace(
        init=lambda key: {**network.init(key), observations.MOMENTS: network.no_moments()},
        unroll=reading(network.unroll),
        unroll_in_loop=reading(network.unroll_in_loop),
    )


def _network(
    head: Any,
    layers: shared.NetworkConfig,
    spec: types.EnvSpec,
    platform: str,
    of_images: str,
    normalizes: bool = False,
    **more: Any,
) -> RecurrentNetwork[Any]:
    """Returns a network with a head, which is a `_Model`, and its own fields. of_images: the torso for images.

    A user's torso replaces it; it maps prepared observations [N, ...] to features [N, F], or of any other shape.
    """
    own = own_torso.load(layers, spec)
    kind = shared.choose_kind("network.kind", layers.kind, spec)
    layers = dataclasses.replace(layers, kind=of_images if kind == "resnet" else kind)
    inputs = observations.InputFunctions(
        layers.kind, spec, layers.frame_stack, normalizes, pixels=layers.normalize_pixels
    )
    dtype = observations.compute_dtype(layers.compute_dtype, platform)
    model: _Model = head(layers, spec.num_actions, dtype, own_torso=own, **more)

    def see(observation: observations.Observation, moments: observations.Moments | None) -> _Seen:
        # the newest one
        texts = [observation[array.name][..., -array.shape[0] :] for array in spec.arrays if array.text]
        return _Seen(inputs.features(moments, observation), tuple(texts))

    def initial_state(num_rows: int) -> jax.Array:
        return jnp.zeros((num_rows, 2 * layers.lstm_width))

    def unroll_by(model: _Model) -> Callable[..., Any]:
        def unroll(params: Params, state: jax.Array, steps: Steps, moments: observations.Moments | None = None) -> Any:
            seen = see(observations.flat(steps.observation), moments)
            return model.apply({"params": params}, seen, state, steps._replace(observation={}))

        return unroll

    def init(key: jax.Array) -> Params:
        one, dtype = jnp.zeros((1, 1)), jnp.float32 if spec.is_continuous else jnp.int32
        steps = Steps({}, one > 0, one, jnp.zeros((1, 1, *spec.action_shape), dtype))
        return model.init(key, see(observations.zeros(spec, layers.frame_stack, 1), None), initial_state(1), steps)[
            "params"
        ]

    in_loop = model.clone(convolve=torso_ops.convolve) if platform == "cpu" else model
    return RecurrentNetwork(
        init, initial_state, unroll_by(model), unroll_by(in_loop), inputs.no_moments, inputs.add_moments
    )


class _Seen(NamedTuple):
    """Features [N, ...], and texts of N rows, [N, L] uint8 each."""

    features: observations.Features
    texts: tuple[jax.Array, ...]


class _Model(nn.Module):
    """Maps observations [B * T], state [B, 2 * units] and steps to the state and the head's outputs [B, T, ...].

    Flax names parameters by classes and their order; saved runs have the names in this file, so keep them.
    """

    layers: shared.NetworkConfig
    num_actions: int  # 0: continuous
    dtype: Any
    convolve: Any = None  # instead of `lax.conv_general_dilated`
    own_torso: nn.Module | None = None

    @nn.compact
    def __call__(self, seen: _Seen, state: jax.Array, steps: Steps) -> tuple[Any, ...]:
        x = jax.tree.map(lambda x: x.reshape(*steps.first.shape, -1), self.torso(*seen))
        if self.layers.lstm_width:
            x = recurrence.with_past(x.astype(self.dtype), *steps[1:4], num_actions=self.num_actions)
            core = recurrence.Recurrence("lstm", self.layers.lstm_width, self.dtype, name=_RECURRENCE)
            state, x = core(state, x, steps.first)
        return state, *self.head(x, steps)

    def torso(self, features: observations.Features, texts: tuple[jax.Array, ...]) -> Any:
        """Returns features [N, F]."""
        if self.own_torso is not None:
            with own_torso.convolving(self.convolve):
                x = self.own_torso(*features.given)
            return x.reshape(x.shape[0], -1).astype(self.dtype)
        return _Torso(self.layers.kind, self.layers.width, self.dtype)(*features.given)

    def head(self, x: Any, steps: Steps) -> tuple[Any, ...]:
        """Returns the outputs for features [B, T, F]."""
        raise NotImplementedError


class _ActorCritic(_Model):
    """Predicts logits [B, T, A], and values [B, T] of the steps' tasks. See `actor_critic`."""

    num_values: int = 1

    def torso(self, features: observations.Features, texts: tuple[jax.Array, ...]) -> jax.Array:
        x = super().torso(features, texts)
        read = [Encoder(self.dtype)(given) for given in texts]
        return jnp.concatenate([x.reshape(x.shape[0], -1).astype(self.dtype), *read], axis=-1)

    def head(self, x: jax.Array, steps: Steps) -> tuple[jax.Array, jax.Array]:
        logits, values = _policy_and_values(x, x, (self.num_actions, None), (self.num_values, _VALUE))
        if self.num_values == 1:
            return logits, values[..., 0]
        task = jnp.zeros_like(steps.first, jnp.int32) if steps.task is None else steps.task
        return logits, jnp.take_along_axis(values, task[..., None], axis=-1)[..., 0]


class _Dueling(_Model):
    """Predicts Q values [B, T, A]."""

    def head(self, x: jax.Array, steps: Steps) -> tuple[jax.Array]:
        value, advantage = self._stream(x, 1), self._stream(x, self.num_actions)
        return (value + advantage - jnp.mean(advantage, axis=-1, keepdims=True),)  # equation 9

    def _stream(self, x: jax.Array, size: int) -> jax.Array:
        """Returns [B, T, size].

        The last layer computes in float32, because bfloat16 has a step of 0.5 at values of 64.
        """
        x = nn.relu(nn.Dense(self.layers.width, dtype=self.dtype)(x)).astype(jnp.float32)
        return nn.Dense(size)(x)


class _Ppo(_Model):
    """Predicts what PPO needs.

    num_dimensions: of continuous actions; 0 for discrete ones. initial_std: of continuous actions.
    """

    num_dimensions: int = 0
    initial_std: float = 1.0

    def torso(self, features: observations.Features, texts: tuple[jax.Array, ...]) -> Any:
        layers = self.layers
        if self.own_torso is not None:
            return super().torso(features, texts).astype(jnp.float32)
        if layers.kind == "mlp" and layers.lstm_width:
            return self._vectors(features.main, "torso")
        if layers.kind == "mlp":
            # What a small network learns about values, on the scale of returns, would drown what the policy needs.
            return self._vectors(features.main, "policy"), self._vectors(features.main, "value")
        small = ((max(1, layers.width // 8), 3, 1),)
        convolutions = _CONVOLUTIONS.get(layers.kind, small)
        convolutions = tuple((layers.channels or own, size, stride) for own, size, stride in convolutions)
        x = _convolved(
            features.main, convolutions, self.dtype, kernel_init=_ORTHOGONAL, conv_general_dilated=self.convolve
        )
        return _joined(x, features.vector, layers.width, self.dtype, name="torso").astype(jnp.float32)

    def _vectors(self, x: jax.Array, name: str) -> jax.Array:
        x = x.reshape(x.shape[0], -1)
        x = nn.tanh(mlp.first(self.layers.width, kernel_init=_ORTHOGONAL, name=f"{name}_0")(x))
        return nn.tanh(_dense(self.layers.width, self.dtype, name=f"{name}_1")(x)).astype(jnp.float32)

    def head(self, x: Any, steps: Steps) -> tuple[PpoPrediction]:
        policy, value = x if isinstance(x, tuple) else (x, x)
        num_outputs = self.num_actions or self.num_dimensions
        policy, value = _policy_and_values(policy, value, (num_outputs, "policy"), (1, "value"))
        log_std = jnp.zeros(0)
        if not self.num_actions:
            first = nn.initializers.constant(jnp.log(self.initial_std))
            log_std = self.param("log_std", first, (num_outputs,), jnp.float32)
        return (PpoPrediction(policy, log_std, value[..., 0]),)


def _policy_and_values(
    policy: jax.Array, value: jax.Array, of_policy: tuple[int, str | None], of_value: tuple[int, str]
) -> tuple[jax.Array, jax.Array]:
    """Returns the outputs [B, T, size] of two layers for features [B, T, F]; each layer has a size and a name."""
    # In float32, because bfloat16 has a step of 0.5 at values of 64.
    policy, value = policy.astype(jnp.float32), value.astype(jnp.float32)
    policy = nn.Dense(of_policy[0], kernel_init=nn.initializers.orthogonal(0.01), name=of_policy[1])(policy)
    return policy, nn.Dense(of_value[0], kernel_init=nn.initializers.orthogonal(1.0), name=of_value[1])(value)


class _Torso(nn.Module):
    """Maps observations [N, ...], and vectors [N, ...] next to images or None, to features [N, width]."""

    kind: str
    width: int
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array, vector: jax.Array | None = None) -> jax.Array:
        if self.kind == "mlp":
            x = nn.relu(mlp.first(self.width, kernel_init=_ORTHOGONAL)(x.reshape(x.shape[0], -1)))
        elif self.kind == "deep":
            x = _residual(x, self.dtype)
        else:
            small = ((max(1, self.width // 4), 3, 1),) * 2
            x = _convolved(x, _CONVOLUTIONS.get(self.kind, small), self.dtype)
        return _joined(x, vector, self.width, self.dtype)


def _residual(x: jax.Array, dtype: Any) -> jax.Array:
    """Applies IMPALA's residual network (figure 3): three times a convolution, pooling, and two residual blocks."""
    pool: Callable[..., jax.Array] = nn.max_pool
    for channels in _DEEP_CHANNELS:
        x = nn.Conv(channels, (3, 3), dtype=dtype)(x)
        x = pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for _ in range(2):
            y = nn.Conv(channels, (3, 3), dtype=dtype)(nn.relu(x))
            x = x + nn.Conv(channels, (3, 3), dtype=dtype)(nn.relu(y))
    return nn.relu(x)


def _convolved(x: jax.Array, convolutions: tuple[tuple[int, int, int], ...], dtype: Any, **more: Any) -> jax.Array:
    """Applies convolutions to images [N, H, W, C]; more: arguments for each."""
    for channels, size, stride in convolutions:
        x = nn.relu(nn.Conv(channels, (size, size), stride, dtype=dtype, **more)(x))
    return x


def _joined(x: jax.Array, vector: jax.Array | None, width: int, dtype: Any, name: str | None = None) -> jax.Array:
    """Returns features [N, width] from x [N, ...] and, next to images, a vector [N, ...]."""
    x = x.reshape(x.shape[0], -1)
    if vector is not None:
        beside = nn.relu(mlp.first(width, kernel_init=_ORTHOGONAL, name="vector")(vector))
        x = jnp.concatenate([x, beside.astype(dtype)], axis=-1)
    return nn.relu(_dense(width, dtype, name=name)(x))


def _dense(width: int, dtype: Any, *, name: str | None) -> nn.Dense:
    return nn.Dense(width, dtype=dtype, kernel_init=_ORTHOGONAL, name=name)
