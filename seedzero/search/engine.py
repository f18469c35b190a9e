"""Runs either of the two searches, PUCT's is here, behind one signature, and computes their cost."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.config import muzero_config
from seedzero.search import gumbel, search_forest, selection, types

# MuZero's search (Schrittwieser et al. 2020) by PUCT, where root noise goes to legal actions only.
# Draws the gamma noise of the search.
NUM_PROPOSALS = 4
"""Number of proposals. Each is accepted with a probability of at least 0.95; in six of a million draws none is, and
the last one is used anyway."""


def log_gamma(key: jax.Array, alpha: float, shape: tuple[int, ...]) -> jax.Array:
    """Returns logarithms of draws from Gamma(alpha, 1), float32 (Marsaglia and Tsang 2000, with their boost).

    All proposals are made at once, because jax.random.loggamma's nested loops cost more than a whole simulation of the
    search. The logarithm is exact even if the draw underflows.
    """
    normal_key, uniform_key = jax.random.split(key)
    d = alpha + 1.0 - 1.0 / 3.0
    x = jax.random.normal(normal_key, (NUM_PROPOSALS, *shape))
    v = (1.0 + x / jnp.sqrt(9.0 * d)) ** 3
    log_v = jnp.log(jnp.maximum(v, np.finfo(np.float32).tiny))
    # In (0, 1], so that the logarithm is finite.
    log_uniform = jnp.log(1.0 - jax.random.uniform(uniform_key, (NUM_PROPOSALS + 1, *shape)))
    log_u, log_boost = log_uniform[:-1], log_uniform[-1]
    accepted = (v > 0) & (log_u < 0.5 * x**2 + d * (1.0 - v + log_v))
    first = jnp.argmax(accepted.at[-1].set(True), axis=0)
    log_draw = jnp.log(d) + jnp.take_along_axis(log_v, first[None], axis=0)[0]
    # Gamma(alpha) equals Gamma(alpha + 1) times the alpha-th root of a uniform draw.
    return log_draw + log_boost / alpha


def puct_search(
    key: jax.Array,
    root: types.Root,
    evaluate: types.Evaluate | types.Chance,
    *,
    config: muzero_config.SearchSection,
    score: search_forest.Score,
    explore: jax.Array,
    invalid_actions: jax.Array | None,
) -> tuple[types.SearchResult, list[search_forest.Forest]]:
    """Simulates one path after the other; returns the result and the trees. The policy target is the share of visits.

    Rows without `explore` have no noise and take the most visited action.
    """
    noise_key, action_key = jax.random.split(key)
    invalid = jnp.zeros(root.prior_logits.shape, bool) if invalid_actions is None else invalid_actions
    noisy = _add_dirichlet_noise(noise_key, selection.masked(root.prior_logits, invalid), invalid, explore, config)
    rules = search_forest.Rules(
        evaluate=evaluate,
        score=score,
        root_actions=~invalid.T,
        max_depth=config.max_depth or None,
    )
    forest = search_forest.plant(root._replace(prior_logits=noisy), rules)
    for loop in gumbel.loops(config.num_simulations):
        forest = search_forest.enlarge(forest, loop.end - loop.begin)
        # Simulation i makes node i: node 0 is the root.
        forest = jax.lax.fori_loop(
            loop.begin + 1, loop.end + 1, lambda number, trees: search_forest.simulate(trees, number, rules), forest
        )
    num_actions = root.prior_logits.shape[-1]
    visits = forest.visits[:num_actions, 0].T
    action = _sample_visits(action_key, visits, noisy, explore, config.temperature)
    max_depth, mean_depth = search_forest.depth_statistics([forest], explore.shape[0])
    found = types.SearchResult(
        action=action,
        action_weights=visits / jnp.sum(visits, axis=-1, keepdims=True),
        draw_weights=selection.draw_weights(jnp.log(visits), config.temperature, action, explore),
        root_value=search_forest.mean_values(forest)[0],
        visit_counts=visits.astype(jnp.int32),
        q_values=forest.q_values[:num_actions, 0].T,
        max_depth=max_depth,
        mean_depth=mean_depth,
    )
    return found, [forest]


def _add_dirichlet_noise(
    key: jax.Array,
    logits: jax.Array,
    invalid_actions: jax.Array,
    explore: jax.Array,
    config: muzero_config.SearchSection,
) -> jax.Array:
    """Returns the prior's log probabilities [B, A], with noise in rows that explore.

    Illegal actions have the lowest float.

    logits: masked.
    """
    prior = jax.nn.softmax(logits)
    gammas = log_gamma(key, config.dirichlet_alpha, logits.shape)
    dirichlet = jax.nn.softmax(jnp.where(invalid_actions, selection.LOWEST, gammas))
    share = config.dirichlet_fraction * explore[:, None]
    mixed = (1.0 - share) * prior + share * dirichlet
    return jnp.where(invalid_actions, selection.LOWEST, jnp.log(jnp.maximum(mixed, selection.TINY)))


def _sample_visits(
    key: jax.Array, visits: jax.Array, logits: jax.Array, explore: jax.Array, temperature: float
) -> jax.Array:
    """Returns actions [B] drawn in proportion to visits^(1/temperature); without `explore` the most visited.

    The prior breaks ties, so that a greedy row does not prefer low action numbers.
    """
    greedy = jnp.argmax(visits + 0.5 * jax.nn.softmax(logits), axis=-1)
    if temperature == 0.0:
        return greedy.astype(jnp.int32)
    sampled = jax.random.categorical(key, jnp.log(visits) / temperature)
    return jnp.where(explore, sampled, greedy).astype(jnp.int32)


def search(
    params: Any,
    key: jax.Array,
    root: types.Root,
    recurrent_fn: types.RecurrentFn | types.ChanceFn,
    *,
    config: muzero_config.SearchSection,
    explore: jax.Array,
    invalid_actions: jax.Array | None = None,
    return_tree: bool = False,
    opponent_model: bool = False,
) -> types.SearchResult:
    """Runs `config.num_simulations` simulations from each root and returns the result.

    `explore` is data, so that training and evaluation share one compiled batch. A row without noise has the same
    result for every key.

    Args:
      params: the parameters that `recurrent_fn` takes.
      recurrent_fn: the model. A ChanceFn makes a tree with chance nodes, where a simulation takes two network calls.
      config: the policy ("gumbel" or "puct"), the budget and the constants.
      explore: [B] bool, true: add noise at the root; false: act greedily.
      invalid_actions: [B, A] bool, true: illegal at the root; None: all actions are legal, which is faster. A row
        without a legal action gets action 0.
      return_tree: adds the whole tree to the result.
      opponent_model: at odd depths, visits follow the prior alone, which is another player's policy.
    """
    policy, score = {
        "gumbel": (gumbel.search, selection.gumbel_scores),
        "puct": (puct_search, selection.puct_scores),
    }[config.policy]
    score = functools.partial(score, config=config)
    if opponent_model:
        score = functools.partial(selection.alternating_scores, own=score)
    evaluate: types.Evaluate | types.Chance
    if isinstance(recurrent_fn, types.ChanceFn):
        num_codes, num_actions = recurrent_fn.num_codes, root.prior_logits.shape[-1]
        score = functools.partial(selection.chance_scores, own=score, num_actions=num_actions, num_codes=num_codes)
        evaluate = types.Chance(
            functools.partial(recurrent_fn.decide, params), functools.partial(recurrent_fn.resolve, params), num_codes
        )
    else:
        evaluate = functools.partial(recurrent_fn, params)
    # Whatever the caller allows for its own arrays.
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        result, forests = policy(
            key, root, evaluate, config=config, score=score, explore=explore, invalid_actions=invalid_actions
        )
        return result._replace(tree=search_forest.tree(forests, explore.shape[0])) if return_tree else result


def sweep_widths(config: muzero_config.SearchSection, num_actions: int) -> tuple[int, ...]:
    """Returns how many of a root's actions each network call takes, if all actions are legal."""
    if config.policy == "puct":
        return (1,) * config.num_simulations
    return gumbel.sweep_widths(min(config.num_considered, num_actions), config.num_simulations, config.rounds)


def tree_bytes(batch_size: int, num_actions: int, config: muzero_config.SearchSection, *, num_codes: int = 0) -> int:
    """Returns the largest size of the trees' tables in bytes, without embeddings.

    num_codes: those of a model with chance.
    """
    rounds = gumbel.rounds(sweep_widths(config, num_actions))
    return max(_forest_bytes(batch_size * round_.width, round_.end, num_actions, num_codes) for round_ in rounds)


def _forest_bytes(num_trees: int, num_simulations: int, num_actions: int, num_codes: int) -> int:
    def make() -> search_forest.Forest:
        root = types.Root(jnp.zeros((num_trees, num_actions)), jnp.zeros(num_trees), ())

        def evaluate(action: jax.Array, embedding: Any) -> tuple[types.Prediction, Any]:
            return types.Prediction(action, action, action, action), embedding

        rules = search_forest.Rules(
            evaluate=types.Chance(evaluate, evaluate, num_codes) if num_codes else evaluate,  # type: ignore[arg-type]
            score=lambda forest: forest.prior,
            root_actions=jnp.ones((num_actions, num_trees), bool),
            max_depth=None,
        )
        return search_forest.enlarge(search_forest.plant(root, rules), num_simulations)

    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(make)))
