"""Searches through MuZero's learned model: to act, to make targets, and to show people.

Inside, rewards and values are in the network's unit (`muzero_model.unit`).

Shape letters: B batch, A actions, D numbers of a continuous action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seedzero import search as mcts
from seedzero.agents import base, muzero_model, sampled
from seedzero.core import types
from seedzero.networks import muzero_net

_SAMPLE_KEY = 2**20 + 1
"""Differs from the number of `muzero`'s repetitions; the search splits the key of a call far fewer times."""


class RootSearch(NamedTuple):
    action: jax.Array  # [B] int32, or [B, D] in -1 to 1
    result: mcts.Result  # as the engine returns it
    root: mcts.Root  # the root that it ran on
    unit: jax.Array | float  # size of the usual reward, a scalar
    # [B, A, D] in -1 to 1, the continuous actions that the result's numbers stand for; None: actions are discrete
    sampled: jax.Array | None = None


def find(
    parts: muzero_model.Parts,
    params: base.Params,
    observation: Mapping[str, jax.Array],
    action_mask: jax.Array | None,
    action_mode: jax.Array,
    key: jax.Array,
    *,
    hidden: jax.Array | None = None,
    return_tree: bool = False,
) -> RootSearch:
    """Searches from observations [B, ...], whose stacked frames are on the last axis, and returns what it found.

    Args:
      action_mask: [B, A] bool, true: legal; None: all are.
      action_mode: [B] int8, see `base.Inputs`: EXPLORE has noise at the root, SAMPLE draws from the search's policy.
      key: consumed.
      hidden: [B, ...] of these observations, if a memory made them; None represents them here.
      return_tree: adds the tree to the result.
    """
    unit, params = muzero_model.unit(params), parts.network.cast(params)
    model = _model(parts)
    embedding = model.represent(params, observation) if hidden is None else hidden
    root = mcts.Root(*model.predict(params, embedding), embedding)
    if not parts.spec.is_continuous:
        result = mcts.search(
            params,
            key,
            root,
            recurrent_fn(parts),
            config=parts.config.search,
            invalid_actions=None if action_mask is None else ~action_mask,
            explore=action_mode == types.EXPLORE,
            return_tree=return_tree,
            opponent_model=parts.config.league.opponent_model,
        )
        return drawn(result, root, unit, action_mode, key)
    of_vectors = recurrent_fn(parts)
    assert not isinstance(of_vectors, mcts.ChanceFn)
    result, root = sampled.search(
        params,
        key,
        root,
        of_vectors,
        config=parts.config,
        num_dimensions=len(parts.spec.action_low),
        explore=action_mode == types.EXPLORE,
        return_tree=return_tree,
    )
    _, actions = root.embedding
    found = drawn(result, root, unit, action_mode, key)
    return found._replace(action=sampled.pick(actions, found.action), sampled=actions)


def drawn(
    result: mcts.Result, root: mcts.Root, unit: jax.Array | float, action_mode: jax.Array, key: jax.Array
) -> RootSearch:
    """Draws the actions of rows that sample from the search's policy, and returns what the search found."""
    action = jax.random.categorical(jax.random.fold_in(key, _SAMPLE_KEY), jnp.log(result.action_weights))
    samples = action_mode == types.SAMPLE
    result = result._replace(
        action=jnp.where(samples, action, result.action).astype(jnp.int32),
        draw_weights=jnp.where(samples[:, None], result.action_weights, result.draw_weights),
    )
    return RootSearch(result.action, result, root, unit)


def stored(parts: muzero_model.Parts, found: RootSearch) -> dict[str, jax.Array]:
    """Returns the arrays [B, ...] to store with the actions: targets of policy and value, and sampled actions."""
    value = found.unit * search_value(parts, found.root, found.result)
    kept = {"policy": found.result.action_weights, "value": value}
    return kept if found.sampled is None else {"sampled": found.sampled, **kept}


def search_value(parts: muzero_model.Parts, root: mcts.Root, result: mcts.Result) -> jax.Array:
    """Returns the values [B] to store, in the network's unit.

    "root": the mean of everything the search saw, including bad moves (EfficientZero V2's value, equation 10).
    "policy": the worth of the policy to be learned, sum over a of pi(a) completed Q(a) (Danihelka et al. 2022,
    appendix D): it is better than the mean if many simulations go to bad moves.
    """
    if parts.config.muzero.stored_value == "root":
        return result.root_value
    return jnp.sum(result.action_weights * completed_q(root, result), axis=-1)


def completed_q(root: mcts.Root, result: mcts.Result) -> jax.Array:
    """Returns the completed Q values [B, A] of the root's actions, in the network's unit."""
    visits = result.visit_counts.astype(jnp.float32)
    return mcts.completed_q(jax.nn.softmax(root.prior_logits).T, root.value, visits.T, result.q_values.T).T


def look(
    parts: muzero_model.Parts,
    params: base.Params,
    memory: base.Memory,
    inputs: base.Inputs,
    key: jax.Array,
    *,
    return_tree: bool,
) -> base.Searched:
    """Returns what a search found, in the environment's units."""
    mask = inputs.action_mask if parts.spec.has_action_mask else None
    hidden = None if parts.network.memory is None else muzero_model.see(parts, params, memory, inputs)[2]
    looked = inputs.observation, mask, inputs.action_mode, key
    return searched(parts, find(parts, params, *looked, hidden=hidden, return_tree=return_tree))


def searched(parts: muzero_model.Parts, found: RootSearch) -> base.Searched:
    """Returns a search's findings in the environment's units."""
    result, unit = found.result, found.unit
    tree = result.tree
    return base.Searched(
        action=found.action if found.sampled is None else sampled.to_environment(found.action, parts.spec),
        policy=result.action_weights,
        value=unit * search_value(parts, found.root, result),
        prior=jax.nn.softmax(found.root.prior_logits),
        network_value=unit * found.root.value,
        visit_counts=result.visit_counts,
        q_values=unit * result.q_values,
        completed_q=unit * completed_q(found.root, result),
        max_depth=result.max_depth,
        mean_depth=result.mean_depth,
        sampled=None if found.sampled is None else sampled.to_environment(found.sampled, parts.spec),
        tree=None if tree is None else tree._replace(value=unit * tree.value, reward=unit * tree.reward),
    )


# The model ---------------------------------------------------------------------------------------------------------


def model_functions(parts: muzero_model.Parts) -> base.Model:
    """Returns the model's functions with rewards and values in the environment's units, actions of -1 to 1."""
    inner, cast = _model(parts), parts.network.cast

    def predict(params: base.Params, embedding: Any) -> tuple[jax.Array, jax.Array]:
        logits, value = inner.predict(cast(params), embedding)
        return logits, muzero_model.unit(params) * value

    def dynamics(params: base.Params, embedding: Any, action: jax.Array) -> tuple[Any, jax.Array]:
        embedding, reward, _ = inner.dynamics(cast(params), embedding, action)
        return embedding, muzero_model.unit(params) * reward

    return base.Model(
        represent=lambda params, observation: inner.represent(cast(params), observation),
        predict=predict,
        dynamics=dynamics,
        discount=muzero_model.signed_discount(parts),
        remembers=parts.network.memory is not None,
        chance=None
        if (chance := parts.network.chance) is None
        else base.ChanceModel(
            decide=lambda params, embedding, action: chance.decide(cast(params), embedding, action),
            resolve=lambda params, afterstate, code: chance.resolve(cast(params), afterstate, code)[0],
        ),
    )


def recurrent_fn(parts: muzero_model.Parts) -> mcts.RecurrentFn | mcts.ChanceFn:
    """Returns the model in the engine's form."""
    model = _model(parts)
    if parts.network.chance is not None:
        return _chance_fn(parts, parts.network.chance, model)

    def step(params: base.Params, action: jax.Array, parent: Any) -> tuple[mcts.Prediction, Any]:
        child, reward, discount = model.dynamics(params, parent, action)
        policy_logits, value = model.predict(params, child)
        return mcts.Prediction(reward, discount, policy_logits, value), child

    return step


def _chance_fn(parts: muzero_model.Parts, chance: muzero_net.ChanceFunctions, model: _Model) -> mcts.ChanceFn:
    def decide(params: base.Params, action: jax.Array, parent: Any) -> tuple[mcts.Afterstate, Any]:
        afterstate = chance.decide(params, parent, action)
        code_logits, value_logits = chance.predict(params, afterstate)
        return mcts.Afterstate(code_logits, muzero_model.decode(parts, value_logits)), afterstate

    def resolve(params: base.Params, code: jax.Array, afterstate: Any) -> tuple[mcts.Prediction, Any]:
        child, reward_logits = chance.resolve(params, afterstate, code)
        policy_logits, value = model.predict(params, child)
        return mcts.Prediction(*muzero_model.decode_reward(parts, reward_logits), policy_logits, value), child

    return mcts.ChanceFn(decide, resolve, chance.num_codes)


class _Model(NamedTuple):
    """Like `base.Model`, but its dynamics also return the factors [B] of the values behind the rewards."""

    represent: Callable[[base.Params, Mapping[str, jax.Array]], Any]
    predict: Callable[[base.Params, Any], tuple[jax.Array, jax.Array]]
    dynamics: Callable[[base.Params, Any, jax.Array], tuple[Any, jax.Array, jax.Array]]


def _model(parts: muzero_model.Parts) -> _Model:
    """Returns the model as functions of parameters in the compute dtype, in the network's unit."""
    network = parts.network
    if network.prefix is not None:
        return _prefix_model(parts, network.prefix)

    def predict(params: base.Params, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        policy_logits, value_logits = network.predict(params, hidden)
        return policy_logits, muzero_model.decode_value(parts, value_logits)

    def dynamics(params: base.Params, hidden: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        hidden, reward_logits = network.dynamics(params, hidden, action)
        return hidden, *muzero_model.decode_reward(parts, reward_logits)

    return _Model(network.represent, predict, dynamics)


class _Imagined(NamedTuple):
    """Embedding of a node under predicted sums of rewards (value prefix)."""

    hidden: jax.Array  # [B, ...]
    carry: Any  # the LSTM's state of the sum
    prefix: jax.Array  # [B] the sum on the way to the node
    num_summed: jax.Array  # [B] int32, number of rewards in it


def _prefix_model(parts: muzero_model.Parts, prefix: muzero_net.Prefix) -> _Model:
    """Returns the model as in `_model`, where the reward of an edge is the difference of its ends' sums.

    As in training, sums begin again at a fixed number of steps from the root.
    """

    def represent(params: base.Params, observation: Mapping[str, jax.Array]) -> _Imagined:
        hidden = parts.network.represent(params, observation)
        zeros = jnp.zeros(hidden.shape[0])
        return _Imagined(hidden, prefix.initial(hidden.shape[0]), zeros, zeros.astype(jnp.int32))

    def predict(params: base.Params, imagined: _Imagined) -> tuple[jax.Array, jax.Array]:
        policy_logits, value_logits = parts.network.predict(params, imagined.hidden)
        return policy_logits, muzero_model.decode_value(parts, value_logits)

    def dynamics(params: base.Params, parent: _Imagined, action: jax.Array) -> tuple[_Imagined, jax.Array, jax.Array]:
        is_full = parent.num_summed == muzero_model.PREFIX_HORIZON
        carry = jax.tree.map(lambda x: jnp.where(is_full[:, None], 0, x), parent.carry)
        hidden, carry, logits = prefix.step(params, parent.hidden, action, carry)
        total, discount = muzero_model.decode_reward(parts, logits)
        reward = total - jnp.where(is_full, 0.0, parent.prefix)
        return _Imagined(hidden, carry, total, jnp.where(is_full, 1, parent.num_summed + 1)), reward, discount

    return _Model(represent, predict, dynamics)
