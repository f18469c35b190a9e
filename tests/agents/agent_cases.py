"""What tests show to agents: inputs and windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.config import agent_settings, configs, options
from seedzero.core import types
from seedzero.replay import windowing


def named(agent: str, changes: Mapping[str, options.Value]) -> dict[str, options.Value]:
    """Returns settings by SECTION.KEY, of names KEY that the agent has, or SECTION__KEY."""
    config = configs.of_agent(agent)
    return {
        name.replace("__", ".") if "__" in name else agent_settings.name(config, name): value
        for name, value in changes.items()
    }


def inputs(observation: Any, num_actions: int = 3, **changes: Any) -> base.Inputs:
    """Returns training rows in the middle of their episodes, with all actions legal, unless told.

    observation: [B, ...], or {name: [B, ...]}. action_mode: modes [B] int8, or [B] bool, true: EXPLORE, false: GREEDY.
    """
    named = observation if isinstance(observation, Mapping) else {types.OBSERVATION: jnp.asarray(observation)}
    size = len(jax.tree.leaves(named)[0])
    usual: dict[str, Any] = {
        "reward": jnp.asarray(np.zeros(size, np.float32)),
        "first": jnp.asarray(np.zeros(size, bool)),
        "terminated": jnp.asarray(np.zeros(size, bool)),
        "action_mask": jnp.asarray(np.ones((size, num_actions), bool)),
        "action_mode": jnp.asarray(np.ones(size, bool)),
        "slot": jnp.asarray(np.arange(size, dtype=np.int32)),
        "num_slots": size,
        "task": jnp.asarray(np.zeros(size, np.int32)),
    }
    values = {**usual, **changes}
    mode = values.pop("action_mode")
    if mode.dtype == bool:
        mode = jnp.where(mode, types.EXPLORE, types.GREEDY)
    return base.Inputs(observation=named, action_mode=mode, **values)


def windows(observation: Any, *, stored: Mapping[str, Any], **changes: Any) -> windowing.Windows:
    """Returns whole windows within an episode, unless told: of observations [B, P, ...], stored arrays [B, J, ...]."""
    shape = np.shape(stored["action"])[:2]
    no = np.zeros(shape, bool)
    usual = windowing.Windows(
        observation={types.OBSERVATION: observation},
        places=np.zeros((*np.shape(observation)[:2], 1), np.int32),
        reward=np.zeros(shape),
        terminated=no,
        truncated=no,
        first=no,
        stored=dict(stored),
        valid=~no,
        weight=np.ones(shape[0]),
        slot=np.arange(shape[0]),
        time=np.zeros(shape[0], np.int32),
    )
    made: windowing.Windows = jax.tree.map(jnp.asarray, usual._replace(**changes))
    return made


def part(windows: windowing.Windows, rows: slice, positions: slice = slice(None)) -> windowing.Windows:
    """Returns some of the windows, or some positions of each."""
    found: windowing.Windows = jax.tree.map(lambda x: x[rows, positions] if x.ndim > 1 else x[rows], windows)
    return found


def padded(windows: windowing.Windows, fill: float) -> windowing.Windows:
    """Returns the windows with one more of weight 0, whose numbers are `fill`."""

    def pad(x: Any) -> jax.Array:
        row = jnp.full_like(x[:1], fill) if jnp.issubdtype(x.dtype, jnp.floating) else x[:1]
        return jnp.concatenate([x, row])

    grown: windowing.Windows = jax.tree.map(pad, windows)
    return grown._replace(weight=grown.weight.at[-1].set(0.0))


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
