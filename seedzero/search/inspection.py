"""Measures the depth of finished trees, and turns them into a form that can be drawn.

A search's forests have T = W * B trees, W for each position; the first trees of all positions come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.search import search_forest, types


def depth_statistics(forests: Sequence[search_forest.Forest], batch_size: int) -> tuple[jax.Array, jax.Array]:
    """Returns the largest depth [B] int32 and the mean depth [B] of the simulations' last nodes."""
    made = jnp.concatenate([_rows(search_forest.is_last(f)[1:].T, batch_size) for f in forests], axis=-1)
    depth = jnp.concatenate([_rows(search_forest.depths(f)[1:].T, batch_size) for f in forests], axis=-1)
    depth = jnp.where(made, depth, 0)
    num_made = jnp.maximum(jnp.sum(made, axis=-1), 1)
    return jnp.max(depth, axis=-1).astype(jnp.int32), jnp.sum(depth, axis=-1) / num_made


def tree(forests: Sequence[search_forest.Forest], batch_size: int) -> types.Tree:
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


def _nodes(forest: search_forest.Forest) -> types.Tree:
    """Returns the nodes [T, N] of trees; nodes that do not exist are marked as in types.Tree."""
    nodes = jnp.arange(forest.shape[1])
    made = search_forest.is_made(forest).T
    parent = jnp.max(jnp.where(forest.path_action != search_forest.ABSENT, nodes[:, None], -1), axis=1).T
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
        value=jnp.where(made, search_forest.mean_values(forest).T, 0.0),
        reward=at_parent(forest.path_reward, 0.0),
        discount=at_parent(forest.path_discount, 1.0),
        depth=jnp.where(made, search_forest.depths(forest).T, 0).astype(jnp.int32),
        prior=forest.prior.T,
        is_afterstate=None if kind is None else made & kind.T,
    )


def _joined_root(forests: Sequence[search_forest.Forest], batch_size: int) -> types.Tree:
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
