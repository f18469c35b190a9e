"""What acting and learning of MuZero share: the network, how its numbers are read, and the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax  # type: ignore[import-untyped]

from seedzero.agents import base
from seedzero.config import config as configuration
from seedzero.config import muzero as muzero_config
from seedzero.core import types
from seedzero.networks import muzero as networks
from seedzero.ops import value_transforms


class Parts(NamedTuple):
    """What the functions of this agent share."""

    config: configuration.Config
    spec: types.EnvSpec
    network: networks.Network
    optimizer: optax.GradientTransformation
    schedule: Callable[[jax.Array], jax.Array]


def make_parts(config: configuration.Config, spec: types.EnvSpec, platform: str) -> Parts:
    """Returns the parts; raises ConfigError where the network does not fit the observations."""
    network = networks.make(
        config.network,
        spec,
        platform,
        has_projection=config.muzero.consistency_weight > 0,
        has_prefix=config.muzero.value_prefix,
    )
    return Parts(config, spec, network, make_optimizer(config.optimizer), make_schedule(config.optimizer))


def signed_discount(parts: Parts) -> float:
    """Returns what a value is multiplied by one step earlier: between two players also by -1.

    A value is that of the player to move; what the other one gains, this one loses.
    """
    discount = parts.config.muzero.discount
    return discount if parts.spec.num_players == 1 else -discount


def decode(parts: Parts, logits: jax.Array) -> jax.Array:
    """Returns the numbers [...] that logits [..., bins] mean."""
    return value_transforms.expectation(logits, parts.config.network.support_limit)


def encode(parts: Parts, x: jax.Array) -> jax.Array:
    """Returns the probabilities [..., bins] that stand for the numbers [...]."""
    return value_transforms.two_hot(x, parts.config.network.num_bins, parts.config.network.support_limit)


def make_optimizer(config: muzero_config.OptimizerConfig) -> optax.GradientTransformation:
    """Returns AdamW without its learning rate: clipping, Adam's direction, decay of all kernels."""
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    decay = optax.add_decayed_weights(config.weight_decay, mask=_kernels)
    return optax.chain(clip, optax.scale_by_adam(), decay)


def _kernels(params: base.Params) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def make_schedule(config: muzero_config.OptimizerConfig) -> Callable[[jax.Array], jax.Array]:
    """Returns the function from the number of updates done to the learning rate, both scalars."""
    peak, warmup, decay_updates = config.learning_rate, config.warmup_updates, config.decay_updates
    after: dict[str, Callable[[jax.Array], jax.Array]] = {
        "constant": optax.constant_schedule(peak),
        "cosine": optax.cosine_decay_schedule(peak, decay_updates, alpha=config.decay_rate),
        "exponential": optax.exponential_decay(peak, decay_updates, config.decay_rate),
        "linear": optax.linear_schedule(peak, peak * config.decay_rate, decay_updates),
    }
    if not warmup:
        return after[config.schedule]
    rising = optax.linear_schedule(peak / warmup, peak, warmup - 1)
    joined: Callable[[jax.Array], jax.Array] = optax.join_schedules([rising, after[config.schedule]], [warmup])
    return joined
