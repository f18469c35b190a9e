"""MuZero's three functions for an environment's spec: flax inside, pure functions outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.config import muzero as muzero_config
from seedzero.core import types
from seedzero.networks import mlp, observations, projection, resnet
from seedzero.networks import prefix as prefix_lib
from seedzero.ops import statistics

Params: TypeAlias = Any
Hidden: TypeAlias = jax.Array

MOMENTS = "moments"
"""Name of the observations' moments among the parameters."""


class Projection(NamedTuple):
    """The consistency loss's projection of hidden states, as functions of the network's parameters; D is its size.

    Attributes:
      project: (params, hidden [B, ...]) -> [B, D].
      predict: (params, projection [B, D]) -> [B, D].
    """

    project: Callable[[Params, Hidden], jax.Array]
    predict: Callable[[Params, jax.Array], jax.Array]


class Prefix(NamedTuple):
    """The dynamics function of models that predict sums of rewards, as functions.

    Attributes:
      initial: batch size -> carry before the first step of a sum.
      step: (params, hidden, action [B] int32, carry) -> (next hidden, next carry, logits [B, bins] float32 of the sum
        of the rewards since the initial carry, including the edge to the next hidden state).
    """

    initial: Callable[[int], prefix_lib.Carry]
    step: Callable[[Params, Hidden, jax.Array, prefix_lib.Carry], tuple[Hidden, prefix_lib.Carry, jax.Array]]


class Network(NamedTuple):
    """Pure functions of parameters. Shape letters: B batch, A actions, or D numbers of a continuous action.

    Attributes:
      init: key -> parameters, float32. The observations' moments may join them, as `MOMENTS`.
      cast: parameters -> the same in the compute dtype, save moments and layers that are computed in float32. Applied
        once a call, not in every simulation.
      represent: (params, observation [B, *shape]) -> hidden [B, ...]. Stacked frames are on the last axis, oldest
        first; integers are scaled inside.
      predict: (params, hidden) -> (policy logits [B, A], or [B, D * bins] as in ops.binned_actions; value logits
        [B, bins]), float32.
      dynamics: (params, hidden, action [B] int32, or [B, D] in -1 to 1) -> (next hidden, reward logits [B, bins]
        float32); the reward is that of the edge to the next hidden state.
      num_features: of an observation that are normalized, if the parameters hold moments; 0: none.
      features: observation [B, *shape] -> samples [N, num_features] for the moments.
      projection: for the consistency loss; None: no such parameters.
      prefix: replaces `dynamics`; None: the model predicts rewards, not their sums.
    """

    init: Callable[[jax.Array], Params]
    cast: Callable[[Params], Params]
    represent: Callable[[Params, jax.Array], Hidden]
    predict: Callable[[Params, Hidden], tuple[jax.Array, jax.Array]]
    dynamics: Callable[[Params, Hidden, jax.Array], tuple[Hidden, jax.Array]]
    num_features: int = 0
    features: Callable[[jax.Array], jax.Array] = lambda observation: observation
    projection: Projection | None = None
    prefix: Prefix | None = None


class _Model(nn.Module):
    """The three functions with a common tree of parameters."""

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
    config: muzero_config.NetworkConfig,
    spec: types.EnvSpec,
    platform: str,
    *,
    has_projection: bool = False,
    has_prefix: bool = False,
) -> Network:
    """Returns the network for an environment.

    Args:
      config: kind, size, bins, dtype.
      spec: of the environment.
      platform: "cpu", "gpu" or "tpu"; selects the compute dtype if config says "auto".
      has_projection: adds the consistency loss's projection.
      has_prefix: predicts sums of rewards; `dynamics` then can't be called.

    Raises:
      ConfigError: the kind does not fit the observation's shape.
    """
    kind = observations.choose_kind("network.kind", config.kind, spec.observation_shape)
    dtype = observations.compute_dtype(config.compute_dtype, platform)
    model = _model(kind, config, spec, dtype)
    if has_projection:
        units = projection.IMAGE_UNITS if kind == "resnet" else 2 * config.width
        model = model.clone(projector=projection.Projector(units, dtype), predictor=projection.Predictor(units, dtype))
    units = prefix_lib.IMAGE_UNITS if kind == "resnet" else config.width
    prefix_head = prefix_lib.Head(units, config.head_width, config.num_bins, dtype)
    if has_prefix:
        model = model.clone(reward_head=prefix_head)
    num_features = observations.num_normalized(kind, spec, config.frame_stack) if config.normalize_observations else 0
    prepare = observations.preparation(kind, spec, config.frame_stack, scales=not num_features)
    stacked_shape = observations.stack_shape(spec.observation_shape, config.frame_stack)

    def init(key: jax.Array) -> Params:
        observation = prepare(jnp.zeros((1, *stacked_shape), spec.observation_dtype))
        action = jnp.zeros((1, *spec.action_shape), jnp.float32 if spec.is_continuous else jnp.int32)
        return model.init(key, observation, action)["params"]

    def features(observation: jax.Array) -> jax.Array:
        x = prepare(observation)
        return x.reshape(x.shape[0], -1) if kind == "mlp" else x

    def normalized(params: Params, observation: jax.Array) -> jax.Array:
        if MOMENTS not in params:
            return prepare(observation)
        # Of a copy: moments are counted, never learned.
        return statistics.normalize(jax.lax.stop_gradient(params[MOMENTS]), features(observation))

    def method(name: str) -> Callable[..., Any]:
        return lambda params, *inputs: model.apply({"params": params}, *inputs, method=name)

    represent = method("represent")
    return Network(
        init=init,
        cast=lambda params: _cast(params, kind, dtype),
        represent=lambda params, observation: represent(params, normalized(params, observation)),
        predict=method("predict"),
        dynamics=method("dynamics"),
        num_features=num_features,
        features=lambda observation: features(observation).reshape(-1, num_features),
        projection=Projection(method("project"), method("predict_projection")) if has_projection else None,
        prefix=Prefix(prefix_head.initial_carry, method("step")) if has_prefix else None,
    )


def _cast(params: Params, kind: str, dtype: Any) -> Params:
    def cast(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        module, layer = path[0].key, path[1].key if len(path) > 2 else ""
        is_input = kind == "mlp" and (module, layer) == ("representation", mlp.INPUT_LAYER)
        is_output = module.endswith("_head") and layer == mlp.OUTPUT_LAYER
        return leaf if module == MOMENTS or is_input or is_output else leaf.astype(dtype)

    return jax.tree_util.tree_map_with_path(cast, params)


def _model(kind: str, config: muzero_config.NetworkConfig, spec: types.EnvSpec, dtype: Any) -> _Model:
    transition: nn.Module = mlp.Dynamics(spec.num_actions, dtype)
    head: Callable[..., nn.Module] = mlp.Head
    representation: nn.Module = mlp.Representation(config.width, dtype)
    if kind == "resnet":
        size = resnet.SIZES[config.resnet_size]
        representation, head = resnet.Representation(size, dtype), resnet.Head
        transition = resnet.Dynamics(size, spec.num_actions, dtype)
    elif kind == "conv":
        representation = mlp.GridRepresentation(config.width, config.channels or max(1, config.width // 2), dtype)
    num_policy_logits = spec.num_actions or len(spec.action_low) * config.action_bins
    return _Model(
        representation=representation,
        transition=transition,
        policy_head=head(config.head_width, num_policy_logits, dtype),
        value_head=head(config.head_width, config.num_bins, dtype),
        reward_head=head(config.head_width, config.num_bins, dtype),
    )
