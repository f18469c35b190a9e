"""Sampled MuZero (Hubert et al. 2021) searches over a few sampled actions of a continuous space.

A tree's actions are the numbers 0 .. K - 1 of K actions that are sampled at each node and kept in its embedding. The
priors over them are policy / proposal (section 4, with one sample for each draw), so they are equal if the policy
itself proposes. At the root of a row that explores, samples are random. Everywhere else they are fixed quantiles of
the proposal, so that the search depends only on its inputs, and greedy play only on the observation.

Shape letters: B batch, R rows of one network call, K sampled actions, D numbers of an action, M bins.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero import search as mcts
from seedzero.config import configs
from seedzero.core import types
from seedzero.ops import action_distributions

_UNIFORM_SHARE = 0.1
"""In each dimension, this share of the samples comes from the whole range instead of the policy."""
Embedding: TypeAlias = tuple[Any, jax.Array]
"""The model's hidden state, and the actions [R, K, D] that were sampled at it."""


def search(
    params: Any,
    key: jax.Array,
    root: mcts.Root,
    model: mcts.RecurrentFn,
    *,
    config: configs.Config,
    num_dimensions: int,
    explore: jax.Array,
    return_tree: bool = False,
) -> tuple[mcts.Result, mcts.Root]:
    """Returns what the search found, and its root with priors [B, K] and an Embedding.

    The embedding's actions, in -1 to 1, are those that the result's numbers stand for.

    The arguments are those of the engine's search, but the root and the model have the policy's logits [., D * M] (see
    ops.binned_actions), and the model takes actions [R, D = num_dimensions].
    """
    search_key, sample_key = jax.random.split(key)
    num_samples = config.search.num_sampled
    fixed = jnp.asarray(action_distributions.fixed_hypercube(num_samples, num_dimensions))[None]
    random = action_distributions.latin_hypercube(sample_key, (explore.shape[0], num_samples, num_dimensions))
    samples = _sample(root.prior_logits, jnp.where(explore[:, None, None], random, fixed), config)

    def recurrent_fn(params: Any, action: jax.Array, embedding: Embedding) -> tuple[mcts.Prediction, Embedding]:
        hidden, actions = embedding
        prediction, hidden = model(params, pick(actions, action), hidden)
        below = _sample(prediction.prior_logits, fixed, config)
        return prediction._replace(prior_logits=below.log_prior), (hidden, below.actions)

    root = mcts.Root(samples.log_prior, root.value, (root.embedding, samples.actions))
    found = mcts.search(
        params, search_key, root, recurrent_fn, config=config.search, explore=explore, return_tree=return_tree
    )
    return found, root


def _sample(logits: jax.Array, uniform: jax.Array, config: configs.Config) -> action_distributions.Samples:
    return action_distributions.sample(
        logits, uniform, num_bins=config.network.action_bins, uniform_share=_UNIFORM_SHARE
    )


def pick(actions: jax.Array, number: jax.Array) -> jax.Array:
    """Gathers one action per row: [R, K, D], index [R] -> [R, D]."""
    return jnp.take_along_axis(actions, number[:, None, None], axis=1)[:, 0]


def to_environment(action: jax.Array, spec: types.EnvSpec) -> jax.Array:
    """Converts actions [B, D] in -1 to 1 to the environment's units."""
    low, high = jnp.asarray(spec.action_bounds)
    return jnp.clip(low + (action + 1.0) * 0.5 * (high - low), low, high)


def from_environment(action: np.ndarray, spec: types.EnvSpec) -> np.ndarray:
    """Converts actions [B, D] in the environment's units to -1 to 1; discrete actions [B] stay as they are."""
    if not spec.is_continuous:
        return action
    low, high = np.asarray(spec.action_bounds)
    scaled: np.ndarray = 2.0 * (action - low) / (high - low) - 1.0
    return scaled
