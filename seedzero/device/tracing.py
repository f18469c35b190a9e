"""A run's device functions before compilation: traced for present or absent devices."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.device import acting, memory, steps
from seedzero.device import batch as batches
from seedzero.device import mesh as meshes
from seedzero.device import setup as setups
from seedzero.replay import windows as windowing

Program: TypeAlias = Callable[..., Any]
"""A compiled function; donates some of its arguments."""
Bundle: TypeAlias = Mapping[str, Program]
"""The programs of an update or a refresh, by the names of `Strategy`."""

_BATCH_SIZES = {
    "act": "--batcher.max_batch",
    "update": "--replay.batch_size",
    "learn": "--replay.batch_size",
    "refresh": "--reanalyse.batch_size",
    "renew": "--reanalyse.batch_size",
}
"""Settings of the batch sizes of a sampling agent's programs, for messages."""


class UncompiledProgram(NamedTuple):
    """A traced device function."""

    name: str
    function: jax.stages.Traced  # its first argument is the run's seed
    seed: int = 0
    elsewhere: int = 0  # bytes of state on each device beside its arguments
    lower: str = ""  # the settings to lower where it does not fit, for messages
    metric_names: tuple[str, ...] = ()  # of its last result, if that is metrics

    def compile(self, limit: int | None = None) -> Any:
        """Returns the program. Raises CapacityError for a program of more than `limit` bytes on each device."""
        return memory.compile_within(self.name, self.function.lower(), self.elsewhere, limit, self.lower)

    def seeded(self, limit: int | None = None) -> Program:
        """Returns the program without the first argument; raises as `compile`."""
        return functools.partial(self.compile(limit), np.int32(self.seed))


Traces: TypeAlias = Mapping[str, Callable[[], UncompiledProgram]]
"""Functions that trace a program each, by its name."""


@dataclasses.dataclass(eq=False)
class ProgramTracer:
    """Traces each device function of a run for the run's devices.

    The seed is an argument of each, and no constant in it, so that runs of other seeds find the program in the cache.

    train, actor, params, feed, counters, scalar: shapes, dtypes and shardings of arguments; with frames on the host,
    `actor` has none. held: `Strategy.held`.
    """

    setup: setups.Setup
    train: base.TrainState
    actor: acting.ActorState
    held: dataclasses.InitVar[Callable[[ProgramTracer], Any]]

    def __post_init__(self, held: Callable[[ProgramTracer], Any]) -> None:
        setup, train, actor = self.setup, self.train, self.actor
        self.params = meshes.placed(jax.eval_shape(setup.agent.acting, train), meshes.replicated(setup.mesh))
        self.feed = meshes.placed(steps.example_feed(setup), steps.feed_sharding(setup))
        self.scalar = jax.ShapeDtypeStruct((), np.int32, sharding=meshes.replicated(setup.mesh))
        self.counters = steps.Counters(self.scalar, self.scalar, self.scalar)
        self._state = {id(leaf): leaf for leaf in jax.tree.leaves((train, actor, self.params))}
        # Acting and a running evaluation have copies of the parameters.
        self._state_bytes = sum(map(memory.device_bytes, ((actor, self.params, self.params), held(self))))

    def act(self, num_rows: int) -> UncompiledProgram:
        """Traces acting on so many rows a device."""
        batch = batches.padding(self.setup.spec, self.setup.layout, num_rows)
        placed = meshes.placed(batch, meshes.sharded(self.setup.mesh))
        return self.program("act", acting.make_act, (self.params, self.actor, placed, self.counters), (1,))

    def program(
        self,
        name: str,
        make: Callable[[setups.Setup], Callable[..., Any]],
        arguments: tuple[Any, ...],
        donate: tuple[int, ...] = (),
        *,
        has_metrics: bool = False,
    ) -> UncompiledProgram:
        """Traces the function returned by `make`, donating the arguments at some positions.

        has_metrics: the last result is metrics, which become one array: fetching them is one copy.
        """
        metric_names: list[str] = []

        def seeded(seed: Any, *arguments: Any) -> Any:
            found = make(self.setup._replace(seed=seed))(*arguments)
            if not has_metrics:
                return found
            metric_names[:] = sorted(found[-1])
            return (*found[:-1], _stacked(found[-1], metric_names))

        seeded.__name__ = name  # profiles and the compilation cache show it
        function = jax.jit(seeded, donate_argnums=[1 + position for position in donate])
        given = [leaf for leaf in jax.tree.leaves(arguments) if id(leaf) in self._state]  # batches are no state
        elsewhere = self._state_bytes - memory.device_bytes(given)
        if self.setup.agent.samples:
            lower = [_BATCH_SIZES.get(name), "--replay.capacity"]
        else:  # its capacity follows from its slots
            lower = ["--batcher.max_batch" if name == "act" else "the agent's batch_size", "--replay.num_slots"]
        traced = function.trace(jax.ShapeDtypeStruct((), np.int32), *arguments)
        lowered = " or ".join(filter(None, lower))
        return UncompiledProgram(name, traced, self.setup.seed, elsewhere, lowered, tuple(metric_names))

    def drawn(self, draw: Program, *arguments: Any) -> tuple[windowing.Windows, jax.ShapeDtypeStruct]:
        """Returns the shapes of a draw without frames, and of the frames at its places, spread over the devices."""
        sharding = meshes.sharded(self.setup.mesh)
        windows = meshes.placed(jax.eval_shape(draw, *arguments), sharding)
        shape = (*windows.places.shape, *self.setup.spec.observation_shape)
        return windows, jax.ShapeDtypeStruct(shape, self.setup.spec.observation_dtype, sharding=sharding)


def _stacked(metrics: base.Metrics, names: Sequence[str]) -> jax.Array:
    return jnp.stack([metrics[name].astype(jnp.float32) for name in names])
