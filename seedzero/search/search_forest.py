"""Stores search trees in tables, without inner loops: a simulation costs the same few array operations at any depth.

Every node stores its whole path from the root as a row of tables, written once when the node is created:

    path_action[n, k]    action at node k on the path to node n; ABSENT if k is not on the path
    path_reward[n, k]    discounted sum of the rewards between k and n
    path_discount[n, k]  product of the discounts between k and n

Each of the three walks of a tree search is then a single expression over a table:

    selection  a node's next action depends only on its own statistics, so every node has it ready (`next_action`).
               The descent ends at the newest node whose whole path agrees with the next actions.
    expansion  the new node's row is its parent's row plus one edge.
    backup     node k gets path_reward[n, k] + path_discount[n, k] * value(n); one masked update of all edges.

Trees are the last axis of every table of numbers, so that vectors hold the same entry of many trees.

With chance, decisions and afterstates alternate from the root on. An afterstate's edges are the C codes of chance. A
decision's edge has reward 0 and discount 1; a code's edge has the reward and the discount. A simulation goes from its
last decision over an afterstate, new or old, to the decision that follows one of its codes: it creates up to two
nodes, and each edge of its path counts once. A new afterstate backs up its own value to the edges before it, because
that is an expectation over all codes; the new decision's value says more only about the code that led to it.

Shape letters: T trees, N nodes, A actions, or max(A, C) edges with chance. Nodes are numbered in order of creation; 0
is the root.
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
    """Trees that grow together, by one node each for every simulation."""

    # hidden states, parts [n, T, ...] with N nodes altogether, or [n, B, ...] if all trees of a position have the
    # same. Nodes come first because writing one node of each tree is one slice then
    embedding: tuple[types.Embedding, ...]
    value: jax.Array  # [N, T] of the value network
    # [A, N, T] probabilities of the policy network. Actions come first, here and below, because sums and comparisons
    # over actions use whole vectors then, which is twice as fast on a CPU
    prior: jax.Array
    log_prior: jax.Array  # [A, N, T] their logarithms, which do not underflow
    visits: jax.Array  # [A, N, T] float32, visits of each edge
    q_values: jax.Array  # [A, N, T] mean return of each edge; 0 if unvisited
    next_action: jax.Array  # [N, T] int32, the next descent's action at each node
    path_action: jax.Array  # [N, N, T] int32, entry [n, k] of each tree
    path_reward: jax.Array  # [N, N, T]
    path_discount: jax.Array  # [N, N, T]
    is_afterstate: jax.Array | None = None  # [N, T] bool, true: an afterstate; None: a model without chance

    @property
    def shape(self) -> tuple[int, int, int]:
        """Returns (edges, N, T)."""
        return self.prior.shape  # type: ignore[return-value]


_EDGES = {"prior", "log_prior", "visits", "q_values"}
_PATHS = {"path_action", "path_reward", "path_discount"}

Score: TypeAlias = Callable[[Forest], jax.Array]
"""Scores every action of every node [A, N, T]; the next descent takes the highest, or the first of equal ones."""


class Rules(NamedTuple):
    """What does not change from simulation to simulation."""

    evaluate: types.Evaluate | types.Chance  # the model with its parameters
    score: Score  # scores for the descents' choice
    root_actions: jax.Array  # [A, T] bool, true: allowed at the root
    max_depth: int | None  # longest path from the root, in actions; None: unlimited

    @property
    def num_codes(self) -> int:
        """Returns C, or 0 for a model without chance."""
        return self.evaluate.num_codes if isinstance(self.evaluate, types.Chance) else 0


def plant(root: types.Root, rules: Rules) -> Forest:
    """Returns trees [T] of one node each; the root's embedding may be [B, ...], shared by several trees."""
    log_prior = _log_probabilities(root.prior_logits.astype(jnp.float32), rules.num_codes)[:, None]
    num_edges, _, num_trees = log_prior.shape
    edges = jnp.zeros((num_edges, 1, num_trees))
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
        is_afterstate=jnp.zeros((1, num_trees), bool) if rules.num_codes else None,
    )
    return forest._replace(next_action=_choose(forest, rules))


def enlarge(forest: Forest, num_simulations: int, *, apart: bool = False) -> Forest:
    """Returns the trees with room for more simulations. apart: whether their hidden states form a separate part."""
    num_more = num_simulations if forest.is_afterstate is None else 2 * num_simulations

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
    """Returns some of each position's W trees; the first trees of all positions come first among the T = W * B trees.

    chosen: [W', B] int32, numbers below W; the result's trees are W' * B in the same order.
    """

    def take_states(part: jax.Array) -> jax.Array:
        return part if part.shape[1] < forest.shape[2] else lookup.trees_states(part, chosen)

    taken = _map_tables(lambda _, table: lookup.trees_numbers(table, chosen), forest)
    return taken._replace(embedding=jax.tree.map(take_states, forest.embedding))


def _map_tables(function: Callable[[str, jax.Array], jax.Array], forest: Forest) -> Forest:
    """Applies function(name of the field, array) to every array except hidden states, and returns the forest."""
    tables: dict[str, Any] = {
        name: function(name, x) for name, x in forest._asdict().items() if name != "embedding" and x is not None
    }
    return forest._replace(**tables)


def simulate(forest: Forest, number: jax.Array, rules: Rules, active: jax.Array | None = None) -> Forest:
    """Returns the trees after one simulation each.

    Args:
      forest: the trees, with room for the simulation.
      number: scalar int32, the simulation's number from 1; without chance also that of its new node.
      active: [T] bool, false: this tree stays unchanged (its new nodes are unreachable); None: all grow.
    """
    parent = _descend(forest, rules.max_depth)
    edge = lookup.numbers(forest.next_action, parent)
    model, after = rules.evaluate, None
    if isinstance(model, types.Chance):
        forest, after = _decide(forest, 2 * number - 1, parent, edge, model, active)
        number, parent, edge, model = 2 * number, after.node, after.code, model.resolve
    prediction, embedding = model(edge, _states(forest, parent))
    prediction = types.Prediction(*(x.astype(jnp.float32) for x in prediction))
    path = _only(active, _extend(forest, parent, edge, prediction))
    returns = path.reward + path.discount * prediction.value
    if after is not None and after.value is not None:
        is_before = jnp.arange(forest.shape[1])[:, None] != after.node
        returns = jnp.where(after.is_new & is_before, _returns_to(forest, after.node, after.value), returns)
    forest = _backup(forest, path, returns)
    forest = _write(forest, number, path, prediction, embedding)
    return forest._replace(next_action=_choose(forest, rules))


class _After(NamedTuple):
    """The afterstates that a simulation visits, [T]."""

    node: jax.Array  # int32, their node numbers
    code: jax.Array  # int32, their next codes
    is_new: jax.Array  # bool
    value: jax.Array | None  # values of the new ones; None: the model has none


def _decide(
    forest: Forest,
    node: jax.Array,
    parent: jax.Array,
    edge: jax.Array,
    model: types.Chance,
    active: jax.Array | None,
) -> tuple[Forest, _After]:
    """Returns the forest with an afterstate at `node` where the descent ended at a decision, and all afterstates."""
    assert forest.is_afterstate is not None
    is_new = lookup.numbers(forest.is_afterstate.astype(jnp.int32), parent) == 0
    found, embedding = model.decide(edge, _states(forest, parent))
    logits, none = found.code_logits.astype(jnp.float32), jnp.zeros(edge.shape)
    value = None if found.value is None else found.value.astype(jnp.float32)
    prediction = types.Prediction(none, none + 1.0, logits, none if value is None else value)
    path = _only(is_new if active is None else is_new & active, _extend(forest, parent, edge, prediction))
    forest = _write(forest, node, path, prediction, embedding, is_afterstate=True)
    likeliest = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    return forest, _After(jnp.where(is_new, node, parent), jnp.where(is_new, likeliest, edge), is_new, value)


def _states(forest: Forest, node: jax.Array) -> types.Embedding:
    return jax.tree.map(lambda *parts: lookup.states(parts, node), *forest.embedding)


# Selection --------------------------------------------------------------------------------------------------------


def _descend(forest: Forest, max_depth: int | None) -> jax.Array:
    """Returns the descents' last nodes, [T] int32, whose next action leaves the tree or exceeds the depth limit."""
    reached = jnp.all((forest.path_action == ABSENT) | (forest.path_action == forest.next_action), axis=1)
    if max_depth is not None:
        reached &= depths(forest) < max_depth
    # A path's nodes were created in its order, so the newest one reached is the deepest.
    return jnp.max(jnp.where(reached, jnp.arange(forest.shape[1])[:, None], 0), axis=0)


def _choose(forest: Forest, rules: Rules) -> jax.Array:
    """Returns the next action of every node, or the next code of an afterstate, [N, T] int32."""
    at_root = jnp.arange(forest.shape[1])[:, None] == 0
    root_actions = rules.root_actions
    if (num_beyond := forest.shape[0] - len(root_actions)) > 0:
        root_actions = jnp.pad(root_actions, ((0, num_beyond), (0, 0)))
    forbidden = at_root & ~root_actions[:, None]
    return _first_highest(jnp.where(forbidden, -jnp.inf, rules.score(forest)))


def _first_highest(scores: jax.Array) -> jax.Array:
    """Returns the index of the highest entry along the first axis, int32; the first of equal entries.

    It takes two reductions of whole vectors, because jnp.argmax compares one number after another on a CPU.
    """
    index = jnp.arange(len(scores), dtype=jnp.int32).reshape(-1, *[1] * (scores.ndim - 1))
    is_highest = scores == jnp.max(scores, axis=0)
    return jnp.min(jnp.where(is_highest, index, len(scores) - 1), axis=0)


# Expansion and backup ---------------------------------------------------------------------------------------------


class _Path(NamedTuple):
    """The rows [N, T] that a new node has in the path tables."""

    action: jax.Array
    reward: jax.Array
    discount: jax.Array


def _extend(forest: Forest, parent: jax.Array, action: jax.Array, prediction: types.Prediction) -> _Path:
    """Extends the parent's path by one edge."""
    is_parent = jnp.arange(forest.shape[1])[:, None] == parent
    discount = lookup.numbers(forest.path_discount, parent)
    return _Path(
        action=jnp.where(is_parent, action, lookup.numbers(forest.path_action, parent)),
        reward=lookup.numbers(forest.path_reward, parent) + discount * prediction.reward,
        discount=discount * prediction.discount,
    )


def _only(active: jax.Array | None, path: _Path) -> _Path:
    """Removes all nodes from the paths of inactive trees."""
    if active is None:
        return path
    at_root = jnp.arange(len(path.action))[:, None] == 0
    return path._replace(action=jnp.where(active, path.action, jnp.where(at_root, UNREACHABLE, ABSENT)))


def _returns_to(forest: Forest, node: jax.Array, value: jax.Array) -> jax.Array:
    """Returns [N, T]: the return from each node on the way to nodes [T], given the values of these."""
    discount = lookup.numbers(forest.path_discount, node)
    return lookup.numbers(forest.path_reward, node) + discount * value


def _backup(forest: Forest, path: _Path, returns: jax.Array) -> Forest:
    """Adds the returns [N, T] to the mean of each edge of the path, and returns the forest."""
    taken = path.action == jnp.arange(forest.shape[0])[:, None, None]
    visits = forest.visits + taken
    step = (returns - forest.q_values) / jnp.maximum(visits, 1.0)
    return forest._replace(visits=visits, q_values=jnp.where(taken, forest.q_values + step, forest.q_values))


def _write(
    forest: Forest,
    node: jax.Array,
    path: _Path,
    prediction: types.Prediction,
    embedding: types.Embedding,
    *,
    is_afterstate: bool = False,
) -> Forest:
    """Adds the new node, whose edges have no visits, and returns the forest."""
    put = functools.partial(jax.lax.dynamic_update_index_in_dim, index=node, axis=0)
    put_edge = functools.partial(jax.lax.dynamic_update_index_in_dim, index=node, axis=1)
    is_node = jnp.arange(forest.shape[1])[:, None] == node

    def put_state(state: jax.Array, *parts: jax.Array) -> jax.Array:
        last, num_before = parts[-1], sum(map(len, parts[:-1]))
        written: jax.Array = jax.lax.dynamic_update_index_in_dim(last, state.astype(last.dtype), node - num_before, 0)
        return written

    log_prior = _log_probabilities(prediction.prior_logits, forest.shape[0])
    if forest.is_afterstate is not None:
        kind = jnp.full((1, forest.shape[2]), is_afterstate)
        forest = forest._replace(is_afterstate=jax.lax.dynamic_update_slice(forest.is_afterstate, kind, (node, 0)))
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


def _log_probabilities(logits: jax.Array, num_edges: int) -> jax.Array:
    """Returns log probabilities [A, T] of logits [T, A]; further edges are impossible."""
    log_prior = jax.nn.log_softmax(logits).T
    if (num_beyond := num_edges - len(log_prior)) > 0:
        log_prior = jnp.pad(log_prior, ((0, num_beyond), (0, 0)), constant_values=-jnp.inf)
    return log_prior


# Statistics -------------------------------------------------------------------------------------------------------


def depths(forest: Forest) -> jax.Array:
    """Returns the number of actions from the root to every node [N, T] int32; arbitrary for nodes that do not exist.

    An afterstate has the depth of its decision.
    """
    num_edges = jnp.sum(forest.path_action != ABSENT, axis=1)
    return num_edges if forest.is_afterstate is None else num_edges // 2


def is_made(forest: Forest) -> jax.Array:
    """Returns [N, T] bool, true: the node exists."""
    return forest.path_action[:, 0] != UNREACHABLE


def is_last(forest: Forest) -> jax.Array:
    """Returns [N, T] bool, true: the node exists and a simulation ended there, so it is no afterstate."""
    return is_made(forest) if forest.is_afterstate is None else is_made(forest) & ~forest.is_afterstate


def mean_values(forest: Forest) -> jax.Array:
    """Returns the mean of a node's own value and its edges' returns, [N, T]; an afterstate has no own value."""
    num_visits = jnp.sum(forest.visits, axis=0)
    returns = jnp.sum(forest.visits * forest.q_values, axis=0)
    mean = (forest.value + returns) / (1.0 + num_visits)
    if forest.is_afterstate is None:
        return mean
    return jnp.where(forest.is_afterstate, returns / jnp.maximum(num_visits, 1.0), mean)


def first_edges(forest: Forest, number: int) -> Forest:
    """Returns the trees with this number of edges at each node."""
    return _map_tables(lambda name, table: table[:number] if name in _EDGES else table, forest)
