"""Lets agents that learn from unrolls play games of two players in turn: a row is a position, its value the mover's.

What one player gains the other loses, so a discount is negative if the turn passes. In a league other players move in
some rows. Those are no steps of the learner: its returns run through them from one of its own turns to the next, and
no value or policy is learned there.

Shape letters: B batch, T steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.config import configs
from seedzero.core import types
from seedzero.networks import observations
from seedzero.replay import ring_store, sources, windowing


def stored(config: configs.Config, spec: types.EnvSpec) -> dict[str, sources.Stored]:
    """Returns the array that marks the learner's own rows, in games where others move too."""
    if spec.num_players == 1 or not config.league.on:
        return {}
    return {ring_store.OWN: sources.Stored((), np.dtype(bool))}


def discounts(spec: types.EnvSpec, windows: windowing.Windows, discount: float) -> jax.Array:
    """Returns [B, T], the factors of the next row's value: negative if the other player moves there, 0 at an end."""
    following = discount * ~windows.terminated[:, 1:]
    if spec.num_players == 1:
        return following
    if not spec.moves_again:
        return -following
    mover = movers(spec, observations.flat(windows.observation)).reshape(windows.reward.shape)
    return jnp.where(mover[:, 1:] == mover[:, :-1], following, -following)


def movers(spec: types.EnvSpec, observation: Mapping[str, jax.Array]) -> jax.Array:
    """Returns the players to move [B] int8 in single frames {name: [B, *shape]}, where one may move again."""
    seen = observation[spec.arrays[0].name]  # the only one, but for those of acting alone
    return seen.reshape(seen.shape[0], -1)[:, -1].astype(jnp.int8)


class Returns(NamedTuple):
    """Rows as the learner's returns go through them."""

    value: jax.Array  # [B, T + 1]; in another player's row, the worth of the rows behind it
    is_step: jax.Array  # [B, T] bool, false: no return goes from here to the next row
    trace_decay: float | jax.Array  # lambda; 1 in the others' rows, which estimate nothing
    learned: jax.Array  # [B, T] bool, true: one of the learner's own steps


def course(
    windows: windowing.Windows, value: jax.Array, reward: jax.Array, discount: jax.Array, *, trace_decay: float
) -> Returns:
    """Returns the course of windows.

    The values in other players' rows are theirs, or were never learned. Such a row is worth the reward on the way to
    the next row plus the value of that row. If it is the last of the window, or of an episode cut off by a limit, its
    value is unknown and no return goes there.

    Args:
      value: [B, T + 1], the learner's estimate for the mover.
      reward: [B, T], for step t received on the way to t + 1.
      discount: [B, T], as in `discounts`.
      trace_decay: lambda.
    """
    is_step = ~(windows.terminated | windows.truncated)[:, :-1]
    own = windows.stored.get(ring_store.OWN)
    if own is None:
        return Returns(value, is_step, trace_decay, is_step)
    has_end = own | windows.terminated

    def back(
        following: tuple[jax.Array, jax.Array], row: tuple[jax.Array, ...]
    ) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
        next_value, next_known = following
        value, reward, discount, own, has_end, is_step = row
        found = (jnp.where(own, value, reward + discount * next_value), has_end | (is_step & next_known))
        return found, found

    rows = (value[:, :-1], reward, discount, own[:, :-1], has_end[:, :-1], is_step)
    last = (value[:, -1], has_end[:, -1])
    _, (through, known) = jax.lax.scan(back, last, jax.tree.map(lambda x: x.T, rows), reverse=True)
    known = jnp.concatenate([known.T, has_end[:, -1:]], axis=1)
    is_step &= known[:, 1:]
    decay = jnp.where(own[:, :-1], trace_decay, 1.0)
    value = jnp.concatenate([through.T, value[:, -1:]], axis=1)
    return Returns(value, is_step, decay, is_step & own[:, :-1])
