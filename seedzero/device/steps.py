"""The device's functions, act, update and reanalyse, over the local devices.

Updating and reanalysing are two functions each, which say where to read in the replay and what to do with it. They are
jitted together where the replay is in device memory, and apart where the host keeps its frames.

All run under `shard_map`: every device holds an equal part of the slots (their rings and memory) and of each
batch; parameters and optimizer are replicated, gradients averaged. One device is the trivial case.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.core import errors, types
from seedzero.device import batch as batch_lib
from seedzero.replay import rings as rings_lib

AXIS = "devices"
RING_MARGIN = 2
"""Rows of a ring beside its steps and the frame stack: the pending one and the one that is overwritten next."""
_SHARDED = jax.sharding.PartitionSpec(AXIS)
_REPLICATED = jax.sharding.PartitionSpec()


class ActorState(NamedTuple):
    """What acting owns on the device; donated to every call.

    Attributes:
      memory: the agent's memory, [slots, ...] over all shards.
      rings: the replay, [training slots, time, ...] over all shards.
    """

    memory: base.Memory
    rings: rings_lib.Rings


class ActCounters(NamedTuple):
    """Scalars of one acting call, int32.

    Attributes:
      num_inserts: training steps stored before it.
      version: updates that the acting parameters have seen.
      num_acts: acting calls before it; seeds its noise.
    """

    num_inserts: Any
    version: Any
    num_acts: Any


class ReanalyseCounters(NamedTuple):
    """Scalars of one call that reanalyses, int32.

    Attributes:
      num_inserts: training steps stored before it.
      version: updates that the parameters have seen.
      num_reanalyses: such calls before it; seeds its draw and its search.
    """

    num_inserts: Any
    version: Any
    num_reanalyses: Any


class Acted(NamedTuple):
    """What one acting call gives back.

    Attributes:
      action: [R] int32, or [R, D] float32: one for each row of the batch.
    """

    action: jax.Array


def make_mesh(num_devices: int) -> jax.sharding.Mesh:
    """Returns a mesh of the first local devices; all of them for 0.

    Raises:
      ConfigError: there are not so many.
    """
    devices = jax.local_devices()
    if num_devices > len(devices):
        raise errors.ConfigError(
            f"--training.num_devices={num_devices}: this host has {len(devices)} {devices[0].platform} device(s); "
            f"give --training.num_devices={len(devices)} in a new run directory"
        )
    return jax.sharding.Mesh(np.array(devices[: num_devices or len(devices)]), (AXIS,))


def sharded(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
    """Returns the sharding of arrays that are split by slots or rows."""
    return jax.sharding.NamedSharding(mesh, _SHARDED)


def replicated(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
    """Returns the sharding of arrays that every device holds whole."""
    return jax.sharding.NamedSharding(mesh, _REPLICATED)


def over_devices(
    function: Callable[..., Any],
    mesh: jax.sharding.Mesh,
    in_specs: Any,
    out_specs: Any,
    *,
    donate: tuple[int, ...] = (),
) -> Callable[..., Any]:
    """Returns the jitted function with every device working on its own part.

    Args:
      function: of one device's parts.
      mesh: devices.
      in_specs: how its arguments are split, as `jax.shard_map` takes them.
      out_specs: the same for its results.
      donate: positions of the arguments that it donates.
    """
    mapped = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    return jax.jit(mapped, donate_argnums=donate)


def create_actor(
    agent: base.Agent, spec: types.EnvSpec, layout: batch_lib.Layout, slot_length: int, *, holds_frames: bool = True
) -> ActorState:
    """Returns empty rings and memory; holds_frames: as in `rings.create`."""
    extras = {**agent.extras, **dict.fromkeys(_version_names(agent), ((), np.dtype(np.int32)))}
    rings = rings_lib.create(
        spec,
        extras,
        layout.num_train,
        slot_length,
        num_shards=layout.num_shards,
        prioritized=agent.prioritization is not None,
        holds_frames=holds_frames,
    )
    return ActorState(agent.initial_memory(layout.num_train + layout.num_evaluate), rings)


def _version_names(agent: base.Agent) -> tuple[str, ...]:
    """Returns the extras that hold versions, equal when acting writes them."""
    return ("version",) if agent.reanalyse is None else ("version", rings_lib.TARGET_VERSION)


def abstract_actor(
    agent: base.Agent, spec: types.EnvSpec, layout: batch_lib.Layout, slot_length: int, mesh: jax.sharding.Mesh
) -> ActorState:
    """Returns shapes, dtypes and shardings of the acting state, without allocating it."""
    shapes = jax.eval_shape(lambda: create_actor(agent, spec, layout, slot_length))
    return ActorState(*_placed(shapes, sharded(mesh)))


def abstract_train(agent: base.Agent, mesh: jax.sharding.Mesh) -> base.TrainState:
    """Returns shapes, dtypes and shardings of the training state, without computing it."""
    return base.TrainState(*_placed(jax.eval_shape(lambda: agent.init(jax.random.key(0))), replicated(mesh)))


def _placed(tree: Any, sharding: jax.sharding.Sharding) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def init_memory(agent: base.Agent, layout: batch_lib.Layout, mesh: jax.sharding.Mesh) -> base.Memory:
    """Returns the agent's memory before anything was seen, spread over the devices."""
    num_slots = layout.num_train + layout.num_evaluate
    return jax.jit(lambda: agent.initial_memory(num_slots), out_shardings=sharded(mesh))()


def init_actor(
    agent: base.Agent,
    spec: types.EnvSpec,
    layout: batch_lib.Layout,
    slot_length: int,
    mesh: jax.sharding.Mesh,
    *,
    holds_frames: bool = True,
) -> ActorState:
    """Returns empty rings and memory, spread over the devices; holds_frames: as in `rings.create`."""
    create = functools.partial(create_actor, agent, spec, layout, slot_length, holds_frames=holds_frames)
    return ActorState(*jax.jit(create, out_shardings=sharded(mesh))())


def init_train(agent: base.Agent, seed: int, mesh: jax.sharding.Mesh) -> base.TrainState:
    """Returns the initial training state, on every device."""
    init = jax.jit(lambda: agent.init(jax.random.key(seed)), out_shardings=replicated(mesh))
    return base.TrainState(*init())


def make_act(agent: base.Agent, mesh: jax.sharding.Mesh, seed: int) -> Callable[..., tuple[ActorState, Acted]]:
    """Returns the jitted acting step; its second argument is donated.

    (params, ActorState, Batch, ActCounters) -> (ActorState, Acted): pushes the new frames, searches with one
    version of the parameters, chooses, and writes the rows of training slots into their rings.
    """

    def act(params: base.Params, actor: ActorState, batch: Any, counters: ActCounters) -> tuple[ActorState, Acted]:
        key = jax.random.fold_in(jax.random.key(seed + 1), counters.num_acts)
        key = jax.random.fold_in(key, jax.lax.axis_index(AXIS))
        rows = jax.tree.map(lambda x: x.at[batch.slot].get(mode="clip"), actor.memory)
        inputs = base.ActInputs(batch.observation, batch.first, batch.action_mask, batch.explore)
        rows, outputs = agent.act(params, rows, inputs, key)
        memory = jax.tree.map(lambda x, new: x.at[batch.slot].set(new, mode="drop"), actor.memory, rows)
        version = jnp.full(batch.slot.shape, counters.version, jnp.int32)
        row = rings_lib.Row(
            observation=batch.observation,
            reward=batch.reward,
            terminated=batch.terminated,
            truncated=batch.truncated,
            first=batch.first,
            extras={**outputs.extras, **dict.fromkeys(_version_names(agent), version)},
        )
        rings = rings_lib.write(actor.rings, batch.slot, row, counters.num_inserts, agent.stack)
        return ActorState(memory, rings), Acted(outputs.action)

    return over_devices(act, mesh, (_REPLICATED, _SHARDED, _SHARDED, _REPLICATED), (_SHARDED, _SHARDED), donate=(1,))


def make_update(
    agent: base.Agent, mesh: jax.sharding.Mesh, seed: int, *, batch_size: int, capacity: int
) -> Callable[..., tuple[base.TrainState, rings_lib.Rings, base.Metrics]]:
    """Returns the jitted training step; its first two arguments are donated.

    (TrainState, Rings, num_inserts scalar int32) -> (TrainState, Rings, metrics): samples windows on every device
    from its own rings, builds targets and loss, averages gradients, steps the optimizer, and writes the windows'
    priorities back, where there are any.
    """
    draw = functools.partial(_draw, agent, seed, batch_size // mesh.devices.size, capacity)

    def update(
        train: base.TrainState, rings: rings_lib.Rings, num_inserts: jax.Array
    ) -> tuple[base.TrainState, rings_lib.Rings, base.Metrics]:
        return _learn(agent, seed, train, rings, draw(train.num_updates, rings, num_inserts))

    return over_devices(
        update, mesh, (_REPLICATED, _SHARDED, _REPLICATED), (_REPLICATED, _SHARDED, _REPLICATED), donate=(0, 1)
    )


def make_draw(
    agent: base.Agent, mesh: jax.sharding.Mesh, seed: int, *, batch_size: int, capacity: int, lag: int
) -> Callable[..., rings_lib.Windows]:
    """Returns the first half of `make_update` for rings whose frames the host keeps; lag: as in `rings.sample`.

    (num_updates, ahead, Rings, num_inserts) -> Windows with the places of their frames. The numbers are scalar int32;
    ahead: how many more updates will have been done when the windows are learned from.
    """

    def draw(
        num_updates: jax.Array, ahead: jax.Array, rings: rings_lib.Rings, num_inserts: jax.Array
    ) -> rings_lib.Windows:
        num_windows = batch_size // mesh.devices.size
        return _draw(agent, seed, num_windows, capacity, num_updates + ahead, rings, num_inserts, lag=lag)

    return over_devices(draw, mesh, (_REPLICATED, _REPLICATED, _SHARDED, _REPLICATED), _SHARDED)


def make_learn(
    agent: base.Agent, mesh: jax.sharding.Mesh, seed: int
) -> Callable[..., tuple[base.TrainState, rings_lib.Rings, base.Metrics]]:
    """Returns the second half of `make_update` for rings whose frames the host keeps; it donates its first two.

    (TrainState, Rings, Windows, frames [B, P, stack, *observation_shape]) -> (TrainState, Rings, metrics).
    """

    def learn(
        train: base.TrainState, rings: rings_lib.Rings, windows: rings_lib.Windows, frames: jax.Array
    ) -> tuple[base.TrainState, rings_lib.Rings, base.Metrics]:
        return _learn(agent, seed, train, rings, rings_lib.with_frames(windows, frames))

    return over_devices(
        learn, mesh, (_REPLICATED, _SHARDED, _SHARDED, _SHARDED), (_REPLICATED, _SHARDED, _REPLICATED), donate=(0, 1)
    )


def _update_keys(seed: int, num_updates: jax.Array) -> jax.Array:
    """Returns this device's keys of one update: for the draw, and for what is learned."""
    key = jax.random.fold_in(jax.random.key(seed + 2), num_updates)
    return jax.random.split(jax.random.fold_in(key, jax.lax.axis_index(AXIS)))


def _draw(
    agent: base.Agent,
    seed: int,
    num_windows: int,
    capacity: int,
    num_updates: jax.Array,
    rings: rings_lib.Rings,
    num_inserts: jax.Array,
    *,
    lag: int = 0,
) -> rings_lib.Windows:
    """Returns this device's windows of one update."""
    prioritization = agent.prioritization
    return rings_lib.sample(
        rings,
        _update_keys(seed, num_updates)[0],
        num_windows,
        num_inserts=num_inserts,
        capacity=capacity,
        future=agent.future,
        offsets=agent.offsets,
        stack=agent.stack,
        lag=lag,
        beta=prioritization and rings_lib.importance_exponent(prioritization, num_updates),
        axis_name=AXIS,
    )


def _learn(
    agent: base.Agent, seed: int, train: base.TrainState, rings: rings_lib.Rings, windows: rings_lib.Windows
) -> tuple[base.TrainState, rings_lib.Rings, base.Metrics]:
    """Returns what one update makes of its windows."""
    num_updates, prioritization = train.num_updates, agent.prioritization
    train, priority, metrics = agent.update(train, windows, _update_keys(seed, num_updates)[1], AXIS)
    age = num_updates - windows.extras["version"][:, 0]
    metrics["replay_age"] = jax.lax.pmean(jnp.mean(age.astype(jnp.float32)), AXIS)
    if prioritization is not None:
        # Where there was nothing to sample the drawn rows are arbitrary: they keep their priorities.
        priority = jnp.where(windows.weight > 0, priority, jnp.nan)
        rings = rings_lib.prioritize(rings, windows.slot, windows.time, priority, prioritization, AXIS)
        metrics |= _priority_metrics(rings, windows, priority, prioritization)
    return train, rings, metrics


def _priority_metrics(
    rings: rings_lib.Rings, windows: rings_lib.Windows, priority: jax.Array, how: rings_lib.Prioritization
) -> base.Metrics:
    """Returns what shows whether priorities do something, and not too much; those that are not finite count as 0.

    The mean of the importance weights is what their division by the largest leaves of the learning rate.
    """
    return {
        "priority_mean": jax.lax.pmean(jnp.mean(jnp.where(jnp.isfinite(priority), priority, 0.0)), AXIS),
        "priority_max": rings_lib.max_priority(rings, how),
        "importance_mean": jax.lax.pmean(jnp.mean(windows.weight), AXIS),
        "importance_min": jax.lax.pmin(jnp.min(windows.weight), AXIS),
    }


def make_reanalyse(
    agent: base.Agent, mesh: jax.sharding.Mesh, seed: int, *, batch_size: int, capacity: int, min_age: int
) -> Callable[..., tuple[rings_lib.Rings, base.Metrics]]:
    """Returns the jitted call that renews targets of replayed positions; its second argument is donated.

    (params, Rings, ReanalyseCounters) -> (Rings, metrics): every device draws steps from its own rings whose targets
    are more than `min_age` updates old, searches them anew, and writes policy and value over the stored ones. Each
    device takes an equal part of `batch_size`, so where it holds fewer steps than others they are renewed more often.
    """
    draw_stale = functools.partial(_draw_stale, agent, seed, batch_size // mesh.devices.size, capacity, min_age)

    def reanalyse(
        params: base.Params, rings: rings_lib.Rings, counters: ReanalyseCounters
    ) -> tuple[rings_lib.Rings, base.Metrics]:
        return _renew(agent, seed, params, rings, draw_stale(rings, counters), counters)

    return over_devices(reanalyse, mesh, (_REPLICATED, _SHARDED, _REPLICATED), (_SHARDED, _REPLICATED), donate=(1,))


def make_draw_stale(
    agent: base.Agent, mesh: jax.sharding.Mesh, seed: int, *, batch_size: int, capacity: int, min_age: int
) -> Callable[..., rings_lib.Windows]:
    """Returns the first half of `make_reanalyse` for rings whose frames the host keeps.

    (Rings, ReanalyseCounters) -> Windows of one position with the places of their frames.
    """
    draw_stale = functools.partial(_draw_stale, agent, seed, batch_size // mesh.devices.size, capacity, min_age)
    return over_devices(draw_stale, mesh, (_SHARDED, _REPLICATED), _SHARDED)


def make_renew(
    agent: base.Agent, mesh: jax.sharding.Mesh, seed: int
) -> Callable[..., tuple[rings_lib.Rings, base.Metrics]]:
    """Returns the second half of `make_reanalyse` for rings whose frames the host keeps; it donates its second.

    (params, Rings, Windows, frames [B, 1, stack, *observation_shape], ReanalyseCounters) -> (Rings, metrics).
    """

    def renew(
        params: base.Params,
        rings: rings_lib.Rings,
        windows: rings_lib.Windows,
        frames: jax.Array,
        counters: ReanalyseCounters,
    ) -> tuple[rings_lib.Rings, base.Metrics]:
        return _renew(agent, seed, params, rings, rings_lib.with_frames(windows, frames), counters)

    return over_devices(
        renew, mesh, (_REPLICATED, _SHARDED, _SHARDED, _SHARDED, _REPLICATED), (_SHARDED, _REPLICATED), donate=(1,)
    )


def _reanalyse_keys(seed: int, num_reanalyses: jax.Array) -> jax.Array:
    """Returns this device's keys of one call that reanalyses: for the draw, and for the search."""
    key = jax.random.fold_in(jax.random.key(seed + 3), num_reanalyses)
    return jax.random.split(jax.random.fold_in(key, jax.lax.axis_index(AXIS)))


def _draw_stale(
    agent: base.Agent,
    seed: int,
    num_positions: int,
    capacity: int,
    min_age: int,
    rings: rings_lib.Rings,
    counters: ReanalyseCounters,
) -> rings_lib.Windows:
    """Returns this device's positions of one call that reanalyses, as windows."""
    slot, time = rings_lib.draw_stale(
        rings,
        _reanalyse_keys(seed, counters.num_reanalyses)[0],
        num_positions,
        num_inserts=counters.num_inserts,
        capacity=capacity,
        before=counters.version - min_age,
    )
    return rings_lib.windows_at(rings, slot, time, future=0, offsets=(0,), stack=agent.stack)


def _renew(
    agent: base.Agent,
    seed: int,
    params: base.Params,
    rings: rings_lib.Rings,
    windows: rings_lib.Windows,
    counters: ReanalyseCounters,
) -> tuple[rings_lib.Rings, base.Metrics]:
    """Returns the rings with fresh targets of the windows' positions."""
    assert agent.reanalyse is not None
    key = _reanalyse_keys(seed, counters.num_reanalyses)[1]
    old = {name: values[:, 0] for name, values in windows.extras.items()}
    new = agent.reanalyse(params, windows.observation[:, 0], old.get("legal"), key)
    rings, written = rings_lib.retarget(rings, windows.slot, windows.time, new, counters.version)
    return rings, _reanalyse_metrics(old, new, written, counters.version)


def _reanalyse_metrics(
    old: Mapping[str, jax.Array], new: Mapping[str, jax.Array], written: jax.Array, version: jax.Array
) -> base.Metrics:
    """Returns means over the rows that were written, on all devices: how old their targets were, how they changed.

    A policy's change is the total variation distance, half of the L1 distance: from 0 to 1, also where a probability
    was 0. All are 0 where "reanalyse_renewed", the share of rows that were written, is.
    """
    changes = {
        "reanalyse_age": (version - old[rings_lib.TARGET_VERSION]).astype(jnp.float32),
        "reanalyse_policy_change": 0.5 * jnp.sum(jnp.abs(new["policy"] - old["policy"]), axis=-1),
        "reanalyse_value_change": jnp.abs(new["value"] - old["value"]),
    }
    renewed = jax.lax.pmean(jnp.mean(written.astype(jnp.float32)), AXIS)
    sums = {name: jnp.mean(jnp.where(written, change, 0.0)) for name, change in changes.items()}
    means = {name: jax.lax.pmean(x, AXIS) / jnp.where(renewed > 0, renewed, 1.0) for name, x in sums.items()}
    return {**means, "reanalyse_renewed": renewed}


def stack_metrics(
    function: Callable[..., tuple[Any, ...]], *args: Any, donate: tuple[int, ...] = (0, 1)
) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """Returns a function with its metrics as one array [M], so that fetching them is one copy, and their names.

    Args:
      function: jitted; its last result are metrics.
      *args: of the function; shapes and dtypes are enough.
      donate: positions of the arguments that it donates.
    """
    names = tuple(sorted(jax.eval_shape(function, *args)[-1]))

    def stacked(*args: Any) -> tuple[Any, ...]:
        *states, metrics = function(*args)
        return *states, jnp.stack([metrics[name].astype(jnp.float32) for name in names])

    return jax.jit(stacked, donate_argnums=donate), names


def example_batch(spec: types.EnvSpec, layout: batch_lib.Layout, num_rows: int) -> batch_lib.Batch:
    """Returns a batch of padding alone: for compilation."""
    total = layout.num_shards * num_rows
    return batch_lib.Batch(
        slot=np.full(total, layout.slots_per_shard, np.int32),
        observation=np.zeros((total, *spec.observation_shape), spec.observation_dtype),
        reward=np.zeros(total, np.float32),
        terminated=np.zeros(total, bool),
        truncated=np.zeros(total, bool),
        first=np.ones(total, bool),
        action_mask=np.ones((total, spec.num_actions), bool),
        explore=np.zeros(total, bool),
    )


def act_counters(num_inserts: int, version: int, num_acts: int) -> ActCounters:
    """Returns the scalars of an acting call as int32."""
    return ActCounters(np.int32(num_inserts), np.int32(version), np.int32(num_acts))


def reanalyse_counters(num_inserts: int, version: int, num_reanalyses: int) -> ReanalyseCounters:
    """Returns the scalars of a call that reanalyses as int32."""
    return ReanalyseCounters(np.int32(num_inserts), np.int32(version), np.int32(num_reanalyses))


def copy_params(params: base.Params) -> base.Params:
    """Returns parameters that outlive the donation of their source."""
    copied: base.Params = _copy(params)
    return copied


_copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
