"""Creates the states of acting and learning on the devices, or only their shapes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.core import errors
from seedzero.device import acting, meshes, setups
from seedzero.replay import ring_store


def _create_actor(setup: setups.Setup, *, holds_frames: bool = True, begins: bool = True) -> acting.ActorState:
    layout = setup.layout
    rings = ring_store.create(
        setup.spec.kept,
        setup.stored,
        layout.num_train,
        setup.slot_length,
        num_shards=layout.num_shards,
        prioritized=setup.prioritization is not None,
        holds_frames=holds_frames,
        shared=setup.num_players > 1,
    )
    return acting.ActorState(_create_carried(setup, begins=begins), rings)


def _create_carried(setup: setups.Setup, *, begins: bool) -> acting.Carried:
    num_slots = setup.layout.num_train + setup.layout.num_evaluate
    carried = acting.initial(setup.agent, setup.spec, num_slots, begins=begins)
    past = {
        name: ring_store.zero_rows(num_slots, 1, seen.shape[1:], seen.dtype) for name, seen in carried.past.items()
    }
    return carried._replace(past=past)


def abstract_actor(setup: setups.Setup) -> acting.ActorState:
    """Returns shapes, dtypes and shardings of the acting state without allocating it."""
    shapes = jax.eval_shape(lambda: _create_actor(setup))
    return acting.ActorState(*meshes.placed(shapes, meshes.sharded(setup.mesh)))


def abstract_train(setup: setups.Setup) -> base.TrainState:
    """Returns shapes, dtypes and shardings of the train state without computing it."""
    return meshes.placed(jax.eval_shape(_create_train(setup), np.int32(0)), meshes.replicated(setup.learns_on))


class Shapes(NamedTuple):
    """Shapes, dtypes and shardings of a player's train state and of the acting state in a place."""

    train: base.TrainState
    actor: acting.ActorState

    @classmethod
    def of(cls, setup: setups.Setup) -> Shapes:
        return cls(abstract_train(setup), abstract_actor(setup))


def init_carried(setup: setups.Setup, *, begins: bool) -> acting.Carried:
    """Returns what environments carry before the first observation, on the devices. begins: as in `acting.initial`."""
    create = functools.partial(_create_carried, setup, begins=begins)
    return acting.Carried(*_jitted(setup, create, meshes.sharded(setup.mesh))())


def init_actor(setup: setups.Setup, *, holds_frames: bool = True, begins: bool = True) -> acting.ActorState:
    """Returns empty rings and memory on the devices.

    Arguments are those of `ring_store.create` and `acting.initial`.
    """
    create = functools.partial(_create_actor, setup, holds_frames=holds_frames, begins=begins)
    return acting.ActorState(*_jitted(setup, create, meshes.sharded(setup.mesh))())


def init_train(setup: setups.Setup, seed: int) -> base.TrainState:
    """Returns a player's initial train state for a seed, on every learning device."""
    return train_maker(setup)(np.int32(seed))


def train_maker(setup: setups.Setup) -> Callable[[np.int32], base.TrainState]:
    """Returns `init_train` of a setup as a program, which is compiled at its first call."""
    # the seed is an argument, as `tracing.SEED` explains; its key is made within, not by programs of its own
    return _jitted(setup, _create_train(setup), meshes.replicated(setup.learns_on))


def _create_train(setup: setups.Setup) -> Callable[[Any], base.TrainState]:
    return lambda seed: setup.agent.init(jax.random.key(seed))


def _jitted(setup: setups.Setup, create: Callable[..., Any], where: jax.sharding.NamedSharding) -> Callable[..., Any]:
    return jax.jit(create, out_shardings=where, compiler_options=meshes.compiler_options(setup.mesh))


@functools.partial(jax.jit, donate_argnums=0)
def forget(rings: ring_store.Rings) -> ring_store.Rings:
    """Returns the donated rings without a player's rows, as `ring_store.forget` does."""
    return ring_store.forget(rings)


class PlayerSnapshot(NamedTuple):
    """A player's acting parameters, with the statistics that they depend on, from which other players can start."""

    params: base.Params  # the acting parameters
    scales: Mapping[str, Any] = {}  # fields named by `Agent.scales`


def snapshot(agent: base.Agent, train: base.TrainState) -> PlayerSnapshot:
    """Returns what other players can take from a train state, without a copy."""
    return PlayerSnapshot(agent.acting(train), {name: getattr(train, name) for name in agent.scales})


def learned(agent: base.Agent, train: base.TrainState) -> dict[str, base.Params]:
    """Returns the fields of a train state from which another run can start: all parameters, and their statistics.

    Acting may do without some of them, such as a central value or critics. A target network is among them if it is not
    of the shape of all parameters. Raises ConfigError if there are no such fields.
    """
    fields, acting = train._asdict(), agent.acting(train)
    names = {"params", *getattr(acting, "_fields", ()), *agent.scales} - {"opt_state", "num_updates", "num_rejected"}
    target: Any = jax.tree.structure(fields.get("target_params", ()))
    if target not in (jax.tree.structure(()), jax.tree.structure(fields.get("params"))):
        names.add("target_params")
    found = {name: tree for name, tree in fields.items() if name in names}
    if not found.keys() - {*agent.scales}:
        raise _not_fields(acting, fields)
    return found


def fields_of(agent: base.Agent, train: base.TrainState, given: PlayerSnapshot) -> dict[str, base.Params]:
    """Returns the fields of a train state that a snapshot has.

    Raises ConfigError if the agent's acting parameters are not fields of its train state.
    """
    fields = train._asdict()
    is_whole = agent.acting(train) is fields.get("params")
    found = {"params": given.params} if is_whole else getattr(given.params, "_asdict", dict)()
    if not found or not found.keys() <= fields.keys():
        raise _not_fields(given.params, fields)
    return {**found, **given.scales}


def _not_fields(params: base.Params, fields: Mapping[str, Any]) -> errors.ConfigError:
    return errors.ConfigError(
        f"the agent cannot take another's parameters: its `acting` returns {type(params).__name__}; expected the "
        f"train state's params or a NamedTuple of its {', '.join(fields)}; fix it, or leave out --init_from and "
        "resets to players"
    )


def with_snapshot(setup: setups.Setup, train: base.TrainState, given: PlayerSnapshot) -> base.TrainState:
    """Returns `with_fields` of a snapshot. Raises as `fields_of`."""
    return with_fields(setup, train, fields_of(setup.agent, train, given))


def with_fields(setup: setups.Setup, train: base.TrainState, given: Mapping[str, base.Params]) -> base.TrainState:
    """Returns a train state before its first update with copies of another's fields, also in its target network.

    Statistics that are not given keep their initial values; so do parameters that acting does without, and a target
    network that is not of the shape of all parameters.
    """
    own, found = train._asdict(), dict(given)
    if isinstance(found.get("params"), dict):
        found["params"] = {**own["params"], **found["params"]}
    target: Any = jax.tree.structure(own.get("target_params"))
    if "params" in found and target == jax.tree.structure(own["params"]):
        found.setdefault("target_params", found["params"])
    where = meshes.replicated(setup.learns_on)
    return train._replace(**{name: jax.device_put(copy(tree), where) for name, tree in found.items()})


@jax.jit
def copy(tree: base.Params) -> base.Params:
    """Returns a copy of parameters that outlives the donation of the original."""
    return jax.tree.map(jnp.copy, tree)


def parts(agent: base.Agent, train: base.TrainState) -> dict[str, base.Params]:
    """Returns a train state as a checkpoint's named parts; "params" (for acting) can be read without the others."""
    params, fields = agent.acting(train), train._asdict()
    return fields if params is fields.get("params") else {"params": params, "train": fields}


def from_parts(agent: base.Agent, like: base.TrainState, saved: dict[str, base.Params]) -> base.TrainState:
    """Returns the train state from a checkpoint's parts. like: a state, or its shapes."""
    fields = saved if agent.acting(like) is like._asdict().get("params") else saved["train"]
    return like._replace(**fields)
