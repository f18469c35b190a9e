"""Whether the replay fits: its bytes against the memory that is free."""

from __future__ import annotations

import pathlib

import jax

from seedzero.core import errors

_GIB = 2**30


def check(replay_bytes: int, extra_bytes: int, device: jax.Device, *, capacity: int) -> str:
    """Returns a line for the user about the replay's size.

    Args:
      replay_bytes: what the rings of one device take.
      extra_bytes: what a checkpoint takes beside them while it is written.
      device: one of the devices that hold them.
      capacity: replay.capacity, for the message.

    Raises:
      CapacityError: the device has not enough free memory.
    """
    needed = replay_bytes + extra_bytes
    free = free_bytes(device)
    if free is not None and needed > free:
        fitting = int(capacity * free / needed * 0.9)
        raise errors.CapacityError(
            f"replay.capacity={capacity} needs {needed / _GIB:.2f} GiB on {device.platform} "
            f"({replay_bytes / _GIB:.2f} GiB rings, {extra_bytes / _GIB:.2f} GiB for checkpoints) "
            f"and {free / _GIB:.2f} GiB are free; --replay.capacity={fitting} would fit"
        )
    left = "" if free is None else f" of {free / _GIB:.1f} GiB free"
    return f"replay: {capacity} steps in {replay_bytes / _GIB:.2f} GiB{left} on each device"


def free_bytes(device: jax.Device) -> int | None:
    """Returns free memory of a device in bytes; the machine's for a CPU; None where it cannot be told."""
    if device.platform == "cpu":
        return _free_host_bytes()
    stats = device.memory_stats()
    if not stats or "bytes_limit" not in stats:
        return None
    return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))


def _free_host_bytes() -> int | None:
    """Returns what the kernel says is available, or less where a control group sets a limit."""
    meminfo = pathlib.Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) * 1024
    group = pathlib.Path("/sys/fs/cgroup")
    limit, used = group / "memory.max", group / "memory.current"
    if limit.exists() and used.exists() and (text := limit.read_text().strip()) != "max":
        available = min(available, int(text) - int(used.read_text()))
    return available
