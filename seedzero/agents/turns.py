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
from seedzero.core import errors, types
from seedzero.networks import observations
from seedzero.replay import ring_store, sources, windowing


def check(config: configs.Config, spec: types.EnvSpec) -> None:
    """Raises ConfigError for settings that do not work in games of two players in turn."""
    if spec.num_players == 1:
        return
    agent, place, network = config.run.agent, "in a game of two players", config.network
    both = "training shows both players' positions one after the other, an evaluation one player's alone"
    bonus = config.ppo.bonus if agent == "ppo" else ""
    for is_wrong, message in (
        (
            network.frame_stack > 1,
            f"network.frame_stack={network.frame_stack} {place}: {both}; give --network.frame_stack=1",
        ),
        (
            network.lstm_width > 0,
            f"network.lstm_width={network.lstm_width} {place}: {both}, and nothing is hidden there; give "
            "--network.lstm_width=0",
        ),
        (
            bool(bonus),
            f"ppo.bonus={bonus} {place}: what one player gains the other loses, and a bonus is nobody's loss; leave "
            "it out",
        ),
    ):
        if is_wrong:
            raise errors.ConfigError(f"agent {agent}: {message}")
    if spec.moves_again:
        check_league(config)


def check_league(config: configs.Config) -> None:
    """Raises ConfigError for a league in a game of two players one of whom may move several times in a row."""
    if config.league.on:
        raise errors.ConfigError(
            f"agent {config.run.agent}: {config.league.asked}: a league counts matches of players who alternate, but "
            f"in this game one may move several times in a row; give {config.league.off}"
        )


def stored(config: configs.Config, spec: types.EnvSpec) -> dict[str, sources.Stored]:
    """Returns the array that marks the learner's own rows, in games where others move too.

    Raises ConfigError as `check_steps`.
    """
    if spec.num_players == 1 or not config.league.on:
        return {}
    check_steps(config)
    return {ring_store.OWN: sources.Stored((), np.dtype(bool))}


def check_steps(config: configs.Config) -> None:
    """Raises ConfigError for an agent whose n-step returns would reach no other row of its own in a league."""
    agent = config.run.agent
    if getattr(getattr(config, agent, None), "n_step", 2) == 1:
        raise errors.ConfigError(
            f"agent {agent}: {agent}.n_step=1 in a league in which players take turns: one step behind a player's "
            f"turn it is the other's, so it would learn no values; give --{agent}.n_step=2 or more"
        )


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
