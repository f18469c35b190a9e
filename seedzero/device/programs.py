"""Compiled device functions, made in the background.

The largest acting batch is compiled first and the update beside it, so that acting and training start as soon as they
can; smaller batches come last. XLA compiles outside Python's lock, so streams and leases live on meanwhile.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.device import apart, host_frames, memory, steps, transfer
from seedzero.device import batch as batches
from seedzero.device import mesh as meshes
from seedzero.device import setup as setups
from seedzero.device import state as states
from seedzero.replay import rings as ring_store
from seedzero.replay import windows as windowing

Act = Callable[[base.Params, states.ActorState, batches.Batch, steps.Counters], tuple[states.ActorState, jax.Array]]
Update = Callable[..., host_frames.Updated]
"""(train state, Rings, Feed), and with learners apart the number of updates before."""
Refresh = Callable[[base.Params, ring_store.Rings, steps.Counters], tuple[ring_store.Rings, jax.Array]]

_BATCH_SIZES = {
    "act": "--batcher.max_batch",
    "update": "--replay.batch_size",
    "learn": "--replay.batch_size",
    "refresh": "--reanalyse.batch_size",
    "renew": "--reanalyse.batch_size",
}
"""Settings of the batch sizes of a sampling agent's programs, for messages."""


class Programs:
    """Act for several batch sizes, update, and refresh if the agent has it, as they become ready.

    Args:
      setup: of the run.
      train: shapes, dtypes and shardings of the train state.
      actor: the same of the acting state, without the replay's frames where the host keeps them.
      on_ready: called from a compiling or reading thread whenever another program is ready, or an update's frames are.
      frames: the replay's, where the host keeps them.
    """

    def __init__(
        self,
        setup: setups.Setup,
        train: base.TrainState,
        actor: states.ActorState,
        *,
        on_ready: Callable[[], None],
        frames: host_frames.HostFrames | None = None,
    ) -> None:
        self.all_sizes = setup.sizes
        self.metric_names: tuple[str, ...] = ()
        self.refresh_metric_names: tuple[str, ...] = ()
        self._closed = threading.Event()
        self._frames = frames
        self._limit = memory.limit_bytes(setup.mesh.devices.flat[0])
        self._host_update: host_frames.UpdateFromHost | None = None
        self._act: dict[int, futures.Future[Act]] = {size: futures.Future() for size in reversed(setup.sizes)}
        self._update: futures.Future[Update] = futures.Future()
        self._refresh: futures.Future[Refresh] = futures.Future()
        everything: list[futures.Future[Any]] = [*self._act.values(), self._update, self._refresh]
        for future in everything:
            future.add_done_callback(lambda _: on_ready())
        tracer = Tracer(setup, train, actor)
        largest, *smaller = [
            (future, functools.partial(self._compile_act, tracer, size)) for size, future in self._act.items()
        ]
        tasks: list[tuple[futures.Future[Any], Callable[[], Any]]] = [
            (self._update, lambda: self._compile_update(tracer, setup, on_ready))
        ]
        if setup.agent.refresh is not None:
            tasks.append((self._refresh, lambda: self._compile_refresh(tracer)))
        self._start([largest])
        self._start([*tasks, *smaller])

    def _compile_act(self, tracer: Tracer, num_rows: int) -> Act:
        compiled: Act = tracer.act(num_rows).seeded(self._limit)
        if (frames := self._frames) is None:
            return compiled

        def act_and_keep(params: Any, actor: Any, batch: batches.Batch, counters: Any) -> Any:
            frames.write(batch)
            return compiled(params, actor, batch, counters)

        return act_and_keep

    def _compile_update(self, tracer: Tracer, setup: setups.Setup, on_ready: Callable[[], None]) -> Update:
        if setup.learners is not None:
            return self._compile_update_apart(tracer, setup)
        if self._frames is None:
            update = tracer.update()
            self.metric_names = update.metric_names
            return update.seeded(self._limit)  # type: ignore[no-any-return]
        learn = tracer.learn()
        learner, drawer = learn.seeded(self._limit), tracer.draw().seeded(self._limit)
        self._host_update = host_frames.UpdateFromHost(
            self._frames, drawer, learner, ahead=setup.ahead, on_ready=on_ready
        )
        self.metric_names = learn.metric_names
        return self._host_update

    def _compile_update_apart(self, tracer: Tracer, setup: setups.Setup) -> Update:
        learn = tracer.learn_apart()
        learner, drawer = learn.seeded(self._limit), tracer.draw_apart().seeded(self._limit)
        writer = tracer.write_back().seeded(self._limit) if setup.prioritization else None
        self.metric_names = learn.metric_names
        return apart.UpdateApart(
            drawer, learner, writer, acting=setup.mesh, learners=setup.learns_on, ahead=setup.ahead
        )

    def _compile_refresh(self, tracer: Tracer) -> Refresh:
        if (frames := self._frames) is None:
            refresh = tracer.refresh()
            self.refresh_metric_names = refresh.metric_names
            return refresh.seeded(self._limit)  # type: ignore[no-any-return]
        renew = tracer.renew()
        renewer, drawer = renew.seeded(self._limit), tracer.draw_stale().seeded(self._limit)
        self.refresh_metric_names = renew.metric_names

        def draw_and_renew(params: Any, rings: ring_store.Rings, counters: steps.Counters) -> Any:
            windows = drawer(rings, counters)
            # Waits for the places and reads them at once: nothing is written in between.
            return renewer(params, rings, windows, frames.read(windows), counters)

        return draw_and_renew

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
    def refresh_ready(self) -> bool:
        """Whether the agent refreshes and that is compiled (or its compilation failed: `refresh` then raises)."""
        return self._refresh.done()

    @property
    def refresh(self) -> Refresh:
        """The program that refreshes targets, waiting for it; raises what its compilation raised."""
        return self._refresh.result()

    def with_frames(self, rings: ring_store.Rings) -> ring_store.Rings:
        """Returns the replay with its frames, wherever they are, for a checkpoint."""
        return rings if self._frames is None else rings._replace(observation=self._frames.array)

    def close(self) -> None:
        """Drops what is not being compiled yet, and waits for frames that are being read; no update runs any more."""
        self._closed.set()
        if self._host_update is not None:
            self._host_update.close()


class Traced(NamedTuple):
    """A device function with the shapes of its arguments.

    Attributes:
      name: of the program.
      function: traced; its first argument is the run's seed.
      seed: of the run.
      elsewhere: bytes of state on each device that is no argument of it.
      lower: the settings to lower where it does not fit, for messages.
      metric_names: of its last result, if that is metrics.
    """

    name: str
    function: jax.stages.Traced
    seed: int = 0
    elsewhere: int = 0
    lower: str = ""
    metric_names: tuple[str, ...] = ()

    def compile(self, limit: int | None = None) -> Any:
        """Returns the program. Raises CapacityError where it needs more than `limit` bytes on each device."""
        return memory.compile_within(self.name, self.function.lower(), self.elsewhere, limit, self.lower)

    def seeded(self, limit: int | None = None) -> Any:
        """Returns the program without its first argument; raises as `compile`."""
        return functools.partial(self.compile(limit), np.int32(self.seed))


class Tracer:
    """Traces each device function of a run for its devices; they need not be there.

    The seed is an argument of each, and no constant in it, so that runs of other seeds find the program in the cache.

    The arguments are those of `Programs`. Where `actor` has no frames the host keeps them, and update and refresh are
    two programs each.
    """

    def __init__(self, setup: setups.Setup, train: base.TrainState, actor: states.ActorState) -> None:
        self._setup = setup
        self._train = train
        self._actor = actor
        self._params = meshes.placed(jax.eval_shape(setup.agent.acting, train), meshes.replicated(setup.mesh))
        self._scalar = jax.ShapeDtypeStruct((), np.int32, sharding=meshes.replicated(setup.mesh))
        self._feed = meshes.placed(steps.example_feed(setup), steps.feed_sharding(setup))
        self._counters = steps.Counters(self._scalar, self._scalar, self._scalar)
        self._state = {id(leaf): leaf for leaf in jax.tree.leaves((train, actor, self._params))}
        # Acting and a running evaluation have copies of the parameters.
        self._state_bytes = memory.device_bytes((actor, self._params, self._params))
        if setup.learners is None:
            self._state_bytes += memory.device_bytes(train)
        else:  # on their way: parameters to acting, and one update's windows
            drawn, self._places = self._drawn_apart()
            self._moved = transfer.shapes(drawn, setup.learns_on)
            self._copies = (self._params,) * apart.MOST_COPIES
            self._state_bytes += memory.device_bytes((self._copies, drawn))

    def training(self) -> dict[str, Callable[[], Traced]]:
        """Returns what traces each program besides acting."""
        on_host, refreshes = self._actor.rings.observation is None, self._setup.agent.refresh is not None
        if self._setup.learners is not None:
            return {
                "draw": self.draw_apart,
                "learn": self.learn_apart,
                **({"write_back": self.write_back} if self._setup.prioritization else {}),
                **({"refresh": self.refresh} if refreshes else {}),
            }
        if on_host:
            refreshing = {"draw_stale": self.draw_stale, "renew": self.renew}
            return {"draw": self.draw, "learn": self.learn, **(refreshing if refreshes else {})}
        return {"update": self.update, **({"refresh": self.refresh} if refreshes else {})}

    def act(self, num_rows: int) -> Traced:
        """Traces acting on so many rows a device."""
        batch = batches.padding(self._setup.spec, self._setup.layout, num_rows)
        placed = meshes.placed(batch, meshes.sharded(self._setup.mesh))
        return self._traced("act", steps.make_act, (self._params, self._actor, placed, self._counters), (1,))

    def update(self) -> Traced:
        return self._traced(
            "update", steps.make_update, (self._train, self._actor.rings, self._feed), (0, 1), has_metrics=True
        )

    def draw(self) -> Traced:
        """Traces the first part of an update, for frames on the host."""
        return self._traced("draw", *self._drawing())

    def learn(self) -> Traced:
        """Traces the second part of an update, for frames on the host."""
        make, arguments = self._drawing()
        windows = self._drawn(make(self._setup), *arguments)
        arguments = (self._train, self._actor.rings, *windows)
        return self._traced("learn", steps.make_learn, arguments, (0, 1), has_metrics=True)

    def draw_apart(self) -> Traced:
        """Traces the first part of an update of devices apart."""
        return self._traced("draw", steps.make_draw_apart, self._drawing_apart())

    def learn_apart(self) -> Traced:
        """Traces its second part, on those devices."""
        traced = self._traced("learn", steps.make_learn_apart, (self._train, self._moved), (0,), has_metrics=True)
        lower = _BATCH_SIZES["learn"] if self._setup.agent.samples else "the agent's batch_size"
        return traced._replace(elsewhere=memory.device_bytes((self._copies, self._moved)), lower=lower)

    def write_back(self) -> Traced:
        """Traces its last part, where there are priorities."""
        learned = jax.eval_shape(steps.make_learn_apart(self._setup), self._train, self._moved)
        learned = meshes.placed(learned[1], meshes.sharded(self._setup.learns_on))
        arguments = (self._actor.rings, self._places, transfer.shapes(learned, self._setup.mesh))
        return self._traced("write_back", steps.make_write_back, arguments, (0,))

    def refresh(self) -> Traced:
        arguments = (self._params, self._actor.rings, self._counters)
        return self._traced("refresh", steps.make_refresh, arguments, (1,), has_metrics=True)

    def draw_stale(self) -> Traced:
        """Traces the first part of a refresh, for frames on the host."""
        return self._traced("draw_stale", steps.make_draw_stale, (self._actor.rings, self._counters))

    def renew(self) -> Traced:
        """Traces the second part of a refresh, for frames on the host."""
        rings, counters = self._actor.rings, self._counters
        windows = self._drawn(steps.make_draw_stale(self._setup), rings, counters)
        arguments = (self._params, rings, *windows, counters)
        return self._traced("renew", steps.make_renew, arguments, (1,), has_metrics=True)

    def _traced(
        self,
        name: str,
        make: Callable[[setups.Setup], Callable[..., Any]],
        arguments: tuple[Any, ...],
        donate: tuple[int, ...] = (),
        *,
        has_metrics: bool = False,
    ) -> Traced:
        """Traces what `make` makes; it donates the arguments at some positions.

        has_metrics: the last result is metrics, which become one array: fetching them is one copy.
        """
        metric_names: list[str] = []

        def seeded(seed: Any, *arguments: Any) -> Any:
            found = make(self._setup._replace(seed=seed))(*arguments)
            if not has_metrics:
                return found
            metric_names[:] = sorted(found[-1])
            return (*found[:-1], _stacked(found[-1], metric_names))

        seeded.__name__ = name  # profiles and the compilation cache show it
        function = jax.jit(seeded, donate_argnums=[1 + position for position in donate])
        given = [leaf for leaf in jax.tree.leaves(arguments) if id(leaf) in self._state]  # batches are no state
        elsewhere = self._state_bytes - memory.device_bytes(given)
        if self._setup.agent.samples:
            lower = [_BATCH_SIZES.get(name), "--replay.capacity"]
        else:  # its capacity follows from its slots
            lower = ["--batcher.max_batch" if name == "act" else "the agent's batch_size", "--replay.num_slots"]
        traced = function.trace(jax.ShapeDtypeStruct((), np.int32), *arguments)
        lowered = " or ".join(filter(None, lower))
        return Traced(name, traced, self._setup.seed, elsewhere, lowered, tuple(metric_names))

    def _drawing(self) -> tuple[Callable[[setups.Setup], Callable[..., Any]], tuple[Any, ...]]:
        """Returns what makes the function that draws an update's windows, and its arguments."""
        make = functools.partial(steps.make_draw, lag=host_frames.HOST_LAG if self._setup.ahead else 0)
        return make, (self._train.num_updates, self._scalar, self._actor.rings, self._feed)

    def _drawing_apart(self) -> tuple[Any, ...]:
        """Returns the arguments of drawing where other devices learn."""
        return self._scalar, self._actor.rings, self._feed

    def _drawn_apart(self) -> Any:
        """Returns the shapes of what it returns."""
        drawn = jax.eval_shape(steps.make_draw_apart(self._setup), *self._drawing_apart())
        return meshes.placed(drawn, meshes.sharded(self._setup.mesh))

    def _drawn(self, draw: Any, *args: Any) -> tuple[windowing.Windows, jax.ShapeDtypeStruct]:
        """Returns the shapes of a draw, windows and the frames at their places, spread over the devices."""
        sharding = meshes.sharded(self._setup.mesh)
        windows = meshes.placed(jax.eval_shape(draw, *args), sharding)
        shape = (*windows.places.shape, *self._setup.spec.observation_shape)
        return windows, jax.ShapeDtypeStruct(shape, self._setup.spec.observation_dtype, sharding=sharding)


def _stacked(metrics: base.Metrics, names: Sequence[str]) -> jax.Array:
    return jnp.stack([metrics[name].astype(jnp.float32) for name in names])
