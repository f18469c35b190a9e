"""Updates on devices of their own: acting and the rings are on the others, and neither waits for the other.

An update is three calls: the acting devices draw windows with their frames, these are copied once, the others learn;
where rows have priorities, the new ones come back and are written into the rings. A device does its calls in the order
of their dispatch, so what needs an update's results is dispatched to acting devices only once these are there.
Rows that acting has overwritten meanwhile keep the priorities of their successors.

Only an evaluation makes one group wait for the other: it copies the newest parameters. A queue with `max_lag=1`, such
as PPO's, takes turns, so its environments wait until the update's parameters have arrived. Reanalyses search with the
parameters that act, and the metric `priority_max` is that of the draw. In deterministic mode both groups wait, and a
run repeats bit for bit. Checkpoints do not depend on the split: a run may resume with another one.

As with the Sebulba architecture of Podracer (Hessel et al. 2021, section 3.2) and SEED RL (Espeholt et al. 2020).
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.device import memory, meshes, setups, steps, strategies, tracing, transfer
from seedzero.replay import priorities, ring_store, sources, windowing

MOST_UPDATES = 2
"""Updates on their way: one that learns, and one whose windows are there when it ends."""

MOST_COPIES = 2
"""Copies of the parameters on their way to acting."""

Learned: TypeAlias = tuple[base.TrainState, transfer.Pieces, base.Metrics]
"""A train state, priorities, and metrics."""


class Apart(strategies.Strategy):
    """The strategy with devices for learning alone."""

    def __init__(self, setup: setups.Setup) -> None:
        data = setup.agent.data
        self.takes_turns = isinstance(data, sources.Queue) and data.max_lag == 1  # no row may be older than one update
        self._setup = setup
        self._published: collections.deque[strategies.Acting] = collections.deque()  # not there yet
        self._learning: collections.deque[tuple[priorities.Places, transfer.Pieces]] = collections.deque()

    def lanes(self, max_in_flight: int) -> tuple[int, ...]:
        return (max_in_flight, 1 if self.takes_turns else MOST_UPDATES)

    def trace_update(self, tracer: tracing.ProgramTracer) -> tracing.Traces:
        drawing, (drawn, places) = self._drawing(tracer), self._drawn(tracer)
        moved = transfer.shapes(drawn, self._setup.learns_on)

        def learn() -> tracing.UncompiledProgram:
            traced = tracer.program("learn", make_learn, (tracer.train,), (moved,), donate=(1,), has_metrics=True)
            lower = traced.lower.partition(" or ")[0]  # it is given no replay
            return traced._replace(elsewhere=memory.device_bytes((_copies(tracer), moved)), lower=lower)

        def write_back() -> tracing.UncompiledProgram:
            learned = jax.eval_shape(make_learn(self._setup), tracing.SEED, tracer.train, moved)
            learned = meshes.placed(learned[1], meshes.sharded(self._setup.learns_on))
            given = (tracer.actor.rings,), (places, transfer.shapes(learned, self._setup.mesh))
            return tracer.program("write_back", make_write_back, *given, donate=(1,))

        traces = {"draw": lambda: tracer.program("draw", make_draw, *drawing), "learn": learn}
        return traces | ({"write_back": write_back} if self._setup.prioritization else {})

    def held(self, tracer: tracing.ProgramTracer) -> Any:
        return _copies(tracer), self._drawn(tracer)[0]  # on their way: parameters to acting, and one update's windows

    def _drawing(self, tracer: tracing.ProgramTracer) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Returns the states that drawing is given, and its other arguments."""
        return (tracer.actor.rings,), (tracer.scalar, tracer.feed)

    def _drawn(self, tracer: tracing.ProgramTracer) -> tuple[Any, Any]:
        """Returns the shapes of the draw's results."""
        found: tuple[Any, Any] = tracer.results(make_draw, *self._drawing(tracer))
        return found

    def run_update(
        self, run: tracing.Bundle, given: strategies.Learning, feed: steps.Feed, num_updates: int
    ) -> strategies.Updated:
        seed, train, rings = given
        rings = self._prioritized(run, seed, rings)
        # The train state's own number is not there yet, and acting devices would wait for it.
        pieces, places = run["draw"](seed, rings, np.int32(num_updates), feed)
        train, priority, values = run["learn"](seed, train, transfer.move(pieces, self._setup.learns_on))
        if "write_back" in run:
            self._learning.append((places, priority))
        return train, rings if self._setup.ahead else self._prioritized(run, seed, rings), values

    def _prioritized(self, run: tracing.Bundle, seed: np.int32, rings: ring_store.Rings) -> ring_store.Rings:
        while self._learning and (not self._setup.ahead or is_there(self._learning[0][1])):
            places, priority = self._learning.popleft()
            rings = run["write_back"](seed, rings, places, transfer.move(priority, self._setup.mesh))
        return rings

    def copy(self, params: base.Params) -> base.Params:
        return jax.device_put(super().copy(params), meshes.replicated(self._setup.mesh))

    def publish(self, newest: strategies.Acting) -> strategies.Acting | None:
        if len(self._published) == MOST_COPIES:
            self._published.pop()  # the oldest is the first to be there, and the newest is wanted
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
        return acting  # the newest are elsewhere


def _copies(tracer: tracing.ProgramTracer) -> tuple[base.Params, ...]:
    return (tracer.params,) * MOST_COPIES


def make_draw(setup: setups.Setup) -> Callable[..., tuple[transfer.Pieces, priorities.Places]]:
    """Returns an update's first step for learning on other devices.

    (seed, Rings, num_updates, Feed) -> (Drawn, Places). Drawn are the windows with their frames, and [B] the rings'
    `max_weight` in every row, in pieces.
    """
    number = transfer.num_pieces(setup.mesh, setup.learns_on)

    def draw(
        seed: jax.Array, rings: ring_store.Rings, num_updates: jax.Array, feed: steps.Feed
    ) -> tuple[transfer.Pieces, priorities.Places]:
        windows = steps.draw(setup, seed, rings, num_updates, feed)
        places = priorities.Places(windows.slot, windows.time, rings.cursor[windows.slot])
        max_weight = None if rings.max_weight is None else jnp.full(windows.slot.shape, rings.max_weight[0])
        windows = windowing.read(rings, windows, setup.spec.packed)
        return transfer.cut((windows, max_weight), number), places

    in_specs = (meshes.REPLICATED, meshes.SHARDED, meshes.REPLICATED, steps.feed_specs(setup))
    return meshes.over_devices(draw, setup.mesh, in_specs, meshes.SHARDED)


def make_learn(setup: setups.Setup) -> Callable[..., Learned]:
    """Returns the second step: (seed, train state, Drawn) -> (train state, priorities [B], metrics).

    The train state is donated.
    """
    number = transfer.num_pieces(setup.learns_on, setup.mesh)

    def learn(seed: jax.Array, train: base.TrainState, pieces: transfer.Pieces) -> Learned:
        windows, max_weight = transfer.join(pieces)
        train, priority, metrics = steps.learn_from(setup, seed, train, windows)
        if (prioritization := setup.prioritization) is None or priority is None:
            return train, (), metrics
        metrics |= steps.priority_metrics(max_weight, windows, priority, prioritization)
        return train, transfer.cut(priority, number), metrics

    in_specs = (meshes.REPLICATED, meshes.REPLICATED, meshes.SHARDED)
    out_specs = (meshes.REPLICATED, meshes.SHARDED, meshes.REPLICATED)
    return meshes.over_devices(learn, setup.learns_on, in_specs, out_specs, donate=(1,))


def make_write_back(setup: setups.Setup) -> Callable[..., ring_store.Rings]:
    """Returns the last step, with priorities: (seed, Rings, Places, priorities [B]) -> Rings; donates the rings.

    Rows that acting has overwritten since the draw are passed over. Nothing is drawn.
    """

    def write_back(
        seed: jax.Array, rings: ring_store.Rings, places: priorities.Places, pieces: transfer.Pieces
    ) -> ring_store.Rings:
        assert setup.prioritization is not None
        priority = jnp.where(priorities.are_there(rings, places), transfer.join(pieces), jnp.nan)
        return priorities.prioritize(rings, places.slot, places.time, priority, setup.prioritization, meshes.AXIS)

    in_specs = (meshes.REPLICATED, meshes.SHARDED, meshes.SHARDED, meshes.SHARDED)
    return meshes.over_devices(write_back, setup.mesh, in_specs, meshes.SHARDED, donate=(1,))


def is_there(tree: Any) -> bool:
    """Returns whether arrays are computed, without waiting."""
    return all(leaf.is_ready() for leaf in jax.tree.leaves(tree))
