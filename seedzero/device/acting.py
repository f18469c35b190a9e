"""Acting with everything that an environment carries from step to step: its newest frames and the agent's memory.

Shape letters: B batch, S slots.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedzero.agents import base
from seedzero.core import types
from seedzero.networks import observations
from seedzero.ops import unpacking


class Carried(NamedTuple):
    """What the environments carry, one row each.

    Attributes:
      past: frames before the newest one, {name: [S, *shape with stack - 1 frames on the last axis]}; {} for a stack
        of 1.
      memory: the agent's.
    """

    past: dict[str, jax.Array]
    memory: base.Memory


class Seen(NamedTuple):
    """What B environments show; the fields are those of `base.Inputs`, but for one newest frame each.

    Attributes:
      frame: [B, *observation_shape] of the spec's dtype, as the worker sent it.
      terminated: None: evaluations, whose steps nobody learns from.
      task: None: 0 everywhere.
    """

    frame: jax.Array
    reward: jax.Array
    first: jax.Array
    action_mask: jax.Array
    explore: jax.Array
    slot: jax.Array
    terminated: jax.Array | None = None
    task: jax.Array | None = None


def initial(agent: base.Agent, spec: types.EnvSpec, num_slots: int, *, begins: bool = False) -> Carried:
    """Returns what environments carry before anything was seen; begins: a process begins to train in them."""
    num_past = agent.stack - 1
    past = observations.zeros(spec, num_past, num_slots) if num_past else {}
    memory = agent.first_memory if begins and agent.first_memory else agent.initial_memory
    return Carried(past, memory(num_slots))


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
    past, inputs = look(agent, spec, num_slots, carried, seen)
    memory, outputs = agent.act(params, carried.memory, inputs, key)
    return Carried(past, memory), outputs


def look(
    agent: base.Agent, spec: types.EnvSpec, num_slots: int, carried: Carried, seen: Seen
) -> tuple[dict[str, jax.Array], base.Inputs]:
    """Returns the past frames that B environments carry on, and the agent's inputs."""
    past, observation = push(spec, agent.stack, carried.past, seen.frame, seen.first)
    return past, base.Inputs(
        observation=observation,
        reward=seen.reward,
        first=seen.first,
        terminated=jnp.zeros_like(seen.first) if seen.terminated is None else seen.terminated,
        action_mask=seen.action_mask,
        explore=seen.explore,
        slot=seen.slot,
        num_slots=num_slots,
        task=jnp.zeros_like(seen.slot) if seen.task is None else seen.task,
    )


def push(
    spec: types.EnvSpec, stack: int, past: dict[str, jax.Array], frame: jax.Array, first: jax.Array
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Returns the next past frames and the stacked observation, by name; before an episode lies its first frame."""
    frames = unpacking.unpack(spec.packed, frame)
    frames = {
        array.name: frames[array.name].reshape(-1, *observations.stack_shape(array.shape, 1)) for array in spec.arrays
    }
    if stack == 1:
        return {}, frames
    stacked = {}
    for name, newest in frames.items():
        is_first = first.reshape(-1, *[1] * (newest.ndim - 1))
        before = jnp.where(is_first, jnp.concatenate([newest] * (stack - 1), axis=-1), past[name])
        stacked[name] = jnp.concatenate([before, newest], axis=-1)
    return {name: seen[..., frames[name].shape[-1] :] for name, seen in stacked.items()}, stacked
