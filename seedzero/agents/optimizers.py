"""Optimizers and schedules of the learning rate, from the configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]

from seedzero.agents import base
from seedzero.config import config as configuration


def make_optimizer(config: configuration.OptimizerConfig) -> optax.GradientTransformation:
    """Returns AdamW without its learning rate: clipping, Adam's direction, decay of all kernels."""
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    decay = optax.add_decayed_weights(config.weight_decay, mask=_is_kernel)
    return optax.chain(clip, optax.scale_by_adam(), decay)


def _is_kernel(params: base.Params) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def make_schedule(config: configuration.OptimizerConfig) -> Callable[[jax.Array], jax.Array]:
    """Returns the function from the number of updates done to the learning rate, both scalars."""
    peak, decay_updates = config.learning_rate, config.decay_updates
    after: dict[str, Any] = {
        "constant": optax.constant_schedule(peak),
        "cosine": optax.cosine_decay_schedule(peak, decay_updates, alpha=config.decay_rate),
        "exponential": optax.exponential_decay(peak, decay_updates, config.decay_rate),
    }

    def schedule(num_updates: jax.Array) -> jax.Array:
        warm = jnp.minimum((num_updates + 1) / max(1, config.warmup_updates), 1.0)
        return jnp.asarray(warm * after[config.schedule](jnp.maximum(num_updates - config.warmup_updates, 0)))

    return schedule
