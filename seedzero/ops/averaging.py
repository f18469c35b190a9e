"""Means over devices, as few messages between hosts as can be."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp


def mean(tree: Any, axis_name: str) -> Any:
    """Returns the means of arrays over a mapped axis.

    Between processes every array is a message, half a millisecond with gloo on loopback, and a network has a hundred
    of them: there, all float32 arrays travel as one. Numbers do not depend on that.
    """
    if jax.process_count() == 1:
        return jax.lax.pmean(tree, axis_name)
    return joined_mean(tree, axis_name)


def joined_mean(tree: Any, axis_name: str) -> Any:
    """Returns the same, of all float32 arrays as one vector."""
    leaves, structure = jax.tree.flatten(tree)
    chosen = [place for place, leaf in enumerate(leaves) if leaf.dtype == jnp.float32]
    others = [place for place in range(len(leaves)) if place not in chosen]
    found = dict(zip(others, jax.lax.pmean([leaves[place] for place in others], axis_name), strict=True))
    if chosen:
        vector = jax.lax.pmean(jnp.concatenate([leaves[place].reshape(-1) for place in chosen]), axis_name)
        ends = list(itertools.accumulate(leaves[place].size for place in chosen))
        for place, part in zip(chosen, jnp.split(vector, ends[:-1]), strict=True):
            found[place] = part.reshape(leaves[place].shape)
    return jax.tree.unflatten(structure, [found[place] for place in range(len(leaves))])
