"""The state on the devices: what acting owns, and what learns. Made empty, or as shapes alone."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedzero.agents import base
from seedzero.device import acting
from seedzero.device import mesh as meshes
from seedzero.device import setup as setups
from seedzero.replay import data as sources
from seedzero.replay import frames as frame_rows
from seedzero.replay import rings as ring_store


class ActorState(NamedTuple):
    """What acting owns on the device; donated to every call.

    Attributes:
      carried: by the environments, [slots, ...] over all shards; past frames [slots, 1, ...] in the rings' layout.
      rings: the stored rows, [training slots, time, ...] over all shards.
    """

    carried: acting.Carried
    rings: ring_store.Rings


def create_actor(setup: setups.Setup, *, holds_frames: bool = True) -> ActorState:
    """Returns empty rings and memory; holds_frames: as in `rings.create`."""
    agent, layout = setup.agent, setup.layout
    rings = ring_store.create(
        setup.spec,
        setup.stored,
        layout.num_train,
        setup.slot_length,
        num_shards=layout.num_shards,
        prioritized=isinstance(agent.data, sources.Replay) and agent.data.prioritization is not None,
        holds_frames=holds_frames,
    )
    return ActorState(_create_carried(setup, begins=True), rings)


def _create_carried(setup: setups.Setup, *, begins: bool) -> acting.Carried:
    num_slots = setup.layout.num_train + setup.layout.num_evaluate
    carried = acting.initial(setup.agent, setup.spec, num_slots, begins=begins)
    past = {name: frame_rows.zeros(num_slots, 1, seen.shape[1:], seen.dtype) for name, seen in carried.past.items()}
    return carried._replace(past=past)


def take_carried(carried: acting.Carried, slot: jax.Array) -> acting.Carried:
    """Returns what environments at slots [B] carry; anything at slots that do not exist."""
    only = jnp.zeros_like(slot)
    past = {name: frame_rows.get(frames, slot, only, mode="clip") for name, frames in carried.past.items()}
    return acting.Carried(past, jax.tree.map(lambda x: x.at[slot].get(mode="clip"), carried.memory))


def put_carried(carried: acting.Carried, slot: jax.Array, new: acting.Carried) -> acting.Carried:
    """Returns what all carry, with the new of slots [B]; slots that do not exist are dropped."""
    only = jnp.zeros_like(slot)
    past = {name: frame_rows.put(frames, slot, only, new.past[name]) for name, frames in carried.past.items()}
    put = functools.partial(jax.tree.map, lambda x, new: x.at[slot].set(new, mode="drop"))
    return acting.Carried(past, put(carried.memory, new.memory))


def abstract_actor(setup: setups.Setup) -> ActorState:
    """Returns shapes, dtypes and shardings of the acting state, without allocating it."""
    shapes = jax.eval_shape(lambda: create_actor(setup))
    return ActorState(*meshes.placed(shapes, meshes.sharded(setup.mesh)))


def abstract_train(setup: setups.Setup) -> base.TrainState:
    """Returns shapes, dtypes and shardings of the train state, without computing it."""
    shapes = jax.eval_shape(lambda: setup.agent.init(jax.random.key(0)))
    return meshes.placed(shapes, meshes.replicated(setup.learns_on))


def init_carried(setup: setups.Setup, *, begins: bool) -> acting.Carried:
    """Returns what environments carry before anything was seen, on the devices; begins: as in `acting.initial`."""
    create = functools.partial(_create_carried, setup, begins=begins)
    return acting.Carried(*jax.jit(create, out_shardings=meshes.sharded(setup.mesh))())


def init_actor(setup: setups.Setup, *, holds_frames: bool = True) -> ActorState:
    """Returns empty rings and the memory of a run that begins, on the devices; holds_frames: as in `rings.create`."""
    create = functools.partial(create_actor, setup, holds_frames=holds_frames)
    return ActorState(*jax.jit(create, out_shardings=meshes.sharded(setup.mesh))())


def init_train(setup: setups.Setup) -> base.TrainState:
    """Returns the initial train state, on every device that learns."""
    init = jax.jit(setup.agent.init, out_shardings=meshes.replicated(setup.learns_on))
    return init(jax.random.key(setup.seed))  # no constant: see `programs.Tracer`


@jax.jit
def copy(tree: base.Params) -> base.Params:
    """Returns parameters that outlive the donation of their source."""
    return jax.tree.map(jnp.copy, tree)


def parts(agent: base.Agent, train: base.TrainState) -> dict[str, base.Params]:
    """Returns a train state as the named parts of a checkpoint; "params" are those of acting, which are read alone."""
    acting, fields = agent.acting(train), train._asdict()
    return fields if acting is fields.get("params") else {"params": acting, "train": fields}


def from_parts(agent: base.Agent, like: base.TrainState, saved: dict[str, base.Params]) -> base.TrainState:
    """Returns the train state of a checkpoint's parts; like: a state, or its shapes."""
    fields = saved if agent.acting(like) is like._asdict().get("params") else saved["train"]
    return like._replace(**fields)
