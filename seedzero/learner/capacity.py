"""Decides where the replay goes, comparing its bytes with the free memory."""

from __future__ import annotations

import pathlib

import jax

from seedzero.checkpoints import checkpoint
from seedzero.config import sections
from seedzero.core import control_groups, errors

_GIB = 2**30
_SPARE = 0.2
"""Share of the free memory that `auto` leaves for everything that follows: parameters, activations, XLA's own."""


def place(
    replay: sections.ReplayConfig,
    needed: checkpoint.Needed,
    device: jax.Device,
    *,
    num_devices: int,
    may_be_host: bool = True,
) -> tuple[bool, str]:
    """Returns whether the host keeps the observations, and a message about the replay's size.

    Args:
      replay: the settings. On a CPU both places are the same memory, so placement auto is device.
      needed: the bytes of the replay and its checkpoints.
      device: one of `num_devices` that hold equal parts of the replay.
      may_be_host: whether the settings allow placement host.

    Raises:
      CapacityError: there is not enough free memory.
    """
    placement, free, is_host = replay.placement, free_bytes(device), device.platform == "cpu"
    rings = (needed.frames + needed.rest) // num_devices
    copies = (needed.frame_copies + needed.rest_copies) // num_devices + needed.state_copies
    fits_well = free is None or rings + copies <= (1 - _SPARE) * free
    if not may_be_host or placement == "device" or (placement == "auto" and (fits_well or is_host)):
        host = (
            ""
            if is_host or not may_be_host
            else ", and --replay.placement=host keeps observations in the host's memory"
        )
        _check(device.platform, rings, copies, free, replay, host)
        return False, f"{_content(replay)} in {rings / _GIB:.2f} GiB{_left(free)} on each device"
    rings, copies = needed.rest // num_devices, needed.rest_copies // num_devices + needed.state_copies
    _check(f"{device.platform}, besides the observations,", rings, copies, free, replay)
    # A CPU's devices use the host's memory as well.
    also, also_copies = (rings * num_devices, copies * num_devices) if is_host else (0, 0)
    free_host = _free_host_bytes()
    _check("the host", needed.frames + also, needed.frame_copies + also_copies, free_host, replay)
    return True, (
        f"{_content(replay)}, their observations in {needed.frames / _GIB:.2f} GiB{_left(free_host)} of the "
        f"host's memory, the rest in {rings / _GIB:.2f} GiB{_left(free)} on each device"
    )


def check_players(number: int, num_bytes: int, needed: checkpoint.Needed, device: jax.Device) -> None:
    """Raises CapacityError if several learning players, with their bytes each, do not fit beside their replay.

    needed: as in `place`.
    """
    free, others = free_bytes(device), sum(needed)
    if number > 1 and free is not None and number * num_bytes + others > free:
        fitting = max(0, int((free - others) // num_bytes))
        raise errors.CapacityError(
            f"{number} learning players need {num_bytes / _GIB:.2f} GiB each on {device.platform} beside "
            f"{others / _GIB:.2f} GiB for replay and checkpoints, and {free / _GIB:.2f} GiB are free: {fitting} would "
            "fit; lower --league.main_players, --league.main_exploiters, --league.league_exploiters, "
            "--league.max_players, the network, or --replay.capacity"
        )


def check_queue(rings_bytes: int, device: jax.Device, slot_length: int) -> None:
    """Raises CapacityError if a queue's rings, with their bytes on each device, do not fit."""
    free = free_bytes(device)
    if free is not None and rings_bytes > free:
        raise errors.CapacityError(
            f"the agent's queue needs {rings_bytes / _GIB:.2f} GiB on {device.platform} and {free / _GIB:.2f} GiB are "
            f"free: {slot_length} rows for each of replay.num_slots environments; lower the length of the agent's "
            "unrolls, how many may wait, or --replay.num_slots"
        )


def _content(replay: sections.ReplayConfig) -> str:
    room = replay.num_slots - replay.num_sharing
    also = f" (and room for {room} more)" if room else ""
    return f"replay: {replay.capacity} steps of {replay.num_sharing} environments{also}"


def _left(free: int | None) -> str:
    return "" if free is None else f" of {free / _GIB:.1f} GiB free"


def _check(
    where: str, rings: int, copies: int, free: int | None, replay: sections.ReplayConfig, alternative: str = ""
) -> None:
    if free is None or rings + copies <= free:
        return
    # Copies count in full, because those of the training state, and of large replays, do not shrink with the capacity.
    fitting, room = int(replay.capacity * (free - copies) / rings * 0.9), replay.num_slots - replay.num_sharing
    advice = f"--replay.capacity={fitting} would fit" if fitting > 0 else "lower --replay.capacity, or the network"
    if room:
        alternative += (
            f", and --replay.num_slots={replay.num_sharing} leaves out the room for {room} more environments"
        )
    raise errors.CapacityError(
        f"replay.capacity={replay.capacity} needs {(rings + copies) / _GIB:.2f} GiB on {where} "
        f"({rings / _GIB:.2f} GiB rings, {copies / _GIB:.2f} GiB for checkpoints) "
        f"and {free / _GIB:.2f} GiB are free; {advice}{alternative}"
    )


def free_bytes(device: jax.Device) -> int | None:
    """Returns a device's free memory in bytes, the machine's for a CPU; None if it is unknown."""
    if device.platform == "cpu":
        return _free_host_bytes()
    stats = device.memory_stats()
    if not stats or "bytes_limit" not in stats:
        return None
    return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))


def _free_host_bytes(root: pathlib.Path = pathlib.Path("/")) -> int | None:
    """Returns the memory that the kernel has available, or less under a control group's limit.

    root: the root of the file system.
    """
    meminfo = root / "proc/meminfo"
    if not meminfo.exists():
        return None
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) * 1024
    below_limit = control_groups.free_bytes(root)
    return available if below_limit is None else min(available, below_limit)
