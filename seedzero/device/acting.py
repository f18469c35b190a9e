"""Acts for environments on the devices, with all memory that they keep from step to step.

`make_act` makes the compiled program, which reads and writes the states on the devices. `act` is its central part,
which evaluations in a separate process also use.

Shape letters: B batch, S slots.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seedzero.agents import base
from seedzero.core import packing, types
from seedzero.device import batches, meshes, setups, steps
from seedzero.networks import observations
from seedzero.ops import unpacking
from seedzero.replay import ring_store, sampling, sources


class Carried(NamedTuple):
    """What environments carry from step to step, one row for each."""

    # frames before the newest, [S, *shape with stack - 1 frames last]; {} if the stack is 1
    past: dict[str, jax.Array]
    memory: base.Memory  # the agent's memory


class ActorState(NamedTuple):
    """The states that an acting call changes; they are donated."""

    carried: Carried  # [slots, ...] over all shards; past frames [slots, 1, ...] in the rings' layout
    rings: ring_store.Rings  # the stored rows, [training slots, time, ...] over all shards


def make_act(setup: setups.Setup) -> Callable[..., tuple[ActorState, Any]]:
    """Returns the jitted acting step, which donates the state.

    (seed, params, ActorState, Batch, Counters) -> (ActorState, action [R] int32 or [R, D] float32). It pushes the new
    frames, lets the agent act with one version of the parameters, and writes rows to the rings that `Batch.ring`
    names; the rows before them get the actions of `Batch.played`. If the agent has `Outputs.metrics`, the second
    result is (action, metrics {name: [R]}).
    """

    def run(
        seed: jax.Array, params: base.Params, actor: ActorState, batch: batches.Batch, counters: steps.Counters
    ) -> tuple[ActorState, Any]:
        shard = jax.lax.axis_index(meshes.AXIS)
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed + 1), counters.num_calls), shard)
        carried = take_carried(actor.carried, batch.slot)
        numbered = batch._replace(
            slot=setup.layout.number(batch.slot, shard), num_updates=counters.version, own=counters.own
        )
        carried, outputs = act(setup.agent, setup.spec, setup.layout.num_train, params, carried, numbered, key)
        carried = put_carried(actor.carried, batch.slot, carried)
        row = _row(setup, batch, outputs, counters)
        kept, crosses, before = setup.agent.num_kept, sources.crosses_episodes(setup.agent.data), actor.rings
        if batch.played is not None:
            before = ring_store.amend(before, batch.ring, ring_store.ACTION, batch.played, batch.played >= 0)
        rings = ring_store.write(before, batch.ring, row, counters.num_inserts, kept, crosses_episodes=crosses)
        if row.weight is not None and rings.max_weight is not None:  # so that every shard has the same number
            rings = rings._replace(max_weight=jax.lax.pmax(rings.max_weight, meshes.AXIS))
        return ActorState(carried, rings), (outputs.action, outputs.metrics) if outputs.metrics else outputs.action

    in_specs = (meshes.REPLICATED, meshes.REPLICATED, meshes.SHARDED, meshes.SHARDED, meshes.REPLICATED)
    return meshes.over_devices(run, setup.mesh, in_specs, (meshes.SHARDED, meshes.SHARDED), donate=(2,))


def _row(setup: setups.Setup, batch: batches.Batch, outputs: base.Outputs, counters: steps.Counters) -> ring_store.Row:
    weight = None
    if outputs.priority is not None and setup.prioritization:
        weight = sampling.weights(outputs.priority, setup.prioritization)
    versions = jnp.full(batch.slot.shape, counters.version, jnp.int32)
    stored = {**outputs.stored, **dict.fromkeys(setups.version_names(setup.agent), versions)}
    if ring_store.OWN in setup.stored:
        stored[ring_store.OWN] = jnp.full(batch.slot.shape, counters.own, bool)
    kept, observation = setup.spec.kept, batch.observation
    if kept != setup.spec:
        observation = observation[:, : kept.observation_bytes]
    return ring_store.Row(
        observation=observation,
        reward=batch.reward,
        terminated=batch.terminated,
        truncated=batch.truncated,
        first=batch.first,
        stored=stored,
        weight=weight,
    )


def take_carried(carried: Carried, slot: jax.Array) -> Carried:
    """Returns what environments at slots [B] carry; arbitrary for slots out of range."""
    only = jnp.zeros_like(slot)
    past = {name: ring_store.get_frames(frames, slot, only, mode="clip") for name, frames in carried.past.items()}
    return Carried(past, jax.tree.map(lambda x: x.at[slot].get(mode="clip"), carried.memory))


def put_carried(carried: Carried, slot: jax.Array, new: Carried) -> Carried:
    """Returns what all environments carry, updated at slots [B]; slots out of range are dropped."""
    only = jnp.zeros_like(slot)
    past = {name: ring_store.put_rows(frames, slot, only, new.past[name]) for name, frames in carried.past.items()}
    put = functools.partial(jax.tree.map, lambda x, new: x.at[slot].set(new, mode="drop"))
    return Carried(past, put(carried.memory, new.memory))


def initial(agent: base.Agent, spec: types.EnvSpec, num_slots: int, *, begins: bool = False) -> Carried:
    """Returns what environments carry before their first observation. begins: whether training begins with it."""
    num_past = agent.stack - 1
    past = observations.zeros(packing.without_training_only(spec), num_past, num_slots) if num_past else {}
    memory = agent.first_memory if begins and agent.first_memory else agent.initial_memory
    return Carried(past, memory(num_slots))


def act(
    agent: base.Agent,
    spec: types.EnvSpec,
    num_slots: int,
    params: base.Params,
    carried: Carried,
    seen: batches.Batch,
    key: jax.Array,
) -> tuple[Carried, base.Outputs]:
    """Returns what B environments carry afterwards, and the agent's outputs. num_slots: training slots of the run."""
    past, inputs = look(agent, spec, num_slots, carried, seen)
    memory, outputs = agent.act(params, carried.memory, inputs, key)
    return Carried(past, memory), outputs


def look(
    agent: base.Agent, spec: types.EnvSpec, num_slots: int, carried: Carried, seen: batches.Batch
) -> tuple[dict[str, jax.Array], base.Inputs]:
    """Returns the past frames of B environments for their next step, and the agent's inputs."""
    past, observation = push(spec, agent.stack, carried.past, seen.observation, seen.first)
    return past, base.Inputs(
        observation=observation,
        reward=seen.reward,
        first=seen.first,
        terminated=jnp.zeros_like(seen.first) if seen.terminated is None else seen.terminated,
        action_mask=seen.action_mask,
        action_mode=seen.action_mode,
        slot=seen.slot,
        num_slots=num_slots,
        task=jnp.zeros_like(seen.slot) if seen.task is None else seen.task,
        num_updates=0 if seen.num_updates is None else seen.num_updates,
        own=True if seen.own is None else seen.own,
    )


def push(
    spec: types.EnvSpec, stack: int, past: dict[str, jax.Array], frame: jax.Array, first: jax.Array
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Returns the next past frames and the stacked observation, by name; an episode's first frame fills its stack."""
    frames, shown = unpacking.unpack(spec.packed, frame), packing.without_training_only(spec).arrays
    frames = {array.name: frames[array.name].reshape(-1, *observations.stack_shape(array.shape, 1)) for array in shown}
    if stack == 1:
        return {}, frames
    stacked = {}
    for name, newest in frames.items():
        is_first = first.reshape(-1, *[1] * (newest.ndim - 1))
        before = jnp.where(is_first, jnp.concatenate([newest] * (stack - 1), axis=-1), past[name])
        stacked[name] = jnp.concatenate([before, newest], axis=-1)
    return {name: seen[..., frames[name].shape[-1] :] for name, seen in stacked.items()}, stacked
