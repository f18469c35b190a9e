"""MuZero's memory is a recurrent core behind the representation; acting carries it, training burns it in.

Acting's state is stored in every few rows, as in R2D2 (Kapturowski et al. 2019, section 3). A window includes the rows
before it. The core sees them again with newer parameters, from the last stored state that is at least `muzero.burn_in`
rows back. If the episode began later than that, the state is acting's own, except for the parameters.

R2D2 learns all steps after a burn-in, so no gradient goes through the burn-in itself. Here one position of a window is
unrolled, so gradients do go through; otherwise the core would never learn what to remember for it.

Shape letters: B batch, S slots, Q rows before a window, N numbers of a state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base, muzero_model
from seedzero.config import configs
from seedzero.core import types
from seedzero.networks import actor_critic, observations, recurrence
from seedzero.replay import sources, windowing

STATE, LAST_ACTION = "state", "last_action"
"""Names of the stored arrays."""


class MuZeroMemory(NamedTuple):
    """The memory of an environment."""

    state: jax.Array  # [S, N], the core's state
    action: jax.Array  # [S] int32, or [S, D] in -1 to 1, the last one
    repetition: Any  # of random actions; an empty tuple if there is none


def stored(config: configs.Config, spec: types.EnvSpec) -> dict[str, sources.Stored]:
    """Returns the arrays that are stored for windows to begin with; none without a memory."""
    muzero = config.muzero
    if muzero.memory == "none":
        return {}
    number = np.dtype(np.float32)
    width = recurrence.state_width(muzero.memory, muzero.memory_width)
    return {
        STATE: sources.Stored((width,), number, every=muzero.STATE_EVERY),
        LAST_ACTION: sources.Stored(
            spec.action_shape, number if spec.is_continuous else np.dtype(np.int32), every=muzero.STATE_EVERY
        ),
    }


def initial(config: configs.Config, spec: types.EnvSpec, num_slots: int, repetition: Any) -> Any:
    """Returns the memory before the first step; without a core, only the repetition of random actions."""
    if config.muzero.memory == "none":
        return repetition
    width = recurrence.state_width(config.muzero.memory, config.muzero.memory_width)
    dtype = jnp.float32 if spec.is_continuous else jnp.int32
    return MuZeroMemory(jnp.zeros((num_slots, width)), jnp.zeros((num_slots, *spec.action_shape), dtype), repetition)


def see(
    parts: muzero_model.Parts, params: base.Params, memory: MuZeroMemory, inputs: base.Inputs
) -> tuple[MuZeroMemory, jax.Array, jax.Array]:
    """Returns the memory to store before a step, the core's state [B, N] after it, and hidden states [B, ...]."""
    network = parts.network.memory
    assert network is not None
    # The state that an episode begins with is stored: rows of a resumed run are those of one that continued.
    state, action = (
        jnp.where(inputs.first.reshape(-1, *[1] * (x.ndim - 1)), 0, x) for x in (memory.state, memory.action)
    )
    memory = memory._replace(state=state, action=action)
    steps = actor_critic.Steps.single(inputs.observation, inputs.first, inputs.reward, action)
    state, hidden = network.unroll(parts.network.cast(params), memory.state, steps)
    return memory, state, hidden[:, 0]


def represent(
    parts: muzero_model.Parts, params: base.Params, windows: windowing.Windows, positions: slice
) -> jax.Array:
    """Returns the hidden states [B, P, ...] at some of the windows' observed positions.

    Args:
      params: in the compute dtype.
      windows: with the rows before them if there is a memory. Then the observations are those of the first positions,
        without a gap.
      positions: the P positions.
    """
    if parts.network.memory is None:
        seen = windowing.observed(windows, positions)
        hidden = parts.network.represent(params, observations.flat(seen))
        return hidden.reshape(*next(iter(seen.values())).shape[:2], *hidden.shape[1:])
    before, every = windows.before, parts.config.muzero.STATE_EVERY
    assert before is not None
    num_before = before.first.shape[1]
    num_seen = range(next(iter(windows.observation.values())).shape[1])[positions][-1] + 1

    def joined(earlier: jax.Array, later: jax.Array) -> jax.Array:
        return jnp.concatenate([earlier, later[:, :num_seen]], axis=1)

    observation = {name: joined(x, windows.observation[name]) for name, x in before.observation.items()}
    action = joined(before.stored["action"], windows.stored["action"])
    # Of the rows of `every` at the beginning, only that of the stored state has a number that is a multiple of
    # `every`.
    begin = (num_before - windows.time) % every
    begins = jnp.arange(num_before + num_seen) == begin[:, None]
    last_action = jnp.concatenate([jnp.zeros_like(action[:, :1]), action[:, :-1]], axis=1)
    given = before.stored[LAST_ACTION][:, :1]
    last_action = jnp.where(begins.reshape(*begins.shape, *[1] * (action.ndim - 2)), given, last_action)
    steps = actor_critic.Steps(
        observation, joined(before.first, windows.first), joined(before.reward, windows.reward), last_action
    )
    _, hidden = parts.network.memory.unroll(params, before.stored[STATE][:, 0], steps, begins)
    return hidden[:, num_before:][:, positions]
