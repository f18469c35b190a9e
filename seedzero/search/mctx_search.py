"""Gumbel and PUCT search by mctx. The only file that imports it.

Whether a row explores is data, so that training and evaluation share one compiled batch: noise is switched off row by
row, and a row without noise gets the same action whatever the key.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mctx  # type: ignore[import-untyped]
import numpy as np

from seedzero.core import config as configuration
from seedzero.search import types

LOWEST = float(np.finfo(np.float32).min)
"""Logit of an illegal action. Finite, so that a row without any legal action gives no NaN."""

TINY = float(np.finfo(np.float32).tiny)


def search(
    params: Any,
    key: jax.Array,
    root: types.Root,
    recurrent_fn: types.RecurrentFn,
    *,
    config: configuration.SearchConfig,
    invalid_actions: jax.Array,
    explore: jax.Array,
) -> types.Result:
    """Returns what `config.num_simulations` simulations from each root find.

    Args:
      params: handed to `recurrent_fn`.
      key: consumed.
      root: positions to search from.
      recurrent_fn: the model.
      config: policy ("gumbel" or "puct"), budget and constants.
      invalid_actions: [B, A] bool, true: illegal at the root. A row without a legal action gets action 0.
      explore: [B] bool, true: with root noise; false: greedily.
    """
    policy = {"gumbel": _gumbel, "puct": _puct}[config.policy]
    return policy(params, key, root, recurrent_fn, config, invalid_actions, explore)


def _gumbel(
    params: Any,
    key: jax.Array,
    root: types.Root,
    recurrent_fn: types.RecurrentFn,
    config: configuration.SearchConfig,
    invalid_actions: jax.Array,
    explore: jax.Array,
) -> types.Result:
    """Gumbel MuZero (Danihelka et al. 2022): sequential halving at the root, completed Q values by the mixed value.

    What is learned is the improved policy softmax(logits + sigma(completed Q)) (their equation 11), not the visits.
    """
    output = mctx.gumbel_muzero_policy(
        params,
        key,
        _mctx_root(root),
        _mctx_recurrent(recurrent_fn),
        num_simulations=config.num_simulations,
        invalid_actions=invalid_actions,
        max_depth=config.max_depth or None,
        qtransform=functools.partial(
            mctx.qtransform_completed_by_mix_value,
            value_scale=config.value_scale,
            maxvisit_init=config.max_visit_init,
            epsilon=config.min_value_range,
        ),
        max_num_considered_actions=min(config.num_considered, root.prior_logits.shape[-1]),
        gumbel_scale=config.gumbel_scale * explore[:, None].astype(jnp.float32),
    )
    return _result(output.search_tree, output.action, output.action_weights)


def _puct(
    params: Any,
    key: jax.Array,
    root: types.Root,
    recurrent_fn: types.RecurrentFn,
    config: configuration.SearchConfig,
    invalid_actions: jax.Array,
    explore: jax.Array,
) -> types.Result:
    """MuZero's search (Schrittwieser et al. 2020, appendix B), with root noise over legal actions only.

    mctx breaks ties by noise; its key is fixed here, because rows that do not explore are to be deterministic.
    """
    noise_key, action_key = jax.random.split(key)
    noisy = _add_dirichlet_noise(noise_key, root.prior_logits, invalid_actions, explore, config)
    select = functools.partial(mctx.muzero_action_selection, pb_c_init=config.pb_c_init, pb_c_base=config.pb_c_base)
    tree = mctx.search(
        params,
        jax.random.key(0),
        root=_mctx_root(root._replace(prior_logits=noisy)),
        recurrent_fn=_mctx_recurrent(recurrent_fn),
        root_action_selection_fn=functools.partial(select, depth=0),
        interior_action_selection_fn=select,
        num_simulations=config.num_simulations,
        max_depth=config.max_depth or None,
        invalid_actions=invalid_actions,
    )
    summary = tree.summary()
    action = _sample_visits(action_key, summary.visit_counts, noisy, explore, config.temperature)
    return _result(tree, action, summary.visit_probs)


def _add_dirichlet_noise(
    key: jax.Array,
    logits: jax.Array,
    invalid_actions: jax.Array,
    explore: jax.Array,
    config: configuration.SearchConfig,
) -> jax.Array:
    """Returns log probabilities [B, A] of the prior, mixed with noise where `explore`; the lowest float if illegal."""
    prior = jax.nn.softmax(jnp.where(invalid_actions, LOWEST, logits))
    gammas = jax.random.loggamma(key, config.dirichlet_alpha, logits.shape)
    noise = jax.nn.softmax(jnp.where(invalid_actions, LOWEST, gammas))
    share = config.dirichlet_fraction * explore[:, None]
    mixed = (1.0 - share) * prior + share * noise
    return jnp.where(invalid_actions, LOWEST, jnp.log(jnp.maximum(mixed, TINY)))


def _sample_visits(
    key: jax.Array, visit_counts: jax.Array, logits: jax.Array, explore: jax.Array, temperature: float
) -> jax.Array:
    """Returns actions [B] drawn in proportion to visits^(1/temperature); without `explore` the most visited ones.

    Equal visits are decided by the prior, so that a greedy row does not lean to low action numbers.
    """
    greedy = jnp.argmax(visit_counts + 0.5 * jax.nn.softmax(logits), axis=-1)
    if temperature == 0.0:
        return greedy.astype(jnp.int32)
    sampled = jax.random.categorical(key, jnp.log(visit_counts) / temperature)
    return jnp.where(explore, sampled, greedy).astype(jnp.int32)


def _mctx_root(root: types.Root) -> Any:
    return mctx.RootFnOutput(prior_logits=root.prior_logits, value=root.value, embedding=root.embedding)


def _mctx_recurrent(recurrent_fn: types.RecurrentFn) -> Any:
    def call(params: Any, key: jax.Array, action: jax.Array, embedding: types.Embedding) -> Any:
        del key
        prediction, embedding = recurrent_fn(params, action, embedding)
        return mctx.RecurrentFnOutput(**prediction._asdict()), embedding

    return call


def _result(tree: Any, action: jax.Array, action_weights: jax.Array) -> types.Result:
    summary = tree.summary()
    return types.Result(
        action=action.astype(jnp.int32),
        action_weights=action_weights,
        root_value=summary.value,
        visit_counts=summary.visit_counts.astype(jnp.int32),
        q_values=summary.qvalues,
    )
