"""Learns on separate devices, while other devices act and hold the rings; neither group waits for the other.

An update is three calls: the acting devices draw windows with their frames, these are copied once, and the other
devices learn. If rows have priorities, the new ones are copied back and written to the rings. A device runs its calls
in the order of their dispatch, so a call that needs an update's results is dispatched to the acting devices only when
these are ready. Rows that acting has overwritten in the meantime keep the new rows' priorities.

Only an evaluation makes one group wait for the other, because it copies the newest parameters. A queue with
`max_lag=1`, such as PPO's, alternates, so its environments wait for the update's parameters. Reanalyses search with
the acting parameters, and the metric `priority_max` is the value at the draw. In deterministic mode both groups wait,
and a run repeats bit for bit. Checkpoints do not depend on the split, so a run may resume with another one.

The design follows the Sebulba architecture of Podracer (Hessel et al. 2021, section 3.2) and SEED RL (Espeholt et al.
2020).
"""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.device import meshes, setups, steps, strategies, tracing
from seedzero.replay import ring_store, sampling, sources, windowing

# Moves arrays from the devices of one mesh to those of another, split over the devices of each.
Pieces: TypeAlias = tuple[Any, ...]
"""Trees of arrays of equal structure, which together, by device and in order, make up one tree of arrays [B, ...]."""


def num_pieces(mesh: jax.sharding.Mesh, other: jax.sharding.Mesh) -> int:
    """Returns how many pieces a device's part is cut into on the way to the other mesh."""
    return math.lcm(mesh.devices.size, other.devices.size) // mesh.devices.size


def cut(tree: Any, number: int) -> Pieces:
    """Cuts a device's part into pieces; called under `shard_map`."""
    leaves, structure = jax.tree.flatten(tree)
    pieces = zip(*(jnp.split(leaf, number) for leaf in leaves), strict=True)
    return tuple(jax.tree.unflatten(structure, piece) for piece in pieces)


def join(pieces: Pieces) -> Any:
    """Joins pieces into a device's part; called under `shard_map`."""
    return pieces[0] if len(pieces) == 1 else jax.tree.map(lambda *piece: jnp.concatenate(piece), *pieces)


def move(pieces: Pieces, mesh: jax.sharding.Mesh) -> Pieces:
    """Returns the pieces on another mesh, as many as are needed there."""
    sharding = meshes.sharded(mesh)
    leaves, structure = [jax.tree.leaves(piece) for piece in pieces], jax.tree.structure(pieces[0])
    number = _number_there(pieces, mesh)
    if number == len(pieces) == 1:
        return (jax.device_put(pieces[0], sharding),)
    # Ordered by leaf, device and piece, so that one call makes all copies.
    parts = [
        part.data
        for leaf in zip(*leaves, strict=True)
        for shards in zip(*(piece.addressable_shards for piece in leaf), strict=True)
        for part in shards
    ]
    devices = [device for device in mesh.devices.flat for _ in range(number)]
    copies = jax.device_put(parts, devices * len(leaves[0]))

    def whole(first: int) -> jax.Array:
        mine = copies[first::number][: mesh.devices.size]
        shape = (mesh.devices.size * mine[0].shape[0], *mine[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, sharding, mine)

    starts = range(0, len(copies), len(devices))
    wholes = ([whole(start + piece) for start in starts] for piece in range(number))
    return tuple(jax.tree.unflatten(structure, leaves) for leaves in wholes)


def shapes(pieces: Pieces, mesh: jax.sharding.Mesh) -> Pieces:
    """Returns the shapes, dtypes and shardings of what `move` returns for such pieces."""
    number = _number_there(pieces, mesh)

    def there(x: Any) -> jax.ShapeDtypeStruct:
        shape = (x.shape[0] * len(pieces) // number, *x.shape[1:])
        return jax.ShapeDtypeStruct(shape, x.dtype, sharding=meshes.sharded(mesh))

    return (jax.tree.map(there, pieces[0]),) * number


def _number_there(pieces: Pieces, mesh: jax.sharding.Mesh) -> int:
    here: int = jax.tree.leaves(pieces[0])[0].sharding.num_devices
    return here * len(pieces) // mesh.devices.size


MOST_UPDATES = 2
"""Updates in progress: one that is learning, and one whose windows are ready when it ends."""

MOST_COPIES = 2
"""Copies of the parameters on the way to the acting devices."""

Learned: TypeAlias = tuple[base.TrainState, Pieces, base.Metrics]
"""Train state, priorities and metrics after an update."""


class Apart(strategies.Strategy):
    """The strategy in which some devices only learn."""

    def __init__(self, setup: setups.Setup) -> None:
        data = setup.agent.data
        # no row may be more than one update old
        self.takes_turns = isinstance(data, sources.Queue) and data.max_lag == 1
        self._setup = setup
        self._published: collections.deque[strategies.Acting] = collections.deque()  # copies that are not ready yet
        self._learning: collections.deque[tuple[sampling.Places, Pieces]] = collections.deque()

    def lanes(self, max_in_flight: int) -> tuple[int, ...]:
        return (max_in_flight, 1 if self.takes_turns else MOST_UPDATES)

    def trace_update(self, tracer: tracing.ProgramTracer) -> tracing.Traces:
        drawing, (drawn, places) = self._drawing(tracer), self._drawn(tracer)
        moved = shapes(drawn, self._setup.learns_on)

        def learn() -> tracing.UncompiledProgram:
            traced = tracer.program("learn", make_learn, (tracer.train,), (moved,), donate=(1,), has_metrics=True)
            lower = traced.lower.partition(" or ")[0]  # learning does not get the replay
            return traced._replace(elsewhere=tracing.device_bytes((_copies(tracer), moved)), lower=lower)

        def write_back() -> tracing.UncompiledProgram:
            learned = jax.eval_shape(make_learn(self._setup), tracing.SEED, tracer.train, moved)
            learned = meshes.placed(learned[1], meshes.sharded(self._setup.learns_on))
            given = (tracer.actor.rings,), (places, shapes(learned, self._setup.mesh))
            return tracer.program("write_back", make_write_back, *given, donate=(1,))

        traces = {"draw": lambda: tracer.program("draw", make_draw, *drawing), "learn": learn}
        return traces | ({"write_back": write_back} if self._setup.prioritization else {})

    def held(self, tracer: tracing.ProgramTracer) -> Any:
        # in transit: parameters for acting, and the windows of one update
        return _copies(tracer), self._drawn(tracer)[0]

    def _drawing(self, tracer: tracing.ProgramTracer) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Returns the states and the other arguments of a draw."""
        return (tracer.actor.rings,), (tracer.scalar, tracer.feed)

    def _drawn(self, tracer: tracing.ProgramTracer) -> tuple[Any, Any]:
        """Returns the shapes of a draw's results."""
        found: tuple[Any, Any] = tracer.results(make_draw, *self._drawing(tracer))
        return found

    def run_update(
        self, run: tracing.Bundle, given: strategies.Learning, feed: steps.Feed, num_updates: int
    ) -> strategies.Updated:
        seed, train, rings = given
        rings = self._prioritized(run, seed, rings)
        # The number in the train state is not ready yet, and the acting devices would wait for it.
        pieces, places = run["draw"](seed, rings, np.int32(num_updates), feed)
        train, priority, values = run["learn"](seed, train, move(pieces, self._setup.learns_on))
        if "write_back" in run:
            self._learning.append((places, priority))
        return train, rings if self._setup.ahead else self._prioritized(run, seed, rings), values

    def _prioritized(self, run: tracing.Bundle, seed: np.int32, rings: ring_store.Rings) -> ring_store.Rings:
        while self._learning and (not self._setup.ahead or is_there(self._learning[0][1])):
            places, priority = self._learning.popleft()
            rings = run["write_back"](seed, rings, places, move(priority, self._setup.mesh))
        return rings

    def copy(self, params: base.Params) -> base.Params:
        return jax.device_put(super().copy(params), meshes.replicated(self._setup.mesh))

    def publish(self, newest: strategies.Acting) -> strategies.Acting | None:
        if len(self._published) == MOST_COPIES:
            self._published.pop()  # keeps the oldest, which is ready first, and the newest
        self._published.append(newest._replace(params=self.copy(newest.params)))
        return self.receive()

    def receive(self) -> strategies.Acting | None:
        found = None
        while self._published and (not self._setup.ahead or is_there(self._published[0].params)):
            found = self._published.popleft()
        return found

    def when_there(self) -> Callable[[], object]:
        return functools.partial(jax.block_until_ready, [published.params for published in self._published])

    def reanalysing(self, newest: strategies.Acting, acting: strategies.Acting) -> strategies.Acting:
        return acting  # the newest ones are on other devices


def _copies(tracer: tracing.ProgramTracer) -> tuple[base.Params, ...]:
    return (tracer.params,) * MOST_COPIES


def make_draw(setup: setups.Setup) -> Callable[..., tuple[Pieces, sampling.Places]]:
    """Returns the first step of an update that learns on other devices.

    (seed, Rings, num_updates, Feed) -> (Drawn, Places). Drawn are pieces of the windows with their frames, and of [B]
    the rings' `max_weight` repeated in every row.
    """
    number = num_pieces(setup.mesh, setup.learns_on)

    def draw(
        seed: jax.Array, rings: ring_store.Rings, num_updates: jax.Array, feed: steps.Feed
    ) -> tuple[Pieces, sampling.Places]:
        windows = steps.draw(setup, seed, rings, num_updates, feed)
        places = sampling.Places(windows.slot, windows.time, rings.cursor[windows.slot])
        max_weight = None if rings.max_weight is None else jnp.full(windows.slot.shape, rings.max_weight[0])
        windows = windowing.read(rings, windows, setup.spec.kept.packed)
        return cut((windows, max_weight), number), places

    in_specs = (meshes.REPLICATED, meshes.SHARDED, meshes.REPLICATED, steps.feed_specs(setup))
    return meshes.over_devices(draw, setup.mesh, in_specs, meshes.SHARDED)


def make_learn(setup: setups.Setup) -> Callable[..., Learned]:
    """Returns the second step: (seed, train state, Drawn) -> (train state, priorities [B], metrics).

    The train state is donated.
    """
    number = num_pieces(setup.learns_on, setup.mesh)

    def learn(seed: jax.Array, train: base.TrainState, pieces: Pieces) -> Learned:
        windows, max_weight = join(pieces)
        train, priority, metrics = steps.learn_from(setup, seed, train, windows)
        if (prioritization := setup.prioritization) is None or priority is None:
            return train, (), metrics
        refused = train.num_rejected > 0
        metrics |= steps.priority_metrics(max_weight, windows, priority, prioritization, refused)
        return train, cut(sampling.unless_refused(priority, refused), number), metrics

    in_specs = (meshes.REPLICATED, meshes.REPLICATED, meshes.SHARDED)
    out_specs = (meshes.REPLICATED, meshes.SHARDED, meshes.REPLICATED)
    return meshes.over_devices(learn, setup.learns_on, in_specs, out_specs, donate=(1,))


def make_write_back(setup: setups.Setup) -> Callable[..., ring_store.Rings]:
    """Returns the last step if there are priorities: (seed, Rings, Places, priorities [B]) -> Rings.

    It donates the rings, skips rows that acting has overwritten since the draw, and uses no random numbers.
    """

    def write_back(
        seed: jax.Array, rings: ring_store.Rings, places: sampling.Places, pieces: Pieces
    ) -> ring_store.Rings:
        assert setup.prioritization is not None
        priority = jnp.where(sampling.are_there(rings, places), join(pieces), jnp.nan)
        return sampling.prioritize(rings, places.slot, places.time, priority, setup.prioritization, meshes.AXIS)

    in_specs = (meshes.REPLICATED, meshes.SHARDED, meshes.SHARDED, meshes.SHARDED)
    return meshes.over_devices(write_back, setup.mesh, in_specs, meshes.SHARDED, donate=(1,))


def is_there(tree: Any) -> bool:
    """Returns whether arrays are computed, without waiting for them."""
    return all(leaf.is_ready() for leaf in jax.tree.leaves(tree))
