"""MuZero's three functions, made for what the environment shows: flax inside, pure functions outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from seedzero.config import config as configuration
from seedzero.core import errors, types
from seedzero.networks import conv, mlp, projection, resnet
from seedzero.networks import prefix as prefix_lib

Params: TypeAlias = Any
Hidden: TypeAlias = jax.Array

SMALLEST_IMAGE = 32
"""Grids whose shorter side has at least so many cells are taken for images."""


class Projection(NamedTuple):
    """What the consistency loss compares hidden states in, as functions of the network's parameters; D is its size.

    Attributes:
      project: (params, hidden [B, ...]) -> [B, D].
      predict: (params, projection [B, D]) -> [B, D].
    """

    project: Callable[[Params, Hidden], jax.Array]
    predict: Callable[[Params, jax.Array], jax.Array]


class Prefix(NamedTuple):
    """What stands in for the dynamics function where sums of rewards are predicted, as functions.

    Attributes:
      initial: batch size -> carry before the first step of a sum.
      step: (params, hidden, action [B] int32, carry) -> (next hidden, next carry, logits [B, bins] float32 of the sum
        of the rewards since the initial carry, that of the edge to the next hidden state included).
    """

    initial: Callable[[int], prefix_lib.Carry]
    step: Callable[[Params, Hidden, jax.Array, prefix_lib.Carry], tuple[Hidden, prefix_lib.Carry, jax.Array]]


class Network(NamedTuple):
    """Pure functions of parameters. Shape letters: B batch, A actions, or D numbers of a continuous action.

    Attributes:
      init: key -> parameters, float32.
      cast: parameters -> the same in the compute dtype. Done once a call, not in every simulation.
      represent: (params, observation [B, *shape]) -> hidden [B, ...]. Stacked frames lie on the last axis, oldest
        first; integers are scaled inside.
      predict: (params, hidden) -> (policy logits [B, A], or [B, D * bins] as in ops.binned_actions; value logits
        [B, bins]), float32.
      dynamics: (params, hidden, action [B] int32, or [B, D] in -1 to 1) -> (next hidden, reward logits [B, bins]
        float32); the reward is that of the edge that leads to the next hidden state.
      projection: for the consistency loss; None: there is none, and no parameters for it.
      prefix: to be used in place of `dynamics`; None: rewards are predicted, not their sums.
    """

    init: Callable[[jax.Array], Params]
    cast: Callable[[Params], Params]
    represent: Callable[[Params, jax.Array], Hidden]
    predict: Callable[[Params, Hidden], tuple[jax.Array, jax.Array]]
    dynamics: Callable[[Params, Hidden, jax.Array], tuple[Hidden, jax.Array]]
    projection: Projection | None = None
    prefix: Prefix | None = None


class _Model(nn.Module):
    """Three functions that share one tree of parameters."""

    representation: nn.Module
    transition: nn.Module
    policy_head: nn.Module
    value_head: nn.Module
    reward_head: nn.Module
    projector: nn.Module | None = None
    predictor: nn.Module | None = None

    def __call__(self, observation: jax.Array, action: jax.Array) -> Any:
        hidden = self.represent(observation)
        if self.projector is not None:
            self.predict_projection(self.project(hidden))
        if isinstance(self.reward_head, prefix_lib.Head):
            return self.predict(hidden), self.step(hidden, action, self.reward_head.initial_carry(len(action)))
        return self.predict(hidden), self.dynamics(hidden, action)

    def represent(self, observation: jax.Array) -> Any:
        return self.representation(observation)

    def predict(self, hidden: jax.Array) -> Any:
        return self.policy_head(hidden), self.value_head(hidden)

    def dynamics(self, hidden: jax.Array, action: jax.Array) -> Any:
        hidden = self.transition(hidden, action)
        return hidden, self.reward_head(hidden)

    def step(self, hidden: jax.Array, action: jax.Array, carry: prefix_lib.Carry) -> Any:
        hidden = self.transition(hidden, action)
        carry, logits = self.reward_head(hidden, carry)
        return hidden, carry, logits

    def project(self, hidden: jax.Array) -> Any:
        assert self.projector is not None
        return self.projector(hidden)

    def predict_projection(self, x: jax.Array) -> Any:
        assert self.predictor is not None
        return self.predictor(x)


def make(
    config: configuration.NetworkConfig,
    spec: types.EnvSpec,
    platform: str,
    *,
    has_projection: bool = False,
    has_prefix: bool = False,
) -> Network:
    """Returns the network for an environment.

    Args:
      config: kind, size, bins, dtype.
      spec: what one newest frame looks like, and the number of actions.
      platform: "cpu", "gpu" or "tpu"; decides the compute dtype where config says "auto".
      has_projection: whether it has what the consistency loss needs.
      has_prefix: whether it predicts sums of rewards; then it has no `dynamics` that could be called.

    Raises:
      ConfigError: the kind does not fit the observation's shape.
    """
    kind = choose_kind(config, spec.observation_shape)
    dtype = compute_dtype(config, platform)
    model = _model(kind, config, spec, dtype)
    if has_projection:
        model = _with_projection(model, kind, config, dtype)
    prefix_head = _prefix_head(kind, config, dtype)
    if has_prefix:
        model = model.clone(reward_head=prefix_head)
    prepare = _preparation(kind, spec, config.frame_stack)
    stacked_shape = stack_shape(spec.observation_shape, config.frame_stack)

    def init(key: jax.Array) -> Params:
        observation = prepare(jnp.zeros((1, *stacked_shape), spec.observation_dtype))
        action = jnp.zeros((1, *spec.action_shape), jnp.float32 if spec.is_continuous else jnp.int32)
        return model.init(key, observation, action)["params"]

    def cast(params: Params) -> Params:
        return jax.tree.map(lambda leaf: leaf.astype(dtype), params)

    def method(name: str) -> Callable[..., Any]:
        return lambda params, *inputs: model.apply({"params": params}, *inputs, method=name)

    represent = method("represent")
    return Network(
        init=init,
        cast=cast,
        represent=lambda params, observation: represent(params, prepare(observation)),
        predict=method("predict"),
        dynamics=method("dynamics"),
        projection=Projection(method("project"), method("predict_projection")) if has_projection else None,
        prefix=Prefix(prefix_head.initial_carry, method("step")) if has_prefix else None,
    )


def choose_kind(config: configuration.NetworkConfig, observation_shape: tuple[int, ...]) -> str:
    """Returns "mlp", "conv" or "resnet".

    Raises:
      ConfigError: convolutions are asked for where there is no grid.
    """
    is_grid = len(observation_shape) in (2, 3)
    if config.kind != "auto":
        if config.kind != "mlp" and not is_grid:
            raise errors.ConfigError(
                f"network.kind={config.kind} needs observations of shape [height, width] or "
                f"[height, width, channels], but they are {list(observation_shape)}; use network.kind=mlp"
            )
        return config.kind
    if not is_grid:
        return "mlp"
    return "resnet" if min(observation_shape[:2]) >= SMALLEST_IMAGE else "conv"


def compute_dtype(config: configuration.NetworkConfig, platform: str) -> Any:
    """Returns the dtype of activations and of the parameters while computing."""
    if config.compute_dtype == "auto":
        return jnp.float32 if platform == "cpu" else jnp.bfloat16
    return jnp.dtype(config.compute_dtype)


def stack_shape(observation_shape: tuple[int, ...], frame_stack: int) -> tuple[int, ...]:
    """Returns the shape of `frame_stack` frames joined on the last axis; a scalar observation counts as a vector."""
    shape = observation_shape or (1,)
    return (*shape[:-1], shape[-1] * frame_stack)


def _model(kind: str, config: configuration.NetworkConfig, spec: types.EnvSpec, dtype: Any) -> _Model:
    representation: nn.Module
    transition: nn.Module
    head: Callable[..., nn.Module]
    if kind == "resnet":
        size = resnet.SIZES[config.resnet_size]
        representation, head = resnet.Representation(size, dtype), resnet.Head
        transition = resnet.Dynamics(size, spec.num_actions, dtype)
    else:
        head = mlp.Head
        if kind == "mlp":
            representation = mlp.Representation(config.width, dtype)
        else:
            representation = conv.Representation(config.width, config.channels or max(1, config.width // 2), dtype)
        transition = mlp.Dynamics(spec.num_actions, dtype)
    num_policy_logits = spec.num_actions or len(spec.action_low) * config.action_bins
    return _Model(
        representation=representation,
        transition=transition,
        policy_head=head(config.head_width, num_policy_logits, dtype),
        value_head=head(config.head_width, config.num_bins, dtype),
        reward_head=head(config.head_width, config.num_bins, dtype),
    )


def _with_projection(model: _Model, kind: str, config: configuration.NetworkConfig, dtype: Any) -> _Model:
    size = projection.IMAGE if kind == "resnet" else projection.Size(2 * config.width, config.width)
    return model.clone(projector=projection.Projector(size, dtype), predictor=projection.Predictor(size, dtype))


def _prefix_head(kind: str, config: configuration.NetworkConfig, dtype: Any) -> prefix_lib.Head:
    units = prefix_lib.IMAGE_UNITS if kind == "resnet" else config.width
    return prefix_lib.Head(units, config.head_width, config.num_bins, dtype)


def _preparation(kind: str, spec: types.EnvSpec, frame_stack: int) -> Callable[[jax.Array], jax.Array]:
    """Returns the function that scales observations and gives grids without channels an axis for them."""
    scale = 1.0 / _integer_range(spec)
    needs_channels = kind != "mlp" and len(spec.observation_shape) == 2

    def prepare(observation: jax.Array) -> jax.Array:
        x = observation.astype(jnp.float32) * scale
        if needs_channels:
            height, width = spec.observation_shape
            x = jnp.moveaxis(x.reshape(-1, height, frame_stack, width), 2, -1)
        return x

    return prepare


def _integer_range(spec: types.EnvSpec) -> float:
    """Returns what integer observations are divided by; floats are taken as they are."""
    if spec.observation_dtype == "float32":
        return 1.0
    bounds = np.abs([spec.observation_low, spec.observation_high])
    largest = np.max(bounds, initial=0.0, where=np.isfinite(bounds))
    if largest > 0:
        return float(largest)
    return 255.0 if spec.observation_dtype == "uint8" else 1.0
