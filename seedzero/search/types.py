"""Inputs and results of a search. Shape letters: B batch, R rows of one network call, A actions, N tree nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax

from seedzero.config import muzero_config, options

Embedding: TypeAlias = Any
"""A pytree of arrays [B, ...] of any dtype: the model's hidden states."""


@dataclasses.dataclass(frozen=True)
class SearchConfig(muzero_config.SearchSection):
    """The settings `search` of the command line, with the papers' constants."""

    max_depth: int = options.at_creation(0, "longest path from the root, in actions; 0: no limit", low=0)
    max_visit_init: float = options.at_creation(
        50.0, "Gumbel: visits added to the largest count when Q values are scaled", low=0
    )
    dirichlet_alpha: float = options.at_creation(0.3, "PUCT: concentration of the root noise", low=1e-6)
    dirichlet_fraction: float = options.at_creation(
        0.25, "PUCT: share of noise in the root prior where a row explores", low=0, high=1
    )
    pb_c_init: float = options.at_creation(1.25, "PUCT: c1 of MuZero's equation 2", low=0)
    pb_c_base: float = options.at_creation(19652.0, "PUCT: c2 of MuZero's equation 2", low=1)


class Root(NamedTuple):
    """The positions to search from."""

    prior_logits: jax.Array  # [B, A] of the policy network
    value: jax.Array  # [B] of the value network
    embedding: Embedding  # [B, ...] hidden states


class Prediction(NamedTuple):
    """What the model predicts about a step."""

    reward: jax.Array  # [R] on the edge to the new state
    discount: jax.Array  # [R] of the new state's value; 0 after an end, negative if the other player moves
    prior_logits: jax.Array  # [R, A] at the new state
    value: jax.Array  # [R] at the new state


Evaluate: TypeAlias = Callable[[jax.Array, Embedding], tuple[Prediction, Embedding]]
"""A RecurrentFn together with its parameters."""

RecurrentFn: TypeAlias = Callable[[Any, jax.Array, Embedding], tuple[Prediction, Embedding]]
"""(params, action [R] int32, embedding [R, ...]) -> (prediction, embedding of the new state).

R is B for PUCT, and B times the actions of a sweep for Gumbel. The same inputs must give the same outputs.
"""


class Afterstate(NamedTuple):
    """What the model predicts about an action whose outcome is up to chance."""

    code_logits: jax.Array  # [R, C] of the outcomes
    value: jax.Array | None  # [R], the value for the player who moved; None: that of the first code's state counts


class ChanceFn(NamedTuple):
    """A model with chance, instead of a RecurrentFn (Antonoglou et al. 2022, section 3).

    An action leads to an afterstate. Chance draws one of its codes, which leads to the next state.
    """

    # (params, action [R] int32, embedding [R, ...]) -> (prediction, embedding of the afterstate, shaped like a
    # state's)
    decide: Callable[[Any, jax.Array, Embedding], tuple[Afterstate, Embedding]]
    # (params, code [R] int32, embedding of the afterstate) -> (prediction, embedding of the new state)
    resolve: RecurrentFn
    num_codes: int  # C, the number of codes


class Chance(NamedTuple):
    """A ChanceFn together with its parameters."""

    decide: Callable[[jax.Array, Embedding], tuple[Afterstate, Embedding]]
    resolve: Evaluate
    num_codes: int


class Tree(NamedTuple):
    """All visited nodes, for inspection. Node 0 is the root; children follow their parents.

    With a depth limit, an edge at the limit has one node for each of its visits.
    """

    parent: jax.Array  # [B, N] int32; -1: the root, or an unused node
    action: jax.Array  # [B, N] int32, the action taken at the parent; -1: the root, or an unused node
    num_visits: jax.Array  # [B, N] int32, including the node's own evaluation; 0: an unused node
    value: jax.Array  # [B, N] mean of the network's value and the backed-up returns
    reward: jax.Array  # [B, N] on the edge from the parent; 0 at the root
    discount: jax.Array  # [B, N] on the edge from the parent; 1 at the root
    depth: jax.Array  # [B, N] int32 actions from the root
    # [B, N, A] probabilities of the policy network, including noise at the root of PUCT. With chance
    # [B, N, max(A, C)], where an afterstate's are those of codes
    prior: jax.Array
    # [B, N] bool, true: the node is an afterstate, whose edges are codes instead of actions; its visits and its value
    # are those of its codes alone. None: a model without chance
    is_afterstate: jax.Array | None = None


class SearchResult(NamedTuple):
    """The result of a search."""

    action: jax.Array  # [B] int32, the chosen action
    action_weights: jax.Array  # [B, A] the policy target: probabilities, 0 for illegal actions
    # [B, A] probabilities with which `action` was drawn, see `selection.draw_weights`; those of other draws too, if
    # their search would find the same Q values and consider the same actions
    draw_weights: jax.Array
    root_value: jax.Array  # [B] mean of the network's value and the backed-up returns
    visit_counts: jax.Array  # [B, A] int32
    q_values: jax.Array  # [B, A] of root actions; 0 if unvisited
    max_depth: jax.Array  # [B] int32 actions of the longest path
    mean_depth: jax.Array  # [B] actions of a path, averaged over the simulations
    tree: Tree | None = None  # all visited nodes, if requested
