"""Chooses the actions of descents by PUCT or by Gumbel MuZero, from the statistics of one node alone.

Arrays have the shapes [A, ...] for edges and [...] for nodes: actions first, as in a forest, then any axes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.config import muzero_config
from seedzero.search import search_forest

LOWEST = float(np.finfo(np.float32).min)
"""Logit of an illegal action. It is finite, so that a row without legal actions does not give NaN."""
LOWEST_LEGAL = 0.5 * LOWEST
"""Smallest logit of a legal action: above an illegal one's even if its prior is 0 and its logit minus infinity."""

TINY = float(np.finfo(np.float32).tiny)


def masked(logits: jax.Array, invalid_actions: jax.Array | None) -> jax.Array:
    """Returns finite logits [B, A], where those of illegal actions are below all others.

    invalid_actions: [B, A] bool, true: illegal; None: all are legal.
    """
    legal = jnp.maximum(logits.astype(jnp.float32), LOWEST_LEGAL)
    return legal if invalid_actions is None else jnp.where(invalid_actions, LOWEST, legal)


def draw_weights(logits: jax.Array, scale: float, action: jax.Array, explore: jax.Array) -> jax.Array:
    """Returns the probabilities [B, A] of actions drawn in proportion to exp(logits / scale).

    By the Gumbel-max trick, these are also the probabilities that logits + scale * Gumbel noise is largest. Rows
    without `explore`, or a scale of 0, are not random: `action` has probability 1.
    """
    certain = jax.nn.one_hot(action, logits.shape[-1])
    if scale == 0.0:
        return certain
    return jnp.where(explore[:, None], jax.nn.softmax(logits / scale), certain)


def puct_scores(forest: search_forest.Forest, *, config: muzero_config.SearchSection) -> jax.Array:
    """Returns MuZero's upper confidence bounds [A, N, T] (Schrittwieser et al. 2020, appendix B, equation 2).

    Values are scaled to [0, 1] by the range of the node's own value and its edges', not by the whole tree's range as
    in equation 5, so that a node's choice depends on the node alone. Unvisited actions count as the worst.
    """
    num_visits = 1.0 + jnp.sum(forest.visits, axis=0)
    exploration = config.pb_c_init + jnp.log((num_visits + config.pb_c_base + 1.0) / config.pb_c_base)
    exploration *= jnp.sqrt(num_visits)
    own = search_forest.mean_values(forest)
    visited = forest.visits > 0
    known = jnp.where(visited, forest.q_values, own)
    lowest = jnp.minimum(own, jnp.min(known, axis=0))
    highest = jnp.maximum(own, jnp.max(known, axis=0))
    spread = jnp.maximum(highest - lowest, config.min_value_range)
    scaled = jnp.where(visited, forest.q_values - lowest, 0.0) / spread
    return scaled + exploration * forest.prior / (forest.visits + 1.0)


def gumbel_scores(forest: search_forest.Forest, *, config: muzero_config.SearchSection) -> jax.Array:
    """Returns how far each edge is behind the improved policy, [A, N, T] (Danihelka et al. 2022, section 5)."""
    bonus = value_bonus(forest.prior, forest.value, forest.visits, forest.q_values, config=config)
    policy = jax.nn.softmax(forest.log_prior + bonus, axis=0)
    return policy - forest.visits / (1.0 + jnp.sum(forest.visits, axis=0))


def alternating_scores(forest: search_forest.Forest, *, own: search_forest.Score) -> jax.Array:
    """Returns scores [A, N, T] of a tree whose prior at odd depths is another player's policy.

    There, visits follow the prior alone, so that a node's mean return is the expected one against that policy.
    """
    return jnp.where(search_forest.depths(forest) % 2 == 1, _deficit(forest), own(forest))


def chance_scores(
    forest: search_forest.Forest, *, own: search_forest.Score, num_actions: int, num_codes: int
) -> jax.Array:
    """Returns scores [max(A, C), N, T] of a tree with chance.

    Minus infinity for edges that a node's kind does not have.

    An afterstate's visits follow its prior as closely as whole numbers can, so that its mean return is the expected
    one. (Antonoglou et al. 2022, appendix A, take the highest prior / (visits + 1), as mctx does: with 32 codes that
    is many visits off.)
    """
    assert forest.is_afterstate is not None
    codes, actions = _deficit(forest)[:num_codes], own(search_forest.first_edges(forest, num_actions))

    def padded(scores: jax.Array) -> jax.Array:
        return jnp.pad(scores, ((0, len(forest.prior) - len(scores)), (0, 0), (0, 0)), constant_values=-jnp.inf)

    return jnp.where(forest.is_afterstate, padded(codes), padded(actions))


def _deficit(forest: search_forest.Forest) -> jax.Array:
    """Returns the share of visits that each edge is behind its prior, [A, N, T]."""
    return forest.prior - forest.visits / (1.0 + jnp.sum(forest.visits, axis=0))


def value_bonus(
    prior: jax.Array, value: jax.Array, visits: jax.Array, q_values: jax.Array, *, config: muzero_config.SearchSection
) -> jax.Array:
    """Returns sigma(completed Q) [A, ...], the search's addition to the prior's logits.

    Completed Q values are scaled to [0, 1] within the node, then by (max_visit_init + largest visit count) *
    value_scale (Danihelka et al. 2022, equation 8).

    Args: prior probabilities [A, ...], value [...] of the network, visits [A, ...], and q_values [A, ...], where those
    of unvisited actions are ignored.
    """
    completed = completed_q(prior, value, visits, q_values)
    lowest, highest = jnp.min(completed, axis=0), jnp.max(completed, axis=0)
    scale = (config.max_visit_init + jnp.max(visits, axis=0)) * config.value_scale
    scale /= jnp.maximum(highest - lowest, config.min_value_range)
    return scale * (completed - lowest)


def completed_q(prior: jax.Array, value: jax.Array, visits: jax.Array, q_values: jax.Array) -> jax.Array:
    """Returns Q values [A, ...]: visited actions' own, the mixed value for the others.

    See Danihelka et al. 2022, appendix D. The arguments are those of `value_bonus`.
    """
    visited = visits > 0
    # Visited actions with a prior of 0 count with a tiny weight.
    weight = jnp.where(visited, jnp.maximum(prior, TINY), 0.0)
    total_weight = jnp.sum(weight, axis=0)
    average = jnp.sum(weight * q_values, axis=0) / jnp.where(total_weight > 0, total_weight, 1.0)
    num_visits = jnp.sum(visits, axis=0)
    mixed = (value + num_visits * average) / (1.0 + num_visits)
    return jnp.where(visited, q_values, mixed)
