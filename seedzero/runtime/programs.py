"""Compiled device functions, made in the background.

The largest acting batch is compiled first, the update beside it, smaller batches after that: acting starts as
soon as the first is there. XLA compiles outside Python's lock, so streams and leases live on meanwhile.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np

from seedzero.agents import base
from seedzero.core import config as config_lib
from seedzero.core import types
from seedzero.replay import rings as rings_lib
from seedzero.runtime import batcher, host_frames, steps

Act = Callable[[base.Params, steps.ActorState, batcher.Batch, steps.ActCounters], tuple[steps.ActorState, steps.Acted]]
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
        layout: batcher.Layout,
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
        act = steps.make_act(agent, mesh, seed)
        replicated, sharded = steps.replicated(mesh), steps.sharded(mesh)

        def compile_act(num_rows: int) -> Act:
            batch = steps.example_batch(spec, layout, num_rows)
            compiled: Act = act.lower(  # type: ignore[attr-defined]
                train.params,
                actor,
                jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharded), batch),
                jax.tree.map(lambda x: jax.ShapeDtypeStruct((), np.int32, sharding=replicated), _counters()),
            ).compile()
            return compiled if frames is None else functools.partial(_act_and_keep, frames, compiled)

        def compile_update() -> Update:
            if frames is not None:
                return compile_host_update(frames)
            update = steps.make_update(agent, mesh, seed, batch_size=batch_size, capacity=capacity)
            scalar = jax.ShapeDtypeStruct((), np.int32, sharding=replicated)
            args = (train, actor.rings, scalar)
            stacked, self.metric_names = steps.stack_metrics(update, *args)
            return stacked.lower(*args).compile()  # type: ignore[attr-defined, no-any-return]

        def compile_host_update(frames: host_frames.HostFrames) -> Update:
            lag = host_frames.HOST_LAG if ahead else 0
            draw = steps.make_draw(agent, mesh, seed, batch_size=batch_size, capacity=capacity, lag=lag)
            scalar = jax.ShapeDtypeStruct((), np.int32, sharding=replicated)
            drawing = (train.num_updates, scalar, actor.rings, scalar)
            windows = _split(jax.eval_shape(draw, *drawing), sharded)
            learning = (train, actor.rings, windows, _frames(windows, spec, sharded))
            learn, self.metric_names = steps.stack_metrics(steps.make_learn(agent, mesh, seed), *learning)
            self._host_update = host_frames.Update(
                frames,
                draw.lower(*drawing).compile(),  # type: ignore[attr-defined]
                learn.lower(*learning).compile(),  # type: ignore[attr-defined]
                ahead=ahead,
                on_ready=on_ready,
            )
            return self._host_update

        def compile_reanalyse() -> Reanalyse:
            if frames is not None:
                return compile_host_reanalyse(frames)
            function = steps.make_reanalyse(
                agent, mesh, seed, batch_size=reanalyse.batch_size, capacity=capacity, min_age=reanalyse.min_age
            )
            scalar = jax.ShapeDtypeStruct((), np.int32, sharding=replicated)
            args = (train.params, actor.rings, steps.ReanalyseCounters(scalar, scalar, scalar))
            stacked, self.reanalyse_metric_names = steps.stack_metrics(function, *args, donate=(1,))
            return stacked.lower(*args).compile()  # type: ignore[attr-defined, no-any-return]

        def compile_host_reanalyse(frames: host_frames.HostFrames) -> Reanalyse:
            draw = steps.make_draw_stale(
                agent, mesh, seed, batch_size=reanalyse.batch_size, capacity=capacity, min_age=reanalyse.min_age
            )
            scalar = jax.ShapeDtypeStruct((), np.int32, sharding=replicated)
            counters = steps.ReanalyseCounters(scalar, scalar, scalar)
            windows = _split(jax.eval_shape(draw, actor.rings, counters), sharded)
            renewing = (train.params, actor.rings, windows, _frames(windows, spec, sharded), counters)
            renew, self.reanalyse_metric_names = steps.stack_metrics(
                steps.make_renew(agent, mesh, seed), *renewing, donate=(1,)
            )
            return host_frames.Reanalyse(
                frames,
                draw.lower(actor.rings, counters).compile(),  # type: ignore[attr-defined]
                renew.lower(*renewing).compile(),  # type: ignore[attr-defined]
            )

        self._act: dict[int, futures.Future[Act]] = {size: futures.Future() for size in reversed(sizes)}
        self._update: futures.Future[Update] = futures.Future()
        self._reanalyse: futures.Future[Reanalyse] = futures.Future()
        everything: list[futures.Future[Any]] = [*self._act.values(), self._update, self._reanalyse]
        for future in everything:
            future.add_done_callback(lambda _: on_ready())
        self._start([(future, functools.partial(compile_act, size)) for size, future in self._act.items()])
        others: list[tuple[futures.Future[Any], Callable[[], Any]]] = [(self._update, compile_update)]
        if agent.reanalyse is not None:
            others.append((self._reanalyse, compile_reanalyse))
        self._start(others)

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


def _act_and_keep(
    frames: host_frames.HostFrames,
    compiled: Act,
    params: base.Params,
    actor: steps.ActorState,
    batch: batcher.Batch,
    counters: steps.ActCounters,
) -> tuple[steps.ActorState, steps.Acted]:
    """Acts, with the newest frames kept by the host."""
    frames.write(batch)
    return compiled(params, actor, batch, counters)


def _split(windows: rings_lib.Windows, sharding: jax.sharding.Sharding) -> rings_lib.Windows:
    """Returns the shapes of windows as they are spread over the devices."""
    split: rings_lib.Windows = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), windows
    )
    return split


def _frames(windows: rings_lib.Windows, spec: types.EnvSpec, sharding: jax.sharding.Sharding) -> jax.ShapeDtypeStruct:
    """Returns the shape of the frames at the windows' places."""
    shape = (*windows.observation.shape, *spec.observation_shape)
    return jax.ShapeDtypeStruct(shape, spec.observation_dtype, sharding=sharding)


def _counters() -> steps.ActCounters:
    return steps.act_counters(0, 0, 0)
