"""Updates parameters and reanalyses stored targets on the devices.

An update draws windows, reads their frames and learns; a reanalysis draws stale rows, reads their frames and renews
their targets. `make_update` and `make_reanalyse` join these steps in one program; `host_frames` and `apart` make a
separate program of each step.

All run under `shard_map`: every device has an equal part of the slots (their rings and memory) and of each batch;
parameters and optimizer are replicated, and gradients averaged. A single device is the trivial case. `seed`, int32, is
the player's; it is an argument, so that all players run the same programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.device import meshes, setups
from seedzero.replay import reanalyse, ring_store, sampling, sources, windowing

_AXIS, _SHARDED, _REPLICATED = meshes.AXIS, meshes.SHARDED, meshes.REPLICATED


class Counters(NamedTuple):
    """Scalars for an acting call or a reanalysis, int32 except `own`."""

    num_inserts: Any  # training steps stored so far, modulo 2^32
    version: Any  # updates behind its parameters
    num_calls: Any  # earlier acting calls, or reanalyses; seeds the call's random numbers
    own: Any  # bool, true if the parameters are those of the rings' player


class Unrolls(NamedTuple):
    """The unrolls for one update from a queue, over all devices."""

    slot: Any  # [B] int32, local
    time: Any  # [B] int32, place of the first row in its ring
    weight: Any  # [B] float32, 1 for an unroll, 0 for padding


Feed: TypeAlias = Any
"""What an update takes besides its states: `num_inserts` as in `Counters` for a replay, `Unrolls` for a queue."""

Updated: TypeAlias = tuple[base.TrainState, ring_store.Rings, base.Metrics]
Renewed: TypeAlias = tuple[ring_store.Rings, base.Metrics]


# Updating ---------------------------------------------------------------------------------------------------------


def make_update(setup: setups.Setup) -> Callable[..., Updated]:
    """Returns the jitted training step (seed, train state, Rings, Feed) -> (train state, Rings, metrics).

    Every device draws windows from its own rings, learns from them with averaged gradients, and writes back their
    priorities, if there are any. The states are donated.
    """

    def update(seed: jax.Array, train: base.TrainState, rings: ring_store.Rings, feed: Feed) -> Updated:
        return learn(setup, seed, train, rings, draw(setup, seed, rings, train.num_updates, feed))

    in_specs = (_REPLICATED, _REPLICATED, _SHARDED, feed_specs(setup))
    return meshes.over_devices(update, setup.mesh, in_specs, (_REPLICATED, _SHARDED, _REPLICATED), donate=(1, 2))


def feed_specs(setup: setups.Setup) -> jax.sharding.PartitionSpec:
    """Returns how a feed is split between the devices."""
    return _SHARDED if isinstance(setup.agent.data, sources.Queue) else _REPLICATED


def _keys(seed: jax.Array, stream: int, number: jax.Array) -> jax.Array:
    """Returns a device's keys for an update (stream 2) or a reanalysis (3): one for the draw, one for the other steps.

    A run with seed S draws its parameters from S, acts with S + 1, updates with S + 2 and reanalyses with S + 3, each
    with the number of the call. So a run never uses a key twice, and runs whose seeds are 4 apart share none.
    """
    key = jax.random.fold_in(jax.random.key(seed + stream), number)
    return jax.random.split(jax.random.fold_in(key, jax.lax.axis_index(_AXIS)))


def draw(
    setup: setups.Setup,
    seed: jax.Array,
    rings: ring_store.Rings,
    num_updates: jax.Array,
    feed: Feed,
    *,
    lag: int = 0,
) -> windowing.Windows:
    """Returns a device's windows for an update, without frames."""
    agent = setup.agent
    if isinstance(agent.data, sources.Queue):
        windows = windowing.from_data(rings, feed.slot, feed.time, agent.data, agent.stack)
        return windows._replace(weight=_shared(feed.weight), counted=feed.weight > 0)
    prioritization = agent.data.prioritization
    return sampling.sample(
        rings,
        _keys(seed, 2, num_updates)[0],
        setup.batch_size // setup.layout.num_shards,
        agent.data,
        stack=agent.stack,
        num_inserts=feed,
        capacity=setup.capacity,
        lag=lag,
        beta=prioritization and jnp.float32(prioritization.beta),
        least=prioritization.least if prioritization else 0.0,
        axis_name=_AXIS,
    )


def _shared(weight: jax.Array) -> jax.Array:
    """Scales windows' weights [B] so that a mean over all devices becomes a mean over the windows of weight 1.

    This spans the devices of all hosts: with a mean for each host, the unrolls of a padded batch would count more.
    """
    # 0 for a promised update whose unrolls were dropped in the meantime
    num_windows = jax.lax.psum(jnp.sum(weight), _AXIS)
    return weight * (weight.size * jax.lax.axis_size(_AXIS) / jnp.maximum(num_windows, 1.0))


def learn(
    setup: setups.Setup,
    seed: jax.Array,
    train: base.TrainState,
    rings: ring_store.Rings,
    windows: windowing.Windows,
    frames: jax.Array | None = None,
) -> Updated:
    """Returns the states after learning from windows, and metrics.

    frames: the windows' frames; None: read from the rings.
    """
    windows = _seen(setup, rings, windows, frames)
    train, priority, metrics = learn_from(setup, seed, train, windows)
    if (prioritization := setup.prioritization) and priority is not None:
        refused = train.num_rejected > 0
        rings = sampling.prioritize(rings, windows.slot, windows.time, priority, prioritization, _AXIS, refused)
        assert rings.max_weight is not None
        metrics |= priority_metrics(rings.max_weight, windows, priority, prioritization, refused)
    return train, rings, metrics


def _seen(
    setup: setups.Setup, rings: ring_store.Rings, windows: windowing.Windows, frames: jax.Array | None
) -> windowing.Windows:
    packed = setup.spec.kept.packed
    return windowing.read(rings, windows, packed) if frames is None else windowing.with_frames(windows, frames, packed)


def learn_from(
    setup: setups.Setup, seed: jax.Array, train: base.TrainState, windows: windowing.Windows
) -> tuple[base.TrainState, jax.Array | None, base.Metrics]:
    """Returns the train state, the windows' priorities [B] (if prioritized), and metrics.

    The priorities hold unless the update was refused (`sampling.unless_refused`).
    """
    num_updates = train.num_updates
    train, priority, metrics = setup.agent.update(train, windows, _keys(seed, 2, num_updates)[1], _AXIS)
    metrics = {**metrics, **_age_metrics(setup.agent.data, windows, num_updates)}
    if setup.prioritization is None:
        return train, None, metrics
    assert priority is not None
    priority = jnp.where(jnp.isnan(priority), jnp.inf, priority)
    # If there was nothing to sample, the drawn rows are arbitrary and keep their priorities.
    return train, jnp.where(windows.weight > 0, priority, jnp.nan), metrics


def _age_metrics(data: sources.Data, windows: windowing.Windows, num_updates: jax.Array) -> base.Metrics:
    """Returns how many updates ago the parameters acted, in sampled rows or over the unrolls of a queue."""
    age = (num_updates - windows.stored[ring_store.VERSION]).astype(jnp.float32)
    if isinstance(data, sources.Replay):
        return {"replay_age": jax.lax.pmean(jnp.mean(age[:, 0]), _AXIS)}
    age, weight = age[:, :-1], windows.weight[:, None]  # the last row's action belongs to the next unroll
    return {
        "policy_lag": jax.lax.pmean(jnp.mean(weight * age), _AXIS),
        "policy_lag_max": jax.lax.pmax(jnp.max(jnp.where(weight > 0, age, 0.0)), _AXIS),
        "batch_padding": jax.lax.pmean(jnp.mean(weight == 0), _AXIS),
    }


def priority_metrics(
    max_weight: jax.Array,
    windows: windowing.Windows,
    priority: jax.Array,
    prioritization: sources.Prioritization,
    refused: jax.Array,
) -> base.Metrics:
    """Returns metrics of the priorities; non-finite priorities, and those of a refused update, count as 0.

    Importance weights are divided by the largest one; their mean is the fraction of the learning rate that this
    leaves.
    """
    mean = jax.lax.pmean(jnp.mean(jnp.where(jnp.isfinite(priority), priority, 0.0)), _AXIS)
    return {
        "priority_mean": jnp.where(refused, 0.0, mean),
        "priority_max": sampling.max_priority(max_weight, prioritization),
        "importance_mean": jax.lax.pmean(jnp.mean(windows.weight), _AXIS),
        "importance_min": jax.lax.pmin(jnp.min(windows.weight), _AXIS),
    }


# Reanalysis --------------------------------------------------------------------------------------------------------


def make_reanalyse(setup: setups.Setup) -> Callable[..., Renewed]:
    """Returns the jitted reanalysis of stored targets (seed, params, Rings, Counters) -> (Rings, metrics).

    Every device draws steps from its own rings whose targets are more than `Reanalyse.min_age` updates old, computes
    the targets again and overwrites them. Each device takes an equal part of the batch, so a device with fewer steps
    than others reanalyses them more often. The rings are donated.

    It is a separate call, because the acting batches of local workers have no padding that these rows could fill.
    """

    def run(seed: jax.Array, params: base.Params, rings: ring_store.Rings, counters: Counters) -> Renewed:
        windows = draw_stale(setup, seed, rings, counters)
        return renew(setup, seed, params, rings, windows, None, counters)

    in_specs, out_specs = (_REPLICATED, _REPLICATED, _SHARDED, _REPLICATED), (_SHARDED, _REPLICATED)
    return meshes.over_devices(run, setup.mesh, in_specs, out_specs, donate=(2,))


def draw_stale(setup: setups.Setup, seed: jax.Array, rings: ring_store.Rings, counters: Counters) -> windowing.Windows:
    """Returns a device's rows for a reanalysis, as windows without frames."""
    wanted = setup.agent.reanalyse
    assert wanted is not None
    slot, time = reanalyse.draw_stale(
        rings,
        _keys(seed, 3, counters.num_calls)[0],
        wanted.batch_size // setup.layout.num_shards,
        num_inserts=counters.num_inserts,
        capacity=setup.capacity,
        before=counters.version - wanted.min_age,
    )
    length, observe, before = wanted.length, wanted.observe, wanted.before
    return windowing.at(rings, slot, time, length=length, observe=observe, stack=setup.agent.stack, before=before)


def renew(
    setup: setups.Setup,
    seed: jax.Array,
    params: base.Params,
    rings: ring_store.Rings,
    windows: windowing.Windows,
    frames: jax.Array | None,
    counters: Counters,
) -> Renewed:
    """Returns the rings with new targets in the windows' first rows, and metrics. frames: as in `learn`."""
    assert setup.agent.reanalyse is not None
    windows = _seen(setup, rings, windows, frames)
    fresh, changes = setup.agent.reanalyse.compute(params, windows, _keys(seed, 3, counters.num_calls)[1])
    rings, written = reanalyse.retarget(rings, windows.slot, windows.time, fresh, counters.version)
    age = counters.version - windows.stored[ring_store.TARGET_VERSION][:, 0]
    return rings, _reanalyse_metrics({**changes, "refresh_age": age.astype(jnp.float32)}, written)


def _reanalyse_metrics(changes: Mapping[str, jax.Array], written: jax.Array) -> base.Metrics:
    """Returns means [] of values [B] over the rows that were written, on all devices.

    All are 0 if "refreshed_share", the fraction of rows that were written, is 0.
    """
    share = jax.lax.pmean(jnp.mean(written.astype(jnp.float32)), _AXIS)
    sums = {name: jnp.mean(jnp.where(written, change, 0.0)) for name, change in changes.items()}
    means = {name: jax.lax.pmean(x, _AXIS) / jnp.where(share > 0, share, 1.0) for name, x in sums.items()}
    return {**means, "refreshed_share": share}


# Arguments --------------------------------------------------------------------------------------------------------


def example_feed(setup: setups.Setup) -> Feed:
    """Returns a feed of the right shapes, for compilation."""
    if not isinstance(setup.agent.data, sources.Queue):
        return np.int32(0)
    whole = np.zeros(setup.batch_size, np.int32)
    return Unrolls(whole, whole, np.zeros(setup.batch_size, np.float32))


def counters(num_inserts: int, version: int, num_calls: int, *, own: bool = True) -> Counters:
    """Returns a call's scalars; steps and calls wrap around, because they grow for weeks and only need to differ."""
    return Counters(wrapped(num_inserts), np.int32(version), wrapped(num_calls), np.bool_(own))


def wrapped(number: int) -> np.int32:
    """Returns a number modulo 2^32, as int32."""
    return np.uint32(number % 2**32).astype(np.int32)
