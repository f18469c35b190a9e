"""Acting with everything that an environment carries from step to step: its newest frames and the agent's memory.

Shape letters: B batch, S slots.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seedzero.agents import base
from seedzero.core import types
from seedzero.networks import observations


class Carried(NamedTuple):
    """What the environments carry, one row each.

    Attributes:
      past: frames before the newest one, [S, *shape with stack - 1 frames on the last axis]; () for a stack of 1.
      memory: the agent's.
    """

    past: Any
    memory: base.Memory


class Seen(NamedTuple):
    """What B environments show; the fields are those of `base.Inputs`, but for one newest frame each.

    Attributes:
      frame: [B, *observation_shape] of the spec's dtype.
    """

    frame: jax.Array
    reward: jax.Array
    first: jax.Array
    action_mask: jax.Array
    explore: jax.Array
    slot: jax.Array


def initial(agent: base.Agent, spec: types.EnvSpec, num_slots: int) -> Carried:
    """Returns what environments carry before anything was seen."""
    num_past = agent.stack - 1
    shape = observations.stack_shape(spec.observation_shape, num_past)
    past = jnp.zeros((num_slots, *shape), spec.observation_dtype) if num_past else ()
    return Carried(past, agent.initial_memory(num_slots))


def act(
    agent: base.Agent,
    spec: types.EnvSpec,
    num_slots: int,
    params: base.Params,
    carried: Carried,
    seen: Seen,
    key: jax.Array,
) -> tuple[Carried, base.Outputs]:
    """Returns what B environments carry on, and the agent's outputs; num_slots: training slots of the run."""
    past, observation = push(spec, agent.stack, carried.past, seen.frame, seen.first)
    inputs = base.Inputs(
        observation={types.OBSERVATION: observation},
        reward=seen.reward,
        first=seen.first,
        action_mask=seen.action_mask,
        explore=seen.explore,
        slot=seen.slot,
        num_slots=num_slots,
        task=jnp.zeros_like(seen.slot),
    )
    memory, outputs = agent.act(params, carried.memory, inputs, key)
    return Carried(past, memory), outputs


def push(spec: types.EnvSpec, stack: int, past: Any, frame: jax.Array, first: jax.Array) -> tuple[Any, jax.Array]:
    """Returns the next past frames and the stacked observation [B, ...]; before an episode lies its first frame."""
    frame = frame.reshape(frame.shape[0], *observations.stack_shape(spec.observation_shape, 1))
    if stack == 1:
        return (), frame
    is_first = first.reshape(-1, *[1] * (frame.ndim - 1))
    past = jnp.where(is_first, jnp.concatenate([frame] * (stack - 1), axis=-1), past)
    stacked = jnp.concatenate([past, frame], axis=-1)
    return stacked[..., frame.shape[-1] :], stacked
