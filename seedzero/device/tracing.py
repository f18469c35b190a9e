"""Traces a run's device functions for compilation, for devices that are present or absent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.device import acting, batches, memory, meshes, setups, steps
from seedzero.replay import windowing

Program: TypeAlias = Callable[..., Any]
"""A compiled function of (seed, *states, *others), which donates some of the states."""
Make: TypeAlias = Callable[[setups.Setup], Program]
"""Makes a jitted device function."""
Bundle: TypeAlias = Mapping[str, Program]
"""The programs of an update or a reanalysis, by the names in `Strategy`."""

SEED = jax.ShapeDtypeStruct((), np.int32)
"""The first argument of every device function; not a constant, so that all seeds share one cached program."""

_BATCH_SIZES = {
    "act": "--batcher.max_batch",
    "update": "--replay.batch_size",
    "learn": "--replay.batch_size",
    "reanalyse": "--reanalyse.batch_size",
    "renew": "--reanalyse.batch_size",
}
"""Settings that decide the batch sizes of programs, named in messages about agents that sample."""


class UncompiledProgram(NamedTuple):
    """A traced device function."""

    name: str
    function: jax.stages.Traced
    elsewhere: int = 0  # bytes of state on each device that are not arguments
    lower: str = ""  # settings to lower if it does not fit, for messages
    metric_names: tuple[str, ...] = ()  # names in its last result, if that is metrics

    def compile(self, limit: int | None = None) -> Any:
        """Compiles the program. Raises CapacityError if it needs more than `limit` bytes on a device."""
        return memory.compile_within(self.name, self.function.lower(), self.elsewhere, limit, self.lower)


Traces: TypeAlias = Mapping[str, Callable[[], UncompiledProgram]]
"""Functions by name, each of which traces one program."""


@dataclasses.dataclass(eq=False)
class ProgramTracer:
    """Traces each device function of a run for the run's devices.

    train, actor, params, feed, counters, scalar: shapes, dtypes and shardings of arguments; `actor` has no frames if
    they are on the host. held: `Strategy.held`.
    """

    setup: setups.Setup
    train: base.TrainState
    actor: acting.ActorState
    held: dataclasses.InitVar[Callable[[ProgramTracer], Any]]

    def __post_init__(self, held: Callable[[ProgramTracer], Any]) -> None:
        setup, train, actor = self.setup, self.train, self.actor
        self.params = meshes.placed(jax.eval_shape(setup.agent.acting, train), meshes.replicated(setup.mesh))
        of_feed = jax.sharding.NamedSharding(setup.mesh, steps.feed_specs(setup))
        self.feed = meshes.placed(steps.example_feed(setup), of_feed)
        self.scalar = jax.ShapeDtypeStruct((), np.int32, sharding=meshes.replicated(setup.mesh))
        self.counters = meshes.placed(steps.counters(0, 0, 0), meshes.replicated(setup.mesh))
        # Acting and a running evaluation each have a copy of the parameters.
        of_player = sum(map(memory.device_bytes, ((self.params, self.params), held(self))))
        self._state_bytes = memory.device_bytes(actor) + setup.num_players * of_player

    def act(self, num_rows: int) -> UncompiledProgram:
        batch = batches.padding(self.setup.spec, self.setup.layout, num_rows, amends=self.setup.amends)
        placed = meshes.placed(batch, meshes.sharded(self.setup.mesh))
        return self.program("act", acting.make_act, (self.params, self.actor), (placed, self.counters), donate=(2,))

    def program(
        self,
        name: str,
        make: Make,
        state: tuple[Any, ...],
        others: tuple[Any, ...],
        *,
        donate: tuple[int, ...] = (),
        has_metrics: bool = False,
    ) -> UncompiledProgram:
        """Traces the function that `make` returns, for (seed, *state, *others).

        state: arguments that live between calls, parts of `train`, `actor` and `params`. donate: positions of
          arguments.
        has_metrics: whether the last result is metrics, which are joined into one array, so that fetching them is one
          copy.
        """
        function, arguments = make(self.setup), (SEED, *state, *others)
        metric_names = tuple(sorted(jax.eval_shape(function, *arguments)[-1])) if has_metrics else ()

        def named(*arguments: Any) -> Any:
            found = function(*arguments)
            if not has_metrics:
                return found
            return *found[:-1], jnp.stack([found[-1][name].astype(jnp.float32) for name in metric_names])

        named.__name__ = name  # the name appears in profiles and in the compilation cache
        options = meshes.compiler_options(self.setup.mesh)
        traced = jax.jit(named, donate_argnums=donate, compiler_options=options).trace(*arguments)
        elsewhere = self._state_bytes - memory.device_bytes(state)
        if self.setup.agent.samples:
            lower = [_BATCH_SIZES.get(name), "--replay.capacity"]
        else:  # the capacity follows from the number of slots
            lower = ["--batcher.max_batch" if name == "act" else "the agent's batch_size", "--replay.num_slots"]
        return UncompiledProgram(name, traced, elsewhere, " or ".join(filter(None, lower)), metric_names)

    def results(self, make: Make, state: tuple[Any, ...], others: tuple[Any, ...]) -> Any:
        """Returns the shapes of a function's results, spread over the devices; arguments are those of `program`."""
        shapes = jax.eval_shape(make(self.setup), SEED, *state, *others)
        return meshes.placed(shapes, meshes.sharded(self.setup.mesh))

    def drawn(
        self, make: Make, state: tuple[Any, ...], others: tuple[Any, ...]
    ) -> tuple[windowing.Windows, jax.ShapeDtypeStruct]:
        """Returns the shapes of a draw without frames, and of the frames at its places, spread over the devices."""
        windows: windowing.Windows = self.results(make, state, others)
        shape = (*windows.places.shape, *self.setup.spec.kept.observation_shape)
        sharding = meshes.sharded(self.setup.mesh)
        return windows, jax.ShapeDtypeStruct(shape, self.setup.spec.observation_dtype, sharding=sharding)
