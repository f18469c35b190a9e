"""Traces a run's device functions for compilation, and checks whether a program fits into its devices' memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.core import errors
from seedzero.device import acting, batches, compilation_cache, meshes, setups, steps
from seedzero.replay import windowing

# Checks whether a program fits into its devices' memory, by the compiler's own analysis with padded layouts.
_GIB = 2**30
_MOST_REASON = 400
"""How much of a compiler's message is shown: it begins with the reason and continues with a list of buffers."""


class ProgramMemory(NamedTuple):
    """Bytes on each device while a program runs."""

    arguments: int  # states and batches that it takes
    besides: int  # intermediate results, and results that do not reuse an argument's memory
    elsewhere: int  # state on the device that is not an argument


def device_bytes(tree: Any) -> int:
    """Returns a tree's unpadded bytes on one device; shapes, dtypes and shardings are enough."""
    return sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def limit_bytes(device: jax.Device) -> int | None:
    """Returns an accelerator's memory in bytes, or None for a CPU or if it is unknown."""
    if device.platform == "cpu":
        return None
    stats = device.memory_stats()
    return None if not stats else stats.get("bytes_limit")


def used_bytes() -> int | None:
    """Returns the memory in use on all devices of this process, or None for CPUs or if it is unknown."""
    stats = [device.memory_stats() for device in jax.local_devices()]
    found = [one["bytes_in_use"] for one in stats if one and "bytes_in_use" in one]
    return sum(found) if found else None


def compile_within(name: str, lowered: jax.stages.Lowered, elsewhere: int, limit: int | None, lower: str) -> Any:
    """Compiles a program that has to fit into the device's memory.

    Args:
      elsewhere: as in `ProgramMemory`.
      limit: bytes of a device's memory; None: the program is not checked.
      lower: the settings to lower if it does not fit, for messages.

    Raises:
      CapacityError: the compiler rejects it for lack of memory, or it needs more than `limit`.
    """
    try:
        with compilation_cache.without_alarm():
            compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = " ".join(str(error).split())[:_MOST_REASON]
        raise errors.CapacityError(f"{name} does not fit into a device's memory: {reason}; lower {lower}") from error
    if limit is not None and compiled.memory_analysis() is not None:  # some compilers have no analysis
        check_memory(name, memory_needs(compiled, elsewhere), limit, lower)
    return compiled


def memory_needs(compiled: jax.stages.Compiled, elsewhere: int = 0) -> ProgramMemory:
    found: Any = compiled.memory_analysis()
    results = found.output_size_in_bytes - found.alias_size_in_bytes
    return ProgramMemory(found.argument_size_in_bytes, found.temp_size_in_bytes + results, elsewhere)


def check_memory(name: str, needs: ProgramMemory, limit: int, lower: str) -> None:
    """Raises CapacityError if a program needs more than the limit; arguments are those of `compile_within`."""
    if sum(needs) > limit:
        raise errors.CapacityError(
            f"{name} needs {sum(needs) / _GIB:.2f} GiB on each device: {needs.arguments / _GIB:.2f} GiB for its "
            f"arguments, {needs.besides / _GIB:.2f} GiB for its own work, {needs.elsewhere / _GIB:.2f} GiB of other "
            f"state; the device has {limit / _GIB:.2f} GiB; lower {lower}"
        )


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
        return compile_within(self.name, self.function.lower(), self.elsewhere, limit, self.lower)


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
        of_player = sum(map(device_bytes, ((self.params, self.params), held(self))))
        self._state_bytes = device_bytes(actor) + setup.num_players * of_player

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
        elsewhere = self._state_bytes - device_bytes(state)
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
