"""Explores by random actions: each environment has its own probability, or actions are repeated for a while.

Epsilon-greedy: Ape-X (Horgan et al. 2018, section 4.1) gives each environment its own epsilon, all the time. Few of
them explore much, and most hardly ever.

Repetition: some things are only found by going the same way for many steps, and noise that is drawn at every step
hardly ever does that. Temporally-extended epsilon-greedy exploration (Dabney, Ostrovski and Barreto 2021, algorithm 1,
"epsilon-z-greedy") is the simplest way. Until a reward is above 0 or an episode ends by itself, there is nothing to
lose, and an environment may begin with random actions alone.

Shape letters: B batch, S slots, A actions.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.config import muzero_config
from seedzero.core import types

_FIRST_EXPONENT = 1.0
"""Exponent of the first steps' lengths: every length takes the same share of the steps. See `_length`."""


def epsilons(slot: jax.Array, num_slots: int, *, base: float, exponent: float) -> jax.Array:
    """Returns base ^ (1 + exponent i / (N - 1)) for environments i = slot [B] int32 of N, as in Ape-X."""
    share = jnp.minimum(slot / jnp.maximum(num_slots - 1, 1), 1.0)
    return jnp.asarray(base ** (1.0 + exponent * share), jnp.float32)


def spread(slot: jax.Array, num_slots: int, epsilon: float) -> jax.Array:
    """Returns epsilon ^ (2 (i + 1/2) / N) for environments i = slot [B] int32 of N: their geometric mean is epsilon.

    As with `epsilons`, some environments explore a lot and most little, but a single environment has epsilon itself.
    """
    num_slots = max(num_slots, 1)
    share = (jnp.minimum(slot, num_slots - 1) + 0.5) / num_slots
    return jnp.asarray(epsilon ** (2.0 * share), jnp.float32)


def epsilon_greedy(key: jax.Array, greedy: jax.Array, epsilon: jax.Array, valid_actions: jax.Array) -> jax.Array:
    """Returns actions [B] int32: `greedy` [B], or with probability epsilon [B] any valid action, all equally likely.

    valid_actions: [B, A] bool, true: legal.
    """
    explore_key, action_key = jax.random.split(key)
    explores = jax.random.uniform(explore_key, greedy.shape) < epsilon
    return jnp.where(explores, _any_valid(action_key, valid_actions), greedy)


def _any_valid(key: jax.Array, valid_actions: jax.Array) -> jax.Array:
    """Returns valid actions [B] int32, all equally likely; valid_actions: [B, A] bool."""
    chance = jnp.where(valid_actions, jax.random.uniform(key, valid_actions.shape), -1.0)
    return jnp.argmax(chance, axis=-1).astype(jnp.int32)


class Repetition(NamedTuple):
    """The repeated action of one environment."""

    action: jax.Array  # [B] int32, or [B, D] float32 in -1 to 1
    left: jax.Array  # [B] int32, how many more steps it lasts; 0: the environment follows its agent
    # [B] int32, steps in which the environment keeps repeating random actions, one after the other, unless a reward is
    # above 0 or an episode ends in a terminal state first
    first_left: jax.Array


def initial(num_slots: int, spec: types.EnvSpec, first_steps: int) -> Repetition:
    """Returns the state [S, ...] before any repetition. first_steps: see `Repetition.first_left`."""
    dtype = jnp.float32 if spec.is_continuous else jnp.int32
    return Repetition(
        action=jnp.zeros((num_slots, *spec.action_shape), dtype),
        left=jnp.zeros(num_slots, jnp.int32),
        first_left=jnp.full(num_slots, first_steps, jnp.int32),
    )


def apply(
    key: jax.Array,
    repetition: Repetition,
    action: jax.Array,
    inputs: base.Inputs,
    *,
    valid_actions: jax.Array | None,
    num_slots: int,
    config: muzero_config.ExploreConfig,
) -> tuple[Repetition, jax.Array]:
    """Returns the new repetitions, and the actions to take, [B] int32 or [B, D] float32 in -1 to 1.

    A repetition ends with its episode, and if its action is not legal. Rows that do not explore follow their agent and
    take `action`.

    valid_actions: [B, A] bool, true: legal; None for continuous actions. num_slots: number of environments that
    explore.
    """
    begin_key, action_key, length_key = jax.random.split(key, 3)
    left, first_left = _left(repetition, inputs)
    begin_chance = _begin_chance(first_left, inputs.slot, num_slots, config)
    begins = (left == 0) & (jax.random.uniform(begin_key, left.shape) < begin_chance)
    share = jax.random.uniform(length_key, left.shape)
    first_length, length = (_length(share, x, config.max_length) for x in (_FIRST_EXPONENT, config.exponent))
    length = jnp.where(first_left > 0, first_length, length)
    left = jnp.where(begins, length, left)
    first_left = jnp.maximum(first_left - 1, 0)
    if valid_actions is None:
        drawn = jax.random.uniform(action_key, action.shape, minval=-1.0, maxval=1.0)
        repeated = jnp.where(begins[:, None], drawn, repetition.action)
        left = jnp.where(inputs.explores, left, 0)
        taken = jnp.where(left[:, None] > 0, repeated, action)
    else:
        repeated = jnp.where(begins, _any_valid(action_key, valid_actions), repetition.action)
        is_legal = jnp.take_along_axis(valid_actions, repeated[:, None], axis=-1)[:, 0]
        left = jnp.where(inputs.explores & is_legal, left, 0)
        taken = jnp.where(left > 0, repeated, action)
    return Repetition(repeated, jnp.maximum(left - 1, 0), first_left), taken


def probability(
    repetition: Repetition,
    taken: jax.Array,
    weights: jax.Array,
    inputs: base.Inputs,
    *,
    valid_actions: jax.Array,
    num_slots: int,
    config: muzero_config.ExploreConfig,
) -> jax.Array:
    """Returns the probability [B] that `apply` takes actions [B] int32, if the agent draws by weights [B, A].

    The probability of a repetition counts where it begins: later steps have no choice, and a probability of 1. The
    other arguments are those of `apply`, with `repetition` from before the step.
    """
    left, first_left = _left(repetition, inputs)
    begin_chance = jnp.where(left == 0, _begin_chance(first_left, inputs.slot, num_slots, config), 0.0)
    own = jnp.take_along_axis(weights, taken[:, None], axis=-1)[:, 0]
    even = 1.0 / jnp.maximum(jnp.sum(valid_actions, axis=-1), 1)
    is_legal = jnp.take_along_axis(valid_actions, repetition.action[:, None], axis=-1)[:, 0]
    chance = jnp.where((left > 0) & is_legal, 1.0, (1.0 - begin_chance) * own + begin_chance * even)
    return jnp.where(inputs.explores, chance, own)


def _left(repetition: Repetition, inputs: base.Inputs) -> tuple[jax.Array, jax.Array]:
    """Returns the steps of a repetition and of the first ones left after these observations, [B] int32 each."""
    over = inputs.terminated | (inputs.reward > 0)
    return jnp.where(inputs.first, 0, repetition.left), jnp.where(over, 0, repetition.first_left)


def _begin_chance(
    first_left: jax.Array, slot: jax.Array, num_slots: int, config: muzero_config.ExploreConfig
) -> jax.Array:
    """Returns the probability [B] that a new repetition begins where none lasts."""
    epsilon = spread(slot, num_slots, config.epsilon) if config.spread else config.epsilon
    return jnp.where(first_left > 0, 1.0, epsilon)


def _length(share: jax.Array, exponent: float, longest: int) -> jax.Array:
    """Draws int32 lengths n from 1 to the longest, each with a probability in proportion to n ^ -exponent.

    share: float32, uniform from 0 to 1.
    """
    weights = np.arange(1, longest + 1, dtype=np.float64) ** -exponent
    below = jnp.asarray(np.cumsum(weights / weights.sum())[:-1], jnp.float32)
    return 1 + jnp.searchsorted(below, share, side="right").astype(jnp.int32)
