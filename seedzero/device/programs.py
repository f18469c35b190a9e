"""Compiled device functions, made in the background.

The largest acting batch is compiled first, the update beside it, smaller batches after that: acting starts as
soon as the first is there. XLA compiles outside Python's lock, so streams and leases live on meanwhile.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
import numpy as np

from seedzero.agents import base
from seedzero.config import config as config_lib
from seedzero.core import types
from seedzero.device import batch as batch_lib
from seedzero.device import host_frames, steps
from seedzero.replay import rings as rings_lib

Act = Callable[
    [base.Params, steps.ActorState, batch_lib.Batch, steps.ActCounters], tuple[steps.ActorState, steps.Acted]
]
Reanalyse = Callable[[base.Params, rings_lib.Rings, steps.ReanalyseCounters], tuple[rings_lib.Rings, jax.Array]]
Update = Callable[[base.TrainState, rings_lib.Rings, Any], tuple[base.TrainState, rings_lib.Rings, jax.Array]]


class Programs:
    """Act for several batch sizes, update, and reanalyse if it is on, as they become ready.

    Args:
      agent: whose functions are compiled.
      spec: of the environments.
      layout: of the slots.
      mesh: devices.
      sizes: rows a shard of acting batches, ascending.
      train: shapes, dtypes and shardings of the training state.
      actor: the same of the acting state.
      seed: of the run.
      batch_size: windows of one update.
      capacity: training steps that count as kept.
      reanalyse: how the agent's replayed positions are searched anew, if they are.
      on_ready: called from a compiling or reading thread whenever another program is ready, or an update's frames are.
      frames: the replay's, where the host keeps them: then `actor` has none.
      ahead: with `frames`, whether windows are drawn before their update is asked for.
    """

    def __init__(
        self,
        agent: base.Agent,
        spec: types.EnvSpec,
        layout: batch_lib.Layout,
        mesh: jax.sharding.Mesh,
        sizes: tuple[int, ...],
        train: base.TrainState,
        actor: steps.ActorState,
        *,
        seed: int,
        batch_size: int,
        capacity: int,
        reanalyse: config_lib.ReanalyseConfig,
        on_ready: Callable[[], None],
        frames: host_frames.HostFrames | None = None,
        ahead: bool = True,
    ) -> None:
        self.all_sizes = sizes
        self.metric_names: tuple[str, ...] = ()
        self.reanalyse_metric_names: tuple[str, ...] = ()
        self._closed = threading.Event()
        self._frames = frames
        self._host_update: host_frames.Update | None = None
        self._compiler = _Compiler(
            agent, spec, layout, mesh, train, actor, seed, batch_size, capacity, reanalyse, on_ready, frames, ahead
        )
        self._act: dict[int, futures.Future[Act]] = {size: futures.Future() for size in reversed(sizes)}
        self._update: futures.Future[Update] = futures.Future()
        self._reanalyse: futures.Future[Reanalyse] = futures.Future()
        everything: list[futures.Future[Any]] = [*self._act.values(), self._update, self._reanalyse]
        for future in everything:
            future.add_done_callback(lambda _: on_ready())
        act = steps.make_act(agent, mesh, seed)
        self._start([(future, functools.partial(self._compiler.act, act, size)) for size, future in self._act.items()])
        others: list[tuple[futures.Future[Any], Callable[[], Any]]] = [(self._update, self._compile_update)]
        if agent.reanalyse is not None:
            others.append((self._reanalyse, self._compile_reanalyse))
        self._start(others)

    def _compile_update(self) -> Update:
        if self._frames is None:
            compiled, self.metric_names = self._compiler.update()
            return compiled
        self._host_update, self.metric_names = self._compiler.host_update(self._frames)
        return self._host_update

    def _compile_reanalyse(self) -> Reanalyse:
        if self._frames is None:
            compiled, self.reanalyse_metric_names = self._compiler.reanalyse()
        else:
            compiled, self.reanalyse_metric_names = self._compiler.host_reanalyse(self._frames)
        return compiled

    def _start(self, tasks: Sequence[tuple[futures.Future[Any], Callable[[], Any]]]) -> None:
        """Compiles on a thread; at the end of the process only the program being compiled is waited for.

        Not a daemon thread: Python would end that in the middle of XLA's code, which aborts the process.
        """

        def work() -> None:
            for future, compile_one in tasks:
                if self._closed.is_set() or not threading.main_thread().is_alive():
                    return
                try:
                    future.set_result(compile_one())
                except Exception as error:  # raised again where the program is asked for
                    future.set_exception(error)

        threading.Thread(target=work, name="compile").start()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Acting batch sizes that are ready, ascending; empty until the first is."""
        return tuple(size for size in self.all_sizes if self._act[size].done())

    def act(self, num_rows: int) -> Act:
        """Returns the acting program of a size, waiting for it; raises what its compilation raised."""
        return self._act[num_rows].result()

    @property
    def update_compiled(self) -> bool:
        """Whether the update is compiled (or its compilation failed: `update` then raises)."""
        return self._update.done()

    @property
    def update_ready(self) -> bool:
        """Whether the update is compiled, and need not wait for frames that the host is reading."""
        return self._update.done() and (self._host_update is None or self._host_update.ready)

    @property
    def update(self) -> Update:
        """The training program, waiting for it; raises what its compilation raised."""
        return self._update.result()

    @property
    def reanalyse_ready(self) -> bool:
        """Whether reanalysing is on and compiled (or its compilation failed: `reanalyse` then raises)."""
        return self._reanalyse.done()

    @property
    def reanalyse(self) -> Reanalyse:
        """The program that renews targets, waiting for it; raises what its compilation raised."""
        return self._reanalyse.result()

    def whole(self, rings: rings_lib.Rings) -> rings_lib.Rings:
        """Returns the replay with its frames, wherever they are, for a checkpoint."""
        return rings if self._frames is None else rings._replace(observation=self._frames.array)

    def close(self) -> None:
        """Drops what is not being compiled yet, and waits for frames that are being read; no update runs any more."""
        self._closed.set()
        if self._host_update is not None:
            self._host_update.close()


class _Compiler(NamedTuple):
    """Compiles each device function, with the names of its metrics; the attributes are `Programs`' arguments."""

    agent: base.Agent
    spec: types.EnvSpec
    layout: batch_lib.Layout
    mesh: jax.sharding.Mesh
    train: base.TrainState
    actor: steps.ActorState
    seed: int
    batch_size: int
    capacity: int
    how: config_lib.ReanalyseConfig
    on_ready: Callable[[], None]
    frames: host_frames.HostFrames | None
    ahead: bool

    def act(self, function: Any, num_rows: int) -> Act:
        sharded, replicated = steps.sharded(self.mesh), steps.replicated(self.mesh)
        batch = steps.example_batch(self.spec, self.layout, num_rows)
        compiled: Act = function.lower(
            self.train.params,
            self.actor,
            jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharded), batch),
            jax.tree.map(lambda x: jax.ShapeDtypeStruct((), np.int32, sharding=replicated), _counters()),
        ).compile()
        return compiled if self.frames is None else functools.partial(_act_and_keep, self.frames, compiled)

    def update(self) -> tuple[Update, tuple[str, ...]]:
        function = steps.make_update(
            self.agent, self.mesh, self.seed, batch_size=self.batch_size, capacity=self.capacity
        )
        return _compiled(function, self.train, self.actor.rings, self._scalar)

    def host_update(self, frames: host_frames.HostFrames) -> tuple[host_frames.Update, tuple[str, ...]]:
        lag = host_frames.HOST_LAG if self.ahead else 0
        draw: Any = steps.make_draw(
            self.agent, self.mesh, self.seed, batch_size=self.batch_size, capacity=self.capacity, lag=lag
        )
        drawing = (self.train.num_updates, self._scalar, self.actor.rings, self._scalar)
        windows, seen = self._drawn(draw, *drawing)
        learn, names = _compiled(
            steps.make_learn(self.agent, self.mesh, self.seed), self.train, self.actor.rings, windows, seen
        )
        drawer = draw.lower(*drawing).compile()
        return host_frames.Update(frames, drawer, learn, ahead=self.ahead, on_ready=self.on_ready), names

    def reanalyse(self) -> tuple[Reanalyse, tuple[str, ...]]:
        function = steps.make_reanalyse(self.agent, self.mesh, self.seed, **self._reanalysed)
        return _compiled(function, self.train.params, self.actor.rings, self._counters, donate=(1,))

    def host_reanalyse(self, frames: host_frames.HostFrames) -> tuple[Reanalyse, tuple[str, ...]]:
        draw: Any = steps.make_draw_stale(self.agent, self.mesh, self.seed, **self._reanalysed)
        drawing = (self.actor.rings, self._counters)
        renew, names = _compiled(
            steps.make_renew(self.agent, self.mesh, self.seed),
            self.train.params,
            self.actor.rings,
            *self._drawn(draw, *drawing),
            self._counters,
            donate=(1,),
        )
        return host_frames.Reanalyse(frames, draw.lower(*drawing).compile(), renew), names

    @property
    def _scalar(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((), np.int32, sharding=steps.replicated(self.mesh))

    @property
    def _counters(self) -> steps.ReanalyseCounters:
        return steps.ReanalyseCounters(self._scalar, self._scalar, self._scalar)

    @property
    def _reanalysed(self) -> dict[str, int]:
        return {"batch_size": self.how.batch_size, "capacity": self.capacity, "min_age": self.how.min_age}

    def _drawn(self, draw: Any, *args: Any) -> tuple[rings_lib.Windows, jax.ShapeDtypeStruct]:
        """Returns the shapes of what is drawn, windows and the frames at their places, spread over the devices."""
        sharding = steps.sharded(self.mesh)
        windows = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), jax.eval_shape(draw, *args)
        )
        shape = (*windows.observation.shape, *self.spec.observation_shape)
        return windows, jax.ShapeDtypeStruct(shape, self.spec.observation_dtype, sharding=sharding)


def _compiled(
    function: Callable[..., Any], *args: Any, donate: tuple[int, ...] = (0, 1)
) -> tuple[Any, tuple[str, ...]]:
    """Returns the compiled function with its metrics as one array, and their names."""
    stacked, names = steps.stack_metrics(function, *args, donate=donate)
    return stacked.lower(*args).compile(), names  # type: ignore[attr-defined]


def _act_and_keep(
    frames: host_frames.HostFrames,
    compiled: Act,
    params: base.Params,
    actor: steps.ActorState,
    batch: batch_lib.Batch,
    counters: steps.ActCounters,
) -> tuple[steps.ActorState, steps.Acted]:
    """Acts, with the newest frames kept by the host."""
    frames.write(batch)
    return compiled(params, actor, batch, counters)


def _counters() -> steps.ActCounters:
    return steps.act_counters(0, 0, 0)
