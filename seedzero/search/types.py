"""What a tree search takes and gives. Shape letters: B batch, A actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax

Embedding: TypeAlias = Any
"""A pytree of arrays [B, ...]: the model's hidden states."""


class Root(NamedTuple):
    """The positions to search from.

    Attributes:
      prior_logits: [B, A] of the policy network.
      value: [B] of the value network.
      embedding: [B, ...] hidden states.
    """

    prior_logits: jax.Array
    value: jax.Array
    embedding: Embedding


class Prediction(NamedTuple):
    """What the model says of a step.

    Attributes:
      reward: [B] on the edge that leads to the new state.
      discount: [B] of the new state's value; 0 behind an end, negative where the other player moves.
      prior_logits: [B, A] at the new state.
      value: [B] of the new state.
    """

    reward: jax.Array
    discount: jax.Array
    prior_logits: jax.Array
    value: jax.Array


RecurrentFn: TypeAlias = Callable[[Any, jax.Array, Embedding], tuple[Prediction, Embedding]]
"""(params, action [B] int32, embedding) -> (prediction, embedding of the new state)."""


class Result(NamedTuple):
    """What a search found.

    Attributes:
      action: [B] int32, to be taken.
      action_weights: [B, A] the policy to learn: probabilities, 0 for illegal actions.
      root_value: [B] mean of the values backed up to the root.
      visit_counts: [B, A] int32.
      q_values: [B, A] of root actions; 0 where never visited.
    """

    action: jax.Array
    action_weights: jax.Array
    root_value: jax.Array
    visit_counts: jax.Array
    q_values: jax.Array
