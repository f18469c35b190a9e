"""What tests show to agents: inputs, and observations of windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.core import types
from seedzero.replay import windows as windowing


def inputs(observation: Any, num_actions: int = 3, **changes: Any) -> base.Inputs:
    """Returns training rows in the middle of their episodes, with all actions legal, unless told.

    observation: [B, ...], or {name: [B, ...]}. explore: modes [B] int8, or [B] bool, true: EXPLORE, false: GREEDY.
    """
    named = observation if isinstance(observation, Mapping) else {types.OBSERVATION: jnp.asarray(observation)}
    size = len(jax.tree.leaves(named)[0])
    usual: dict[str, Any] = {
        "reward": jnp.asarray(np.zeros(size, np.float32)),
        "first": jnp.asarray(np.zeros(size, bool)),
        "terminated": jnp.asarray(np.zeros(size, bool)),
        "action_mask": jnp.asarray(np.ones((size, num_actions), bool)),
        "explore": jnp.asarray(np.ones(size, bool)),
        "slot": jnp.asarray(np.arange(size, dtype=np.int32)),
        "num_slots": size,
        "task": jnp.asarray(np.zeros(size, np.int32)),
    }
    values = {**usual, **changes}
    if values["explore"].dtype == bool:
        values["explore"] = jnp.where(values["explore"], types.EXPLORE, types.GREEDY)
    return base.Inputs(observation=named, **values)


def shown(windows: windowing.Windows) -> jax.Array:
    """Returns the windows' observations."""
    return windows.observation[types.OBSERVATION]


def show(windows: windowing.Windows, observation: Any) -> windowing.Windows:
    """Returns the windows with other observations."""
    return windows._replace(observation={types.OBSERVATION: jnp.asarray(observation)})


def store(windows: windowing.Windows, **stored: Any) -> windowing.Windows:
    """Returns the windows with some stored arrays replaced or added."""
    return windows._replace(stored={**windows.stored, **stored})


def equal(a: Any, b: Any) -> bool:
    """Returns whether two trees have the same leaves, bit for bit."""
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
