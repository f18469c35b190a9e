"""Trees in tables, without inner loops: one simulation costs the same few array operations at any depth.

Every node stores its whole path from the root as a row of tables, written once at the node's creation:

    path_action[n, k]    action at node k on the path to node n; ABSENT if k is not on the path
    path_reward[n, k]    discounted sum of the rewards between k and n
    path_discount[n, k]  product of the discounts between k and n

Each of the three walks of a tree search is then one expression over a table:

    selection  a node's next action depends on its own statistics alone, so every node has it ready (`next_action`).
               The descent ends at the newest node whose whole path agrees with the next actions.
    expansion  the new node's row is its parent's row plus one edge.
    backup     node k gets path_reward[n, k] + path_discount[n, k] * value(n); one masked update of all edges.

Trees are the last axis of every table of numbers: vectors then hold the same entry of many trees.

Shape letters: T trees, N nodes, A actions. Nodes are numbered in order of creation; 0 is the root.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.search import lookup, types

ABSENT = -1
"""In path_action: this node is not on the path."""

UNREACHABLE = np.iinfo(np.int32).max
"""In path_action at the root: the node does not exist yet, so no action leads to it."""


class Forest(NamedTuple):
    """Trees growing together, by one node each per simulation."""

    # hidden states, parts [n, T, ...] that are N nodes together, or [n, B, ...] if all trees of a position have the
    # same. Nodes first: writing one node of each tree is one slice
    embedding: tuple[types.Embedding, ...]
    value: jax.Array  # [N, T] of the value network
    # [A, N, T] probabilities of the policy network. Actions first, here and below: sums and comparisons over actions
    # then use whole vectors, which is twice as fast on a CPU
    prior: jax.Array
    log_prior: jax.Array  # [A, N, T] their logarithms, which do not underflow
    visits: jax.Array  # [A, N, T] float32, visits of each edge
    q_values: jax.Array  # [A, N, T] mean return of each edge; 0 if unvisited
    next_action: jax.Array  # [N, T] int32, the next descent's action at each node
    path_action: jax.Array  # [N, N, T] int32, entry [n, k] of each tree
    path_reward: jax.Array  # [N, N, T]
    path_discount: jax.Array  # [N, N, T]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(A, N, T)."""
        return self.prior.shape  # type: ignore[return-value]


_EDGES = {"prior", "log_prior", "visits", "q_values"}
_PATHS = {"path_action", "path_reward", "path_discount"}

Score: TypeAlias = Callable[[Forest], jax.Array]
"""Scores every action of every node [A, N, T]; the next descent takes the highest, the first of equal ones."""


class Rules(NamedTuple):
    """The constants of all simulations."""

    # (action [T], embedding [T, ...]) -> (prediction, embedding): the model with its parameters
    evaluate: types.Evaluate
    score: Score  # the descents' choice
    root_actions: jax.Array  # [A, T] bool, true: allowed at the root
    max_depth: int | None  # longest path from the root, in edges; None: unbounded


def plant(root: types.Root, rules: Rules) -> Forest:
    """Returns trees [T] of one node each; the root's embedding may be [B, ...], shared by trees."""
    num_trees, num_actions = root.prior_logits.shape
    log_prior = _log_probabilities(root.prior_logits.astype(jnp.float32))[:, None]
    edges = jnp.zeros((num_actions, 1, num_trees))
    paths = jnp.zeros((1, 1, num_trees))
    forest = Forest(
        embedding=(jax.tree.map(lambda leaf: leaf[None], root.embedding),),
        value=root.value.astype(jnp.float32)[None],
        prior=jnp.exp(log_prior),
        log_prior=log_prior,
        visits=edges,
        q_values=edges,
        next_action=jnp.zeros((1, num_trees), jnp.int32),
        path_action=jnp.full((1, 1, num_trees), ABSENT, jnp.int32),
        path_reward=paths,
        path_discount=paths + 1.0,
    )
    return forest._replace(next_action=_choose(forest, rules))


def enlarge(forest: Forest, num_more: int, *, apart: bool = False) -> Forest:
    """Returns the trees with room for more nodes; apart: their hidden states form a separate part."""

    def pad(name: str, table: jax.Array) -> jax.Array:
        axes = (1,) if name in _EDGES else (0, 1) if name in _PATHS else (0,)
        widths = [(0, num_more if axis in axes else 0) for axis in range(table.ndim)]
        return jnp.pad(table, widths, constant_values=ABSENT if name == "path_action" else 0)

    _, num_nodes, num_trees = forest.shape
    more = jax.tree.map(lambda x: jnp.zeros((num_more, num_trees, *x.shape[2:]), x.dtype), forest.embedding[0])
    embedding = (*forest.embedding, more)
    larger = _map_tables(pad, forest)
    return larger._replace(
        embedding=embedding if apart else (jax.tree.map(lambda *parts: jnp.concatenate(parts), *embedding),),
        path_action=larger.path_action.at[num_nodes:, 0].set(UNREACHABLE),
    )


def take(forest: Forest, chosen: jax.Array) -> Forest:
    """Returns some of each position's W trees; of the T = W * B trees, all first ones are first.

    chosen: [W', B] int32, numbers below W; the result's trees are W' * B in the same order.
    """

    def take_states(part: jax.Array) -> jax.Array:
        return part if part.shape[1] < forest.shape[2] else lookup.trees_states(part, chosen)

    taken = _map_tables(lambda _, table: lookup.trees_numbers(table, chosen), forest)
    return taken._replace(embedding=jax.tree.map(take_states, forest.embedding))


def _map_tables(function: Callable[[str, jax.Array], jax.Array], forest: Forest) -> Forest:
    """Returns the forest of function(name of the field, array) of every array but hidden states."""
    tables: dict[str, Any] = {name: function(name, x) for name, x in forest._asdict().items() if name != "embedding"}
    return forest._replace(**tables)


def simulate(forest: Forest, node: jax.Array, rules: Rules, active: jax.Array | None = None) -> Forest:
    """Returns the trees after one simulation each; its new node is `node`.

    Args:
      forest: the trees, with room for the node.
      node: scalar int32.
      active: [T] bool, false: this tree stays unchanged (its new node is unreachable); None: all grow.
    """
    parent = _descend(forest, rules.max_depth)
    action = lookup.numbers(forest.next_action, parent)
    prediction, embedding = rules.evaluate(
        action, jax.tree.map(lambda *parts: lookup.states(parts, parent), *forest.embedding)
    )
    prediction = types.Prediction(*(x.astype(jnp.float32) for x in prediction))
    path = _extend(forest, parent, action, prediction)
    if active is not None:  # paths of inactive trees touch no node
        at_root = jnp.arange(len(path.action))[:, None] == 0
        path = path._replace(action=jnp.where(active, path.action, jnp.where(at_root, UNREACHABLE, ABSENT)))
    forest = _backup(forest, path, prediction.value)
    forest = _write(forest, node, path, prediction, embedding)
    return forest._replace(next_action=_choose(forest, rules))


# Selection --------------------------------------------------------------------------------------------------------


def _descend(forest: Forest, max_depth: int | None) -> jax.Array:
    """Returns the descents' last nodes, [T] int32: their next action leaves the tree or exceeds the depth limit."""
    reached = jnp.all((forest.path_action == ABSENT) | (forest.path_action == forest.next_action), axis=1)
    if max_depth is not None:
        reached &= depths(forest) < max_depth
    # A path's nodes were created in its order: the newest one reached is the deepest.
    return jnp.max(jnp.where(reached, jnp.arange(forest.shape[1])[:, None], 0), axis=0)


def _choose(forest: Forest, rules: Rules) -> jax.Array:
    """Returns the next action of every node, [N, T] int32."""
    at_root = jnp.arange(forest.shape[1])[:, None] == 0
    forbidden = at_root & ~rules.root_actions[:, None]
    return _first_highest(jnp.where(forbidden, -jnp.inf, rules.score(forest)))


def _first_highest(scores: jax.Array) -> jax.Array:
    """Returns the index of the highest entry of the first axis, int32; the first of equal entries.

    Two reductions of whole vectors: on a CPU, jnp.argmax compares one number after the other.
    """
    index = jnp.arange(len(scores), dtype=jnp.int32).reshape(-1, *[1] * (scores.ndim - 1))
    is_highest = scores == jnp.max(scores, axis=0)
    return jnp.min(jnp.where(is_highest, index, len(scores) - 1), axis=0)


# Expansion and backup ---------------------------------------------------------------------------------------------


class _Path(NamedTuple):
    """The rows [N, T] of a new node in the path tables."""

    action: jax.Array
    reward: jax.Array
    discount: jax.Array


def _extend(forest: Forest, parent: jax.Array, action: jax.Array, prediction: types.Prediction) -> _Path:
    """Returns the parent's path plus one edge."""
    is_parent = jnp.arange(forest.shape[1])[:, None] == parent
    discount = lookup.numbers(forest.path_discount, parent)
    return _Path(
        action=jnp.where(is_parent, action, lookup.numbers(forest.path_action, parent)),
        reward=lookup.numbers(forest.path_reward, parent) + discount * prediction.reward,
        discount=discount * prediction.discount,
    )


def _backup(forest: Forest, path: _Path, value: jax.Array) -> Forest:
    """Returns the forest with the new return in the mean of each edge of the path."""
    returns = path.reward + path.discount * value
    taken = path.action == jnp.arange(forest.shape[0])[:, None, None]
    visits = forest.visits + taken
    step = (returns - forest.q_values) / jnp.maximum(visits, 1.0)
    return forest._replace(visits=visits, q_values=jnp.where(taken, forest.q_values + step, forest.q_values))


def _write(
    forest: Forest, node: jax.Array, path: _Path, prediction: types.Prediction, embedding: types.Embedding
) -> Forest:
    """Returns the forest with the new node, its edges without visits."""
    put = functools.partial(jax.lax.dynamic_update_index_in_dim, index=node, axis=0)
    put_edge = functools.partial(jax.lax.dynamic_update_index_in_dim, index=node, axis=1)
    is_node = jnp.arange(forest.shape[1])[:, None] == node

    def put_state(state: jax.Array, *parts: jax.Array) -> jax.Array:
        last, num_before = parts[-1], sum(map(len, parts[:-1]))
        written: jax.Array = jax.lax.dynamic_update_index_in_dim(last, state.astype(last.dtype), node - num_before, 0)
        return written

    log_prior = _log_probabilities(prediction.prior_logits)
    return forest._replace(
        embedding=(*forest.embedding[:-1], jax.tree.map(put_state, embedding, *forest.embedding)),
        value=put(forest.value, prediction.value),
        prior=put_edge(forest.prior, jnp.exp(log_prior)),
        log_prior=put_edge(forest.log_prior, log_prior),
        path_action=put(forest.path_action, path.action),
        path_reward=put(forest.path_reward, path.reward),
        # The discount from a node to itself is 1.
        path_discount=put(forest.path_discount, jnp.where(is_node, 1.0, path.discount)),
    )


def _log_probabilities(logits: jax.Array) -> jax.Array:
    """Returns log probabilities [A, T] of logits [T, A]."""
    return jax.nn.log_softmax(logits).T


# Statistics -------------------------------------------------------------------------------------------------------


def depths(forest: Forest) -> jax.Array:
    """Returns the number of edges from the root to every node [N, T] int32; 1 for nodes that do not exist."""
    return jnp.sum(forest.path_action != ABSENT, axis=1)


def is_made(forest: Forest) -> jax.Array:
    """Returns [N, T] bool, true: the node exists."""
    return forest.path_action[:, 0] != UNREACHABLE


def mean_values(forest: Forest) -> jax.Array:
    """Returns the mean of a node's own value and of its edges' returns, [N, T]."""
    num_visits = jnp.sum(forest.visits, axis=0)
    return (forest.value + jnp.sum(forest.visits * forest.q_values, axis=0)) / (1.0 + num_visits)
