"""MuZero's functions for an environment's spec, those of chance among them; flax stays inside, and they are pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.config import muzero_config, shared
from seedzero.core import errors, types, user_code
from seedzero.networks import actor_critic, mlp, observations, recurrence, resnet

# The projection of hidden states in EfficientZero's consistency loss (Ye et al. 2021, section 4.1).
#
# The two networks of SimSiam (Chen and He 2021), with LayerNorm instead of BatchNorm, so that rows are independent.
PROJECTED_IMAGE_UNITS = 1024
"""EfficientZero's number of units for hidden states that are images."""


class Projector(nn.Module):
    """Maps a hidden state [B, ...] to a projection [B, units]; all three layers have `units` units."""

    units: int
    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        x = hidden.reshape(hidden.shape[0], -1)
        for _ in range(2):
            x = nn.Dense(self.units, dtype=self.dtype)(x)
            x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        projected: jax.Array = nn.LayerNorm(dtype=self.dtype)(nn.Dense(self.units, dtype=self.dtype)(x))
        return projected


class Predictor(nn.Module):
    """Maps a projection [B, units] to a prediction of a later observation's projection.

    The hidden layer has half the units.
    """

    units: int
    dtype: Any

    @nn.compact
    def __call__(self, projection: jax.Array) -> jax.Array:
        x = nn.Dense(self.units // 2, dtype=self.dtype)(projection)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(x))
        predicted: jax.Array = nn.Dense(self.units, dtype=self.dtype)(x)
        return predicted


def cosine_similarity(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns the cosine similarity [...] of vectors [..., N], from -1 to 1; 0 for a zero vector.

    Computes in float32.
    """
    return jnp.sum(normalize(a) * normalize(b), axis=-1)


def normalize(x: jax.Array) -> jax.Array:
    """Scales vectors [..., N] to length 1, float32; 0 stays 0."""
    y = x.astype(jnp.float32)
    return y * jax.lax.rsqrt(jnp.sum(jnp.square(y), axis=-1, keepdims=True) + 1e-12)


# The encoder of a model with chance infers a code for what chance has drawn (Antonoglou et al. 2022, section 4).
#
# Shape letters: B batch, C codes.
class Encoder(nn.Module):
    """Maps hidden states [B, ...] of an observation and of the next one to preferences for codes [B, C] float32.

    The code with the highest preference is chosen. Preferences are random at initialization, unlike a head's logits,
    so that different outcomes have different codes from the start. Their squares sum to 1, because no gradient would
    ever reverse a preference that can grow without bound.
    """

    width: int
    num_codes: int
    dtype: Any

    @nn.compact
    def __call__(self, before: jax.Array, after: jax.Array) -> jax.Array:
        x = jnp.concatenate([before, after], axis=-1)
        if x.ndim > 2:
            x = nn.Conv(resnet.HEAD_CHANNELS, (1, 1), use_bias=False, dtype=self.dtype)(x)
            x = nn.LayerNorm(dtype=self.dtype, reduction_axes=(-3, -2, -1), feature_axes=-1)(x)
            x = nn.relu(x).reshape(x.shape[0], -1)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(nn.Dense(self.width, dtype=self.dtype)(x)))
        x = nn.Dense(self.num_codes, dtype=self.dtype)(x).astype(jnp.float32)
        return x * jax.lax.rsqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True) + 1e-2)


# EfficientZero's value prefix (Ye et al. 2021, section 4.2): an LSTM along imagined steps predicts sums of rewards.
Carry: TypeAlias = tuple[jax.Array, jax.Array]
"""Cell and output of the LSTM, both [B, units] in the compute dtype."""

IMAGE_CHANNELS = 16
IMAGE_UNITS = 512
"""EfficientZero's sizes for hidden states that are images."""


class Head(nn.Module):
    """Maps a hidden state [B, ...] and a carry to the next carry and logits [B, num_outputs] float32.

    The logits are exactly 0 at initialization. The LSTM has `units` units, and the layer after it `width`.
    """

    units: int
    width: int
    num_outputs: int
    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array, carry: Carry) -> tuple[Carry, jax.Array]:
        x = hidden
        if x.ndim > 2:
            x = nn.Conv(IMAGE_CHANNELS, (1, 1), use_bias=False, dtype=self.dtype)(x)
            x = nn.relu(nn.LayerNorm(dtype=self.dtype, reduction_axes=(-3, -2, -1), feature_axes=-1)(x))
        x = x.reshape(x.shape[0], -1)
        (cell, output), _ = nn.OptimizedLSTMCell(self.units, dtype=self.dtype)(carry, x)
        x = nn.relu(nn.LayerNorm(dtype=self.dtype)(output))
        x = nn.relu(nn.Dense(self.width, dtype=self.dtype)(x))
        logits = mlp.output(self.num_outputs)(x.astype(jnp.float32))
        return (cell.astype(self.dtype), output.astype(self.dtype)), logits

    def initial_carry(self, batch_size: int) -> Carry:
        """Returns the carry before the first step of a sum."""
        zeros = jnp.zeros((batch_size, self.units), self.dtype)
        return zeros, zeros


Params: TypeAlias = Any
Hidden: TypeAlias = jax.Array

_PLAIN = muzero_config.MuZeroConfig()
"""A network without any of the optional parts."""

AddMoments: TypeAlias = Callable[
    [observations.Moments, observations.Observation, jax.Array, str | None], observations.Moments
]


class Projection(NamedTuple):
    """The projection of hidden states for the consistency loss, as functions of the network's parameters.

    D is its size.
    """

    project: Callable[[Params, Hidden], jax.Array]  # (params, hidden [B, ...]) -> [B, D]
    predict: Callable[[Params, jax.Array], jax.Array]  # (params, projection [B, D]) -> [B, D]


class Prefix(NamedTuple):
    """The dynamics of models that predict sums of rewards, as functions."""

    initial: Callable[[int], Carry]  # batch size -> carry before the first step of a sum
    # (params, hidden, action [B] int32, carry) -> (next hidden, next carry, logits [B, bins] float32 for the sum of
    # rewards since the initial carry, including the edge to the next hidden state)
    step: Callable[[Params, Hidden, jax.Array, Carry], tuple[Hidden, Carry, jax.Array]]


class ChanceFunctions(NamedTuple):
    """The model's step in two functions: an action leads to an afterstate, and a code of chance to the state after it.

    Shape letter: C codes. A code is a number [B] int32, or a row [B, C] with one entry of 1.
    """

    num_codes: int  # C
    decide: Callable[[Params, Hidden, jax.Array], Hidden]  # (params, hidden, action) -> afterstate [B, ...]
    # (params, afterstate) -> (logits [B, C] of codes, value logits [B, bins] for the player who moved), float32
    predict: Callable[[Params, Hidden], tuple[jax.Array, jax.Array]]
    # (params, afterstate, code) -> (next hidden, reward logits), see `Network.dynamics`
    resolve: Callable[[Params, Hidden, jax.Array], tuple[Hidden, jax.Array]]
    # (params, hidden of an observation, of the next one) -> preferences [B, C] for codes of what happened in between
    encode: Callable[[Params, Hidden, Hidden], jax.Array]


class Memory(NamedTuple):
    """A representation with a recurrent core; its state [B, N] float32 is 0 before an episode."""

    # (params, state [B, N], actor_critic.Steps of T steps, begins [B, T] bool or None, as `recurrence.Recurrence` has
    # it) -> (state after them, hidden [B, T, ...])
    unroll: Callable[..., tuple[jax.Array, Hidden]]


class Network(NamedTuple):
    """Pure functions of parameters. Shape letters: B batch, A actions, or D numbers of a continuous action."""

    # key -> parameters, float32. The observations' moments may join them, as `observations.MOMENTS`.
    init: Callable[[jax.Array], Params]
    # parameters -> the same in the compute dtype, except moments and layers computed in float32. Applied once per
    # call, not in every simulation
    cast: Callable[[Params], Params]
    # (params, observation {name: [B, *shape]}) -> hidden [B, ...]. Stacked frames are on the last axis, oldest first;
    # integers are scaled inside
    represent: Callable[[Params, observations.Observation], Hidden]
    # (params, hidden) -> (policy logits [B, A], or [B, D * bins] as in ops.binned_actions; value logits [B, bins], and
    # one more where ends are predicted), float32
    predict: Callable[[Params, Hidden], tuple[jax.Array, jax.Array]]
    # (params, hidden, action [B] int32, or [B, D] in -1 to 1) -> (next hidden, reward logits [B, bins] float32, and
    # one more where turns are predicted); the reward is that of the edge to the next hidden state. With chance by the
    # likeliest code
    dynamics: Callable[[Params, Hidden, jax.Array], tuple[Hidden, jax.Array]]
    # () -> moments before the first batch; None: nothing is normalized, and the parameters hold none
    no_moments: Callable[[], observations.Moments | None] = lambda: None
    # (moments, observation, counted [B] bool, axis name) -> moments with these observations added
    add_moments: AddMoments = lambda moments, *_: moments
    projection: Projection | None = None  # for the consistency loss; None: no parameters for it
    prefix: Prefix | None = None  # replaces `dynamics`; None: the model predicts rewards, not their sums
    memory: Memory | None = None  # follows `represent`; None: a single observation makes a hidden state
    chance: ChanceFunctions | None = None  # the parts of `dynamics`; None: an action has one outcome


class _Model(nn.Module):
    """MuZero's three functions with a common tree of parameters."""

    representation: nn.Module
    transition: nn.Module
    policy_head: nn.Module
    value_head: nn.Module
    reward_head: nn.Module
    # the rest: modules, or None if nothing asks for them
    projector: Any = None
    predictor: Any = None
    core: Any = None
    outcome: Any = None
    code_head: Any = None
    afterstate_head: Any = None
    encoder: Any = None

    def represent(self, *seen: jax.Array) -> Any:
        return self.representation(*seen)

    def predict(self, hidden: jax.Array) -> Any:
        return self.policy_head(hidden), self.value_head(hidden)

    def dynamics(self, hidden: jax.Array, action: jax.Array) -> Any:
        hidden = self.transition(hidden, action)
        return hidden, self.reward_head(hidden)

    def step(self, hidden: jax.Array, action: jax.Array, carry: Carry) -> Any:
        hidden = self.transition(hidden, action)
        carry, logits = self.reward_head(hidden, carry)
        return hidden, carry, logits

    def remember(self, hidden: jax.Array, *past: Any) -> Any:
        return self.core(hidden, *past)

    def decide(self, hidden: jax.Array, action: jax.Array) -> Any:
        return self.transition(hidden, action)

    def predict_codes(self, afterstate: jax.Array) -> Any:
        return self.code_head(afterstate), self.afterstate_head(afterstate)

    def resolve(self, afterstate: jax.Array, code: jax.Array) -> Any:
        hidden = self.outcome(afterstate, code)
        return hidden, self.reward_head(hidden)

    def encode(self, before: jax.Array, after: jax.Array) -> Any:
        return self.encoder(before, after)

    def project(self, hidden: jax.Array) -> Any:
        return self.projector(hidden)

    def predict_projection(self, x: jax.Array) -> Any:
        return self.predictor(x)


def make(
    config: shared.NetworkConfig,
    spec: types.EnvSpec,
    platform: str,
    muzero: muzero_config.MuZeroConfig = _PLAIN,
) -> Network:
    """Returns the network for an environment, with the parts that MuZero's settings ask for.

    With sums of rewards (`value_prefix`) `dynamics` cannot be called. Raises ConfigError if the kind does not fit the
    observation's shape, or a user's network lacks a part.
    """
    has_projection, memory, num_codes = muzero.consistency_weight > 0, muzero.memory, muzero.chance_codes
    kind = shared.choose_kind("network.kind", config.kind, spec)
    dtype = observations.compute_dtype(config.compute_dtype, platform)
    model = _own_model(config, spec) if config.module else _model(kind, config, spec, dtype, muzero.predict_ends)
    if has_projection:
        units = PROJECTED_IMAGE_UNITS if kind == "resnet" else 2 * config.width
        model = model.clone(projector=Projector(units, dtype), predictor=Predictor(units, dtype))
    units = IMAGE_UNITS if kind == "resnet" else config.width
    prefix_head = Head(units, config.head_width, config.num_bins + spec.moves_again, dtype)
    if muzero.value_prefix:
        model = model.clone(reward_head=prefix_head)
    if memory != "none":
        model = model.clone(core=recurrence.HiddenCore(memory, muzero.memory_width, spec.num_actions, dtype))
    if num_codes:
        model = _with_chance(model, kind, config, num_codes, dtype)
    inputs = observations.InputFunctions(
        kind, spec, config.frame_stack, config.normalize_observations, pixels=config.normalize_pixels
    )

    def first_inputs() -> tuple[observations.Features, jax.Array]:
        nothing = inputs.features(None, observations.zeros(spec, config.frame_stack, 1))
        return nothing, jnp.zeros((1, *spec.action_shape), jnp.float32 if spec.is_continuous else jnp.int32)

    def init(key: jax.Array) -> Params:
        return model.init(key, *first_inputs(), method=_call_all)["params"]

    def method(name: str) -> Callable[..., Any]:
        def call(params: Params, *inputs: Any) -> Any:
            return model.apply({"params": params}, *inputs, method=name)

        return jax.jit(call)

    if config.module:
        _check_shapes(model, first_inputs, config, _num_policy_logits(config, spec))
    of_features = method("represent")

    def represent(params: Params, observation: observations.Observation) -> Hidden:
        hidden: Hidden = of_features(params, *inputs.features(params.get(observations.MOMENTS), observation).given)
        return hidden

    of_chance = (
        ChanceFunctions(num_codes, *map(method, ("decide", "predict_codes", "resolve", "encode")))
        if num_codes
        else None
    )
    return Network(
        init=init,
        cast=(lambda params: params) if config.module else lambda params: _cast(params, kind, dtype),
        represent=represent,
        predict=method("predict"),
        dynamics=method("dynamics") if of_chance is None else _likeliest(of_chance),
        no_moments=inputs.no_moments,
        add_moments=inputs.add_moments,
        projection=Projection(method("project"), method("predict_projection")) if has_projection else None,
        prefix=Prefix(prefix_head.initial_carry, method("step")) if muzero.value_prefix else None,
        memory=None if memory == "none" else _memory(represent, method("remember")),
        chance=of_chance,
    )


def _likeliest(of_chance: ChanceFunctions) -> Callable[[Params, Hidden, jax.Array], tuple[Hidden, jax.Array]]:
    """Returns the dynamics that follow the likeliest code."""

    def dynamics(params: Params, hidden: Hidden, action: jax.Array) -> tuple[Hidden, jax.Array]:
        afterstate = of_chance.decide(params, hidden, action)
        logits, _ = of_chance.predict(params, afterstate)
        return of_chance.resolve(params, afterstate, jnp.argmax(logits, axis=-1))

    return dynamics


def _memory(represent: Callable[..., Hidden], remember: Callable[..., tuple[jax.Array, Hidden]]) -> Memory:
    def unroll(
        params: Params, state: jax.Array, steps: actor_critic.Steps, begins: jax.Array | None = None
    ) -> tuple[jax.Array, Hidden]:
        hidden = represent(params, observations.flat(steps.observation))
        hidden = hidden.reshape(*steps.first.shape, *hidden.shape[1:])
        return remember(params, hidden, state, steps.first, steps.reward, steps.last_action, begins)

    return Memory(unroll)


def _cast(params: Params, kind: str, dtype: Any) -> Params:
    def cast(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        module, layer = path[0].key, path[1].key if len(path) > 2 else ""
        first = mlp.INPUT_LAYER if kind == "mlp" else mlp.VECTOR_LAYERS
        is_input = (module, layer) == ("representation", first)
        is_output = module.endswith("_head") and layer == mlp.OUTPUT_LAYER
        return leaf if module == observations.MOMENTS or is_input or is_output else leaf.astype(dtype)

    return jax.tree_util.tree_map_with_path(cast, params)


def _model(kind: str, config: shared.NetworkConfig, spec: types.EnvSpec, dtype: Any, has_ends: bool) -> _Model:
    """Returns the model. has_ends: the value head's last logit predicts that the episode continues.

    Where a player may move again, the reward head's last logit predicts that the turn passes.
    """
    transition: nn.Module = mlp.Dynamics(spec.num_actions, dtype, gated=config.gated)
    head: Callable[..., nn.Module] = mlp.Head
    representation: nn.Module = mlp.Representation(config.width, dtype)
    if kind == "resnet":
        size = resnet.SIZES[config.resnet_size]
        representation, head = resnet.Representation(size, dtype), resnet.Head
        transition = resnet.Dynamics(size, spec.num_actions, dtype)
    elif kind == "conv":
        channels = config.channels or max(1, config.width // 2)
        representation = mlp.GridRepresentation(config.width, channels, dtype, config.pooled, config.first_stride)
    return _Model(
        representation=representation,
        transition=transition,
        policy_head=head(config.head_width, _num_policy_logits(config, spec), dtype),
        value_head=head(config.head_width, config.num_bins + has_ends, dtype),
        reward_head=head(config.head_width, config.num_bins + spec.moves_again, dtype),
    )


def _with_chance(model: Any, kind: str, config: shared.NetworkConfig, num_codes: int, dtype: Any) -> Any:
    """Returns the model with the functions for codes; its transition then leads to afterstates."""
    head: Callable[..., nn.Module] = resnet.Head if kind == "resnet" else mlp.Head
    outcome: nn.Module = mlp.Dynamics(num_codes, dtype, gated=config.gated)
    if kind == "resnet":
        outcome = resnet.Dynamics(resnet.SIZES[config.resnet_size], num_codes, dtype)
    return model.clone(
        outcome=outcome,
        code_head=head(config.head_width, num_codes, dtype),
        afterstate_head=head(config.head_width, config.num_bins, dtype),
        encoder=Encoder(config.head_width, num_codes, dtype),
    )


def _num_policy_logits(config: shared.NetworkConfig, spec: types.EnvSpec) -> int:
    return spec.num_actions or len(spec.action_low) * config.action_bins


def _call_all(model: Any, seen: observations.Features, action: jax.Array) -> Any:
    """Calls all functions of a model, so that all parameters are created; returns hidden states and outputs."""
    hidden = model.represent(*seen.given)
    if isinstance(model, _Model):
        if model.projector is not None:
            model.predict_projection(model.project(hidden))
        if isinstance(model.core, recurrence.HiddenCore):
            one, state = jnp.zeros((1, 1)), recurrence.state_width(model.core.kind, model.core.units)
            model.remember(hidden[:, None], jnp.zeros((1, state)), one > 0, one, action[:, None])
        if isinstance(model.reward_head, Head):
            carry = model.reward_head.initial_carry(len(action))
            return hidden, model.predict(hidden), model.step(hidden, action, carry)
        if isinstance(model.encoder, Encoder):
            afterstate = model.decide(hidden, action)
            code = jnp.argmax(model.encode(hidden, hidden), axis=-1)
            return hidden, model.predict(hidden), model.predict_codes(afterstate), model.resolve(afterstate, code)
    return hidden, model.predict(hidden), model.dynamics(hidden, action)


# User-defined networks --------------------------------------------------------------------------------------------


def _own_model(config: shared.NetworkConfig, spec: types.EnvSpec) -> nn.Module:
    """Returns the Flax module that the user's function makes from spec and configuration.

    Its methods are those of `_Model`: represent, predict and dynamics, with the shapes of `Network`. Observations are
    float32 and stacked, with integers scaled; parameters are never cast.

    Raises:
      ConfigError: there is no such function, or it returns something else.
    """
    model = user_code.load(config.module)(spec, config)
    names = ("represent", "predict", "dynamics")
    missing = [name for name in names if not callable(getattr(model, name, None))]
    if not isinstance(model, nn.Module) or missing:
        raise errors.ConfigError(
            f"--network.module={config.module} returns {type(model).__name__}; expected a flax.linen.Module with the "
            f"methods {', '.join(names)}"
        )
    return model


def _check_shapes(
    model: nn.Module, inputs: Callable[[], Any], config: shared.NetworkConfig, num_policy_logits: int
) -> None:
    """Raises ConfigError if outputs of a user's network do not have the shapes of `Network`."""
    found = jax.eval_shape(lambda: model.init_with_output(jax.random.key(0), *inputs(), method=_call_all)[0])
    hidden, (policy, value), (after, reward) = found
    for name, came, expected in (
        ("predict's policy logits", policy, (1, num_policy_logits)),
        ("predict's value logits", value, (1, config.num_bins)),
        ("dynamics' hidden state", after, hidden.shape),
        ("dynamics' reward logits", reward, (1, config.num_bins)),
    ):
        if came.shape != expected:
            raise errors.ConfigError(
                f"--network.module={config.module}: {name} of one row have the shape {list(came.shape)}; expected "
                f"{list(expected)}"
            )
