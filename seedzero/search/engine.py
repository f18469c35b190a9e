"""Runs either of the two searches behind one signature, and computes their cost."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from seedzero.config import muzero_config
from seedzero.search import gumbel, puct, search_forest, selection, types


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
        "puct": (puct.search, selection.puct_scores),
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
