"""PopArt: learns the values of each task in units of its own returns (van Hasselt et al. 2016; Hessel et al. 2018).

A network predicts a normalized value n for each task; the value is v = mean + scale * n. The statistics follow the
returns ("adaptively rescaling targets"), and the layer that predicts n is rescaled at the same time, so that no value
changes ("preserving outputs precisely").

Shape letters: N tasks.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

SMALLEST_SCALE, LARGEST_SCALE = 1e-4, 1e6
"""Bounds of the scale (Hessel et al. 2018, appendix)."""


class Statistics(NamedTuple):
    """Mean and variance of the returns of each task, [N] each."""

    mean: jax.Array
    variance: jax.Array

    @property
    def scale(self) -> jax.Array:
        """The standard deviation [N] within its bounds."""
        return jnp.sqrt(jnp.clip(self.variance, SMALLEST_SCALE**2, LARGEST_SCALE**2))


def initial(num_tasks: int) -> Statistics:
    """Returns statistics that leave values unchanged."""
    return Statistics(jnp.zeros(num_tasks), jnp.ones(num_tasks))


def normalize(statistics: Statistics, value: jax.Array, task: jax.Array) -> jax.Array:
    """Normalizes values; task: int32 of their shape."""
    return (value - statistics.mean[task]) / statistics.scale[task]


def unnormalize(statistics: Statistics, normalized: jax.Array, task: jax.Array) -> jax.Array:
    """Undoes `normalize`; task: int32 of the values' shape."""
    return statistics.mean[task] + statistics.scale[task] * normalized


def update(
    statistics: Statistics,
    target: jax.Array,
    task: jax.Array,
    counted: jax.Array,
    *,
    step_size: float,
    axis_name: str | None = None,
) -> Statistics:
    """Returns the statistics after one batch of targets, which are the same on all devices of the mapped axis.

    The paper's rule (Hessel et al. 2018) moves both moments by `step_size` for each target. Here K targets of a task
    arrive at once and make K such steps towards their mean, which is stable for any K. Tasks without targets keep
    their statistics.

    Args:
      target: any shape, of values.
      task: int32 of that shape.
      counted: bool of that shape, true: the target counts.
      step_size: beta.
    """
    is_task = (task.reshape(-1, 1) == jnp.arange(len(statistics.mean))) & counted.reshape(-1, 1)
    target = target.reshape(-1, 1)

    def total(x: jax.Array) -> jax.Array:
        summed = jnp.sum(jnp.where(is_task, x, 0.0), axis=0)
        return summed if axis_name is None else jax.lax.psum(summed, axis_name)

    count = total(jnp.ones_like(target))
    number = jnp.maximum(count, 1.0)
    mean = total(target) / number
    variance = total(jnp.square(target - mean)) / number
    share = -jnp.expm1(count * jnp.log1p(-step_size))  # 1 - (1 - beta)^K, which is 0 without targets
    away = mean - statistics.mean
    # This averages the mean square in a form for variances, which keeps its precision next to a large mean.
    within = (1.0 - share) * statistics.variance + share * variance
    return Statistics(statistics.mean + share * away, within + share * (1.0 - share) * jnp.square(away))


def change(before: Statistics, after: Statistics) -> tuple[jax.Array, jax.Array]:
    """Returns factor and shift [N]: replacing n by factor * n + shift keeps every value as it was under `before`."""
    return before.scale / after.scale, (before.mean - after.mean) / after.scale
