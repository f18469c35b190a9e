"""Optimizers and schedules of the learning rate, from the configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax  # type: ignore[import-untyped]

from seedzero.agents import base
from seedzero.config import muzero as muzero_config


def make_optimizer(config: muzero_config.OptimizerConfig) -> optax.GradientTransformation:
    """Returns AdamW without its learning rate: clipping, Adam's direction, decay of all kernels."""
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    decay = optax.add_decayed_weights(config.weight_decay, mask=_is_kernel)
    return optax.chain(clip, optax.scale_by_adam(), decay)


def _is_kernel(params: base.Params) -> Any:
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
