"""Checks whether a program fits into its devices' memory, by the compiler's own analysis with padded layouts."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax

from seedzero.core import errors
from seedzero.device import slow_compile

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
        with slow_compile.without_alarm():
            compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = " ".join(str(error).split())[:_MOST_REASON]
        raise errors.CapacityError(f"{name} does not fit into a device's memory: {reason}; lower {lower}") from error
    if limit is not None and compiled.memory_analysis() is not None:  # some compilers have no analysis
        check(name, needs(compiled, elsewhere), limit, lower)
    return compiled


def needs(compiled: jax.stages.Compiled, elsewhere: int = 0) -> ProgramMemory:
    found: Any = compiled.memory_analysis()
    results = found.output_size_in_bytes - found.alias_size_in_bytes
    return ProgramMemory(found.argument_size_in_bytes, found.temp_size_in_bytes + results, elsewhere)


def check(name: str, needs: ProgramMemory, limit: int, lower: str) -> None:
    """Raises CapacityError if a program needs more than the limit; arguments are those of `compile_within`."""
    if sum(needs) > limit:
        raise errors.CapacityError(
            f"{name} needs {sum(needs) / _GIB:.2f} GiB on each device: {needs.arguments / _GIB:.2f} GiB for its "
            f"arguments, {needs.besides / _GIB:.2f} GiB for its own work, {needs.elsewhere / _GIB:.2f} GiB of other "
            f"state; the device has {limit / _GIB:.2f} GiB; lower {lower}"
        )
