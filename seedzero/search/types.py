"""What a tree search takes and gives. Shape letters: B batch, R rows of one network call, A actions, N tree nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax

Embedding: TypeAlias = Any
"""A pytree of arrays [B, ...] of any dtype: the model's hidden states."""


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
      reward: [R] on the edge that leads to the new state.
      discount: [R] of the new state's value; 0 behind an end, negative where the other player moves.
      prior_logits: [R, A] at the new state.
      value: [R] of the new state.
    """

    reward: jax.Array
    discount: jax.Array
    prior_logits: jax.Array
    value: jax.Array


RecurrentFn: TypeAlias = Callable[[Any, jax.Array, Embedding], tuple[Prediction, Embedding]]
"""(params, action [R] int32, embedding [R, ...]) -> (prediction, embedding of the new state).

R is B for PUCT, and B times the actions of a sweep for Gumbel. The same inputs must give the same outputs.
"""


class Tree(NamedTuple):
    """Everything that a search visited, to look at. Node 0 is the root; children come after their parents.

    Where the depth is bounded, an edge at the bound has one node for each of its visits.

    Attributes:
      parent: [B, N] int32; -1: the root, or a node that was not used.
      action: [B, N] int32, taken at the parent; -1 likewise.
      num_visits: [B, N] int32, the node's own evaluation included; 0: a node that was not used.
      value: [B, N] mean of the network's value and of what was backed up.
      reward: [B, N] on the edge from the parent; 0 at the root.
      discount: [B, N] on the edge from the parent; 1 at the root.
      depth: [B, N] int32 edges from the root.
      prior: [B, N, A] probabilities of the policy network; noise included at the root of PUCT.
    """

    parent: jax.Array
    action: jax.Array
    num_visits: jax.Array
    value: jax.Array
    reward: jax.Array
    discount: jax.Array
    depth: jax.Array
    prior: jax.Array


class Result(NamedTuple):
    """What a search found.

    Attributes:
      action: [B] int32, to be taken.
      action_weights: [B, A] the policy to learn: probabilities, 0 for illegal actions.
      root_value: [B] mean of the network's value and of what was backed up.
      visit_counts: [B, A] int32.
      q_values: [B, A] of root actions; 0 where never visited.
      max_depth: [B] int32 edges of the longest path.
      mean_depth: [B] edges of a path, mean over the simulations.
      tree: everything visited, if asked for.
    """

    action: jax.Array
    action_weights: jax.Array
    root_value: jax.Array
    visit_counts: jax.Array
    q_values: jax.Array
    max_depth: jax.Array
    mean_depth: jax.Array
    tree: Tree | None = None
