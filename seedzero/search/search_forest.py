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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.search import types

# Picks entries of a forest's tables and hidden states for each tree.
#
# A gather is cheap on a CPU or GPU. A TPU moves a whole tile of 4 KiB for each gathered number, more for each
# scattered one, and many times its bytes for a hidden state. So there, every entry is compared with the wanted number
# instead. Both ways give the same bits, except for the sign of a zero.
#
# Shape letters: T trees, N nodes, B positions, W trees of each position. T = W * B; the first trees of all positions
# come first.
MOST_COMPARED = 16
"""Hidden states and trees are compared if there are at most this many to choose from, because all of them are read."""


# Numbers -----------------------------------------------------------------------------------------------------------


def numbers(table: jax.Array, index: jax.Array) -> jax.Array:
    """Returns table [N, ..., T] at index [T] of each tree, [..., T]."""
    index = index.reshape(*[1] * (table.ndim - 1), -1)

    def compare(table: jax.Array, index: jax.Array) -> jax.Array:
        is_wanted = jnp.arange(len(table)).reshape(-1, *[1] * (table.ndim - 1)) == index
        return jnp.sum(jnp.where(is_wanted, table, 0), axis=0, dtype=table.dtype)

    def gather(table: jax.Array, index: jax.Array) -> jax.Array:
        # For single numbers, because the result then has the table's order.
        shape = jnp.broadcast_shapes(index.shape[1:], table.shape[1:])
        others = jnp.meshgrid(*map(jnp.arange, shape), indexing="ij", sparse=True)
        return table.at[(jnp.broadcast_to(index[0], shape), *others)].get(mode="promise_in_bounds")

    return _by_platform(compare, gather, table, index)


def trees_numbers(table: jax.Array, chosen: jax.Array) -> jax.Array:
    """Returns table [..., W * B] of the trees `chosen` [W', B] int32 among each position's, [..., W' * B]."""
    num_positions = chosen.shape[1]

    def compare(table: jax.Array, chosen: jax.Array) -> jax.Array:
        groups = jnp.moveaxis(table.reshape(*table.shape[:-1], -1, 1, num_positions), -3, 0)
        return _select(groups, chosen).reshape(*table.shape[:-1], chosen.shape[0] * num_positions)

    def gather(table: jax.Array, chosen: jax.Array) -> jax.Array:
        return table[..., _trees(chosen)]

    are_many = table.shape[-1] // num_positions > MOST_COMPARED
    return _by_platform(gather if are_many else compare, gather, table, chosen)


def along(table: jax.Array, index: jax.Array) -> jax.Array:
    """Returns table [B, M] of numbers at index [B, W], [B, W]."""

    def compare(table: jax.Array, index: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(_is_at(index, table), table[:, None], 0), axis=-1, dtype=table.dtype)

    def gather(table: jax.Array, index: jax.Array) -> jax.Array:
        return jnp.take_along_axis(table, index, axis=-1)

    return _by_platform(compare, gather, table, index)


def put(table: jax.Array, index: jax.Array, values: jax.Array) -> jax.Array:
    """Returns table [B, M] with values [B, W] at index [B, W], distinct in each row."""

    def compare(table: jax.Array, index: jax.Array, values: jax.Array) -> jax.Array:
        is_at = _is_at(index, table)
        found = jnp.sum(jnp.where(is_at, values[:, :, None], 0), axis=1, dtype=table.dtype)
        return jnp.where(jnp.any(is_at, axis=1), found, table)

    def scatter(table: jax.Array, index: jax.Array, values: jax.Array) -> jax.Array:
        return table.at[jnp.arange(table.shape[0])[:, None], index].set(values)

    return _by_platform(compare, scatter, table, index, values)


def _is_at(index: jax.Array, table: jax.Array) -> jax.Array:
    return index[:, :, None] == jnp.arange(table.shape[-1])


# Hidden states -----------------------------------------------------------------------------------------------------


def states(parts: Sequence[jax.Array], node: jax.Array) -> jax.Array:
    """Returns hidden states at node [T] of each tree, [T, ...].

    parts: [n, T, ...], or [n, B, ...] if all trees of a position have the same. The parts have consecutive nodes, N
    altogether.
    """
    wanted, num_before = _in_part(parts[0], node), len(parts[0])
    for part in parts[1:]:
        wanted = jnp.where(_column(node >= num_before, part), _in_part(part, node - num_before), wanted)
        num_before += len(part)
    return wanted


def _in_part(part: jax.Array, index: jax.Array) -> jax.Array:
    """Returns part [n, T or B, ...] at index [T], [T, ...]; arbitrary for an index outside the part."""
    num_repeats = index.shape[0] // part.shape[1]
    part = jnp.concatenate([part] * num_repeats, axis=1) if num_repeats > 1 else part
    if len(part) == 1:
        return part[0]

    def compare(part: jax.Array, index: jax.Array) -> jax.Array:
        return _select(part, _column(index, part))

    def gather(part: jax.Array, index: jax.Array) -> jax.Array:
        return part.at[jnp.clip(index, 0, len(part) - 1), jnp.arange(index.shape[0])].get(mode="promise_in_bounds")

    return _by_platform(gather if len(part) > MOST_COMPARED else compare, gather, part, index)


def trees_states(part: jax.Array, chosen: jax.Array) -> jax.Array:
    """Returns part [n, W * B, ...] of the trees `chosen` [W', B] int32 among each position's, [n, W' * B, ...]."""
    num_groups = part.shape[1] // chosen.shape[1]

    def compare(part: jax.Array, chosen: jax.Array) -> jax.Array:
        groups = jnp.split(part, num_groups, axis=1)
        return jnp.concatenate([_select(groups, _column(number, part)) for number in chosen], axis=1)

    def gather(part: jax.Array, chosen: jax.Array) -> jax.Array:
        return part[:, _trees(chosen)]

    return _by_platform(gather if num_groups > MOST_COMPARED else compare, gather, part, chosen)


# Both --------------------------------------------------------------------------------------------------------------


def _by_platform(on_tpu: Callable[..., jax.Array], elsewhere: Callable[..., jax.Array], *arguments: Any) -> jax.Array:
    found: jax.Array = jax.lax.platform_dependent(*arguments, tpu=on_tpu, default=elsewhere)
    return found


def _trees(chosen: jax.Array) -> jax.Array:
    """Converts the trees [W', B] among each position's to numbers among all trees, [W' * B]."""
    num_positions = chosen.shape[1]
    return (chosen * num_positions + jnp.arange(num_positions)).reshape(-1)


def _select(choices: jax.Array | Sequence[jax.Array], index: jax.Array) -> jax.Array:
    """Returns each entry of choices[index]; both broadcast. An index without a choice takes the first one."""
    selected = jnp.broadcast_to(choices[0], jnp.broadcast_shapes(choices[0].shape, index.shape))
    for number in range(1, len(choices)):
        selected = jnp.where(index == number, choices[number], selected)
    return selected


def _column(x: jax.Array, part: jax.Array) -> jax.Array:
    """Appends the axes of a hidden state to x [T]."""
    return x.reshape(-1, *[1] * (part.ndim - 2))


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
        return part if part.shape[1] < forest.shape[2] else trees_states(part, chosen)

    taken = _map_tables(lambda _, table: trees_numbers(table, chosen), forest)
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
    edge = numbers(forest.next_action, parent)
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
    is_new = numbers(forest.is_afterstate.astype(jnp.int32), parent) == 0
    found, embedding = model.decide(edge, _states(forest, parent))
    logits, none = found.code_logits.astype(jnp.float32), jnp.zeros(edge.shape)
    value = None if found.value is None else found.value.astype(jnp.float32)
    prediction = types.Prediction(none, none + 1.0, logits, none if value is None else value)
    path = _only(is_new if active is None else is_new & active, _extend(forest, parent, edge, prediction))
    forest = _write(forest, node, path, prediction, embedding, is_afterstate=True)
    likeliest = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    return forest, _After(jnp.where(is_new, node, parent), jnp.where(is_new, likeliest, edge), is_new, value)


def _states(forest: Forest, node: jax.Array) -> types.Embedding:
    return jax.tree.map(lambda *parts: states(parts, node), *forest.embedding)


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
    discount = numbers(forest.path_discount, parent)
    return _Path(
        action=jnp.where(is_parent, action, numbers(forest.path_action, parent)),
        reward=numbers(forest.path_reward, parent) + discount * prediction.reward,
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
    discount = numbers(forest.path_discount, node)
    return numbers(forest.path_reward, node) + discount * value


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
    """Returns [N, T] bool, true: the node exists and a simulation ended there, so it is not an afterstate."""
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


# Measures the depth of finished trees, and turns them into a form that can be drawn.
#
# A search's forests have T = W * B trees, W for each position; the first trees of all positions come first.
def depth_statistics(forests: Sequence[Forest], batch_size: int) -> tuple[jax.Array, jax.Array]:
    """Returns the largest depth [B] int32 and the mean depth [B] of the simulations' last nodes."""
    made = jnp.concatenate([_rows(is_last(f)[1:].T, batch_size) for f in forests], axis=-1)
    depth = jnp.concatenate([_rows(depths(f)[1:].T, batch_size) for f in forests], axis=-1)
    depth = jnp.where(made, depth, 0)
    num_made = jnp.maximum(jnp.sum(made, axis=-1), 1)
    return jnp.max(depth, axis=-1).astype(jnp.int32), jnp.sum(depth, axis=-1) / num_made


def tree(forests: Sequence[Forest], batch_size: int) -> types.Tree:
    """Joins the trees of each position: the common root comes first, then the other nodes, tree by tree.

    Nodes keep their order within a tree, so children follow their parents.
    """
    parts, offset = [], 1
    for forest in forests:
        num_trees = forest.shape[2] // batch_size
        num_new = forest.shape[1] - 1
        first = offset + num_new * jnp.arange(num_trees)
        part = _nodes(forest)
        # Node 0 of each tree is the common root; node 1 is the tree's first own node.
        parent = jnp.where(part.parent > 0, part.parent - 1 + jnp.repeat(first, batch_size)[:, None], part.parent)
        parts.append(jax.tree.map(lambda x: _rows(x[:, 1:], batch_size), part._replace(parent=parent)))
        offset += num_trees * num_new
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), _joined_root(forests, batch_size), *parts)
    return joined  # type: ignore[no-any-return]


def _nodes(forest: Forest) -> types.Tree:
    """Returns the nodes [T, N] of trees; nodes that do not exist are marked as in types.Tree."""
    nodes = jnp.arange(forest.shape[1])
    made = is_made(forest).T
    parent = jnp.max(jnp.where(forest.path_action != ABSENT, nodes[:, None], -1), axis=1).T
    parent = jnp.where(made, parent, -1)
    kind = forest.is_afterstate
    own_visits = 1 if kind is None else 1 - kind.T

    def at_parent(table: jax.Array, otherwise: Any) -> jax.Array:
        table = jnp.moveaxis(table, -1, 0)
        entry = jnp.take_along_axis(table, jnp.maximum(parent, 0)[:, :, None], axis=-1)[:, :, 0]
        return jnp.where(parent >= 0, entry, otherwise)

    return types.Tree(
        parent=parent.astype(jnp.int32),
        action=at_parent(forest.path_action, -1).astype(jnp.int32),
        num_visits=jnp.where(made, own_visits + jnp.sum(forest.visits, axis=0).T, 0).astype(jnp.int32),
        value=jnp.where(made, mean_values(forest).T, 0.0),
        reward=at_parent(forest.path_reward, 0.0),
        discount=at_parent(forest.path_discount, 1.0),
        depth=jnp.where(made, depths(forest).T, 0).astype(jnp.int32),
        prior=forest.prior.T,
        is_afterstate=None if kind is None else made & kind.T,
    )


def _joined_root(forests: Sequence[Forest], batch_size: int) -> types.Tree:
    """Returns the root [B, 1] with the visits of all trees."""

    def total(edges: list[jax.Array]) -> jax.Array:
        rows = [_rows(jnp.sum(x[:, 0], axis=0)[:, None], batch_size) for x in edges]
        return jnp.concatenate(rows, axis=-1).sum(axis=-1, keepdims=True)

    num_visits, returns = total([f.visits for f in forests]), total([f.visits * f.q_values for f in forests])
    first = jax.tree.map(lambda x: _rows(x[:, :1], batch_size)[:, :1], _nodes(forests[0]))
    value = forests[0].value[0, :batch_size, None]
    joined: types.Tree = first._replace(
        num_visits=1 + num_visits.astype(jnp.int32), value=(value + returns) / (1.0 + num_visits)
    )
    return joined


def _rows(x: jax.Array, batch_size: int) -> jax.Array:
    """Returns [W * B, N, ...] as [B, W * N, ...]."""
    groups = jnp.moveaxis(x.reshape(-1, batch_size, *x.shape[1:]), 1, 0)
    return groups.reshape(batch_size, -1, *x.shape[2:])


def to_dot(tree: types.Tree, row: int = 0) -> str:
    """Returns one position's tree in Graphviz's language; `dot -Tsvg` draws it.

    An edge's label is its action, prior, reward and discount; a node's label is its visits and value. An afterstate is
    an ellipse, and its edges are codes.
    """
    nodes = jax.tree.map(lambda table: np.asarray(table[row]), tree)
    lines = ["digraph search {", "  node [shape=box];"]
    for node in np.flatnonzero(nodes.num_visits > 0):
        shape = "shape=ellipse, " if nodes.is_afterstate is not None and nodes.is_afterstate[node] else ""
        lines.append(f'  {node} [{shape}label="{nodes.num_visits[node]} visits\\nvalue {nodes.value[node]:.3f}"];')
        if (parent := nodes.parent[node]) >= 0:
            action = nodes.action[node]
            label = f"{action} ({nodes.prior[parent, action]:.2f})\\nreward {nodes.reward[node]:.3f}"
            lines.append(f'  {parent} -> {node} [label="{label}\\ndiscount {nodes.discount[node]:.3f}"];')
    return "\n".join([*lines, "}", ""])
