"""What acting and learning of MuZero share: the network, and how its numbers are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import optax  # type: ignore[import-untyped]

from seedzero.agents import optimizers
from seedzero.config import config as configuration
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
    """Returns what the functions of this agent share.

    Raises:
      ConfigError: the network does not fit the observations.
    """
    network = networks.make(
        config.network,
        spec,
        platform,
        has_projection=config.muzero.consistency_weight > 0,
        has_prefix=config.muzero.value_prefix,
    )
    optimizer, schedule = optimizers.make_optimizer(config.optimizer), optimizers.make_schedule(config.optimizer)
    return Parts(config, spec, network, optimizer, schedule)


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
