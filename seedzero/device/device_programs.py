"""Compiles the device functions in the background.

The largest acting batch is compiled first, and the update at the same time, so that acting and training can start
early; smaller batches follow. XLA compiles without Python's lock, so streams and leases stay alive.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, NamedTuple

from seedzero.agents import base
from seedzero.device import across, acting, apart, host_frames, meshes, setups, strategies, tracing


class Training(NamedTuple):
    """The compiled functions of an update or a reanalysis, by the names of `Strategy`, and its metrics' names."""

    functions: tracing.Bundle
    metric_names: tuple[str, ...]


class Programs:
    """Provides programs as they are compiled: acting for each batch size, updates, and the agent's reanalyses.

    on_ready: called from a compiling thread whenever a program is ready.
    """

    def __init__(
        self, tracer: tracing.ProgramTracer, strategy: strategies.Strategy, *, on_ready: Callable[[], None]
    ) -> None:
        setup = tracer.setup
        self.all_sizes = setup.sizes
        self._num_shards = setup.layout.num_shards
        self._closed = threading.Event()
        self._limit = tracing.limit_bytes(setup.mesh.devices.flat[0])
        self._act: dict[int, futures.Future[tracing.Program]] = {
            size: futures.Future() for size in reversed(setup.sizes)
        }
        self.update: futures.Future[Training] = futures.Future()
        self.reanalyse: futures.Future[Training] = futures.Future()
        """Done when it is compiled, or when that has failed; then its result raises. Never done for agents without
        reanalysis."""
        everything: list[futures.Future[Any]] = [*self._act.values(), self.update, self.reanalyse]
        for future in everything:
            future.add_done_callback(lambda _: on_ready())
        largest, *smaller = [
            (future, functools.partial(self._compile_act, tracer, size)) for size, future in self._act.items()
        ]
        training: list[tuple[futures.Future[Any], Callable[[], Any]]] = [
            (self.update, lambda: self._compile(strategy.trace_update(tracer)))
        ]
        if setup.agent.reanalyse is not None:
            training.append((self.reanalyse, lambda: self._compile(strategy.trace_reanalyse(tracer))))
        self._start([largest])
        self._start([*training, *smaller])

    def _compile_act(self, tracer: tracing.ProgramTracer, num_rows: int) -> Any:
        return tracer.act(num_rows).compile(self._limit)

    def _compile(self, traces: tracing.Traces) -> Training:
        traced = {name: trace() for name, trace in traces.items()}
        functions = {name: function.compile(self._limit) for name, function in traced.items()}
        return Training(functions, next(found.metric_names for found in traced.values() if found.metric_names))

    def _start(self, tasks: Sequence[tuple[futures.Future[Any], Callable[[], Any]]]) -> None:
        """Compiles on a new thread. At the end of the process, only the program that is being compiled is waited for.

        It is not a daemon thread, because Python would end that in the middle of XLA's code, which aborts the process.
        """

        def work() -> None:
            for future, compile_one in tasks:
                if self._closed.is_set() or not threading.main_thread().is_alive():
                    return
                try:
                    future.set_result(compile_one())
                except Exception as error:  # raised again for whoever asks for the program
                    future.set_exception(error)

        threading.Thread(target=work, name="compile").start()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of acting batches that are compiled, ascending; empty until the first one is."""
        return tuple(size for size in self.all_sizes if self._act[size].done())

    def act(self, num_rows: int) -> tracing.Program:
        """Waits for the acting program for batches of this many rows and returns it.

        Raises the compilation's error.
        """
        return self._act[num_rows // self._num_shards].result()

    def close(self) -> None:
        """Drops the programs whose compilation has not begun."""
        self._closed.set()


def prepare(
    setup: setups.Setup,
    train: base.TrainState,
    actor: acting.ActorState,
    *,
    seed: int = 0,
    on_host: bool = False,
    on_ready: Callable[[], None],
) -> tuple[strategies.Strategy, Programs]:
    """Returns the strategy for sharing the devices, and its programs, whose compilation has begun.

    train, actor: shapes, dtypes and shardings of the states. seed: the run's. on_host: as in `choose_strategy`.
    on_ready: as in `choose_strategy` and `Programs`.
    """
    strategy = choose_strategy(setup, seed=seed, on_host=on_host, on_ready=on_ready)
    if not strategy.holds_frames:
        actor = actor._replace(rings=actor.rings._replace(observation=None))
    return strategy, Programs(tracing.ProgramTracer(setup, train, actor, strategy.held), strategy, on_ready=on_ready)


def choose_strategy(
    setup: setups.Setup, *, seed: int = 0, on_host: bool, on_ready: Callable[[], None]
) -> strategies.Strategy:
    """Returns how the devices share the work.

    on_host: whether the host keeps the replay's frames. on_ready: called from a thread when the next frames are ready.
    """
    if setup.num_hosts > 1:
        return across.AcrossHosts(setup, seed)
    if setup.learners is not None:
        return apart.Apart(setup)
    if not on_host:
        return strategies.Strategy()
    frames = host_frames.HostFrames(setup.spec.kept, setup.layout, setup.slot_length, meshes.sharded(setup.mesh))
    return host_frames.FramesWithHost(frames, ahead=setup.ahead, on_ready=on_ready)
