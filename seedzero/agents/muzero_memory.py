"""MuZero's memory: a recurrent core behind the representation, carried by acting, burned in by training.

Acting's state is stored in every few rows, as R2D2's (Kapturowski et al. 2019, section 3). A window brings the rows
before it along: from the last stored state that is at least `muzero.burn_in` rows back the core sees them again, with
newer parameters. Where the episode began later than that, the state is acting's own, but for the parameters.

R2D2 learns all steps behind a burn-in, so no gradient goes through the burn-in itself. A window here has one position
that is unrolled, so gradients do go through: else the core would never learn what to keep for it.

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
    """Memory of an environment."""

    state: jax.Array  # [S, N] of the core
    action: jax.Array  # [S] int32, or [S, D] in -1 to 1, the last one
    repetition: Any  # of random actions; an empty tuple where that is off


def stored(config: configs.Config, spec: types.EnvSpec) -> dict[str, sources.Stored]:
    """Returns the arrays stored for windows to begin with; none without a memory."""
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
    """Returns the memory before the first step; without a core, the repetition of random actions alone."""
    if config.muzero.memory == "none":
        return repetition
    width = recurrence.state_width(config.muzero.memory, config.muzero.memory_width)
    dtype = jnp.float32 if spec.is_continuous else jnp.int32
    return MuZeroMemory(jnp.zeros((num_slots, width)), jnp.zeros((num_slots, *spec.action_shape), dtype), repetition)


def see(
    parts: muzero_model.Parts, params: base.Params, memory: MuZeroMemory, inputs: base.Inputs
) -> tuple[MuZeroMemory, jax.Array, jax.Array]:
    """Returns the memory as stored before a step, the core's state [B, N] behind it, and hidden states [B, ...]."""
    network = parts.network.memory
    assert network is not None
    # What an episode begins with is stored: rows of a resumed run are those of one that went on.
    begun = {
        name: jnp.where(inputs.first.reshape(-1, *[1] * (x.ndim - 1)), 0, x)
        for name, x in (("state", memory.state), ("action", memory.action))
    }
    memory = memory._replace(**begun)
    shown = actor_critic.Steps(inputs.observation, inputs.first, inputs.reward, memory.action)
    steps = jax.tree.map(lambda x: x[:, None], shown)
    state, hidden = network.unroll(parts.network.cast(params), memory.state, steps)
    return memory, state, hidden[:, 0]


def represent(
    parts: muzero_model.Parts, params: base.Params, windows: windowing.Windows, positions: slice
) -> jax.Array:
    """Returns the hidden states [B, P, ...] at some of the windows' observed positions.

    Args:
      params: in the compute dtype.
      windows: with the rows before them where there is a memory. Their observations are those of the first positions
        then, without a gap.
      positions: of P observations.
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
    # The row of the stored state is the only one of `every` at the beginning whose number is a multiple of `every`.
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
