"""The tree search with a model of one's own: here the exact rules of a corridor, for many positions at once.

python examples/search_alone.py

The goal is the last of ten cells; each step costs 0.1, arriving pays 1. Any functions of JAX are a model: a network,
a simulator, or both. The policy network knows nothing, the value network neither.
"""

from typing import Any

import jax
import jax.numpy as jnp

from seedzero import search as mcts

NUM_CELLS = 10


def recurrent_fn(params: Any, action: jax.Array, cell: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
    """Takes action 0 (left) or 1 (right) in cells [R]; a row that has arrived stays."""
    has_arrived = cell == NUM_CELLS - 1
    moved = jnp.clip(cell + 2 * action - 1, 0, NUM_CELLS - 1)
    after = jnp.where(has_arrived, cell, moved)
    prediction = mcts.Prediction(
        reward=jnp.where(has_arrived, 0.0, jnp.where(after == NUM_CELLS - 1, 1.0, -0.1)),
        discount=jnp.where(after == NUM_CELLS - 1, 0.0, 1.0),  # 0 behind the end of an episode
        prior_logits=jnp.zeros((*cell.shape, 2)),
        value=jnp.zeros(cell.shape),
    )
    return prediction, after


@jax.jit
def plan(key: jax.Array, cell: jax.Array) -> mcts.Result:
    root = mcts.Root(prior_logits=jnp.zeros((*cell.shape, 2)), value=jnp.zeros(cell.shape), embedding=cell)
    return mcts.search(
        None,  # params of recurrent_fn
        key,
        root,
        recurrent_fn,
        config=mcts.SearchConfig(policy="puct", num_simulations=32),
        explore=jnp.zeros(cell.shape, bool),
        return_tree=True,
    )


found = plan(jax.random.key(0), jnp.arange(5, NUM_CELLS - 1))
for row, cell in enumerate(range(5, NUM_CELLS - 1)):
    print(
        f"cell {cell}: action {found.action[row]}, visits {found.visit_counts[row]}, value {found.root_value[row]:.2f}"
    )
assert found.tree is not None
print(mcts.to_dot(found.tree, row=3)[:200], "...")
