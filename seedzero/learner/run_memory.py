"""Counts the bytes that a run's players, replay and checkpoints need, and decides where they go."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import jax

from seedzero.config import configs, sections
from seedzero.core import control_groups, errors, types
from seedzero.device import host_frames, meshes, setups, states
from seedzero.learner.league_play import snapshot_pools
from seedzero.storage.checkpoints import checkpoint, checkpointers, trees

# Decides where the replay goes, comparing its bytes with the free memory.
_GIB = 2**30
_SPARE = 0.2
"""Share of the free memory that `auto` leaves for everything that follows: parameters, activations, XLA's own."""


def fit_replay(
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
            f"{others / _GIB:.2f} GiB for replay and checkpoints; {free / _GIB:.2f} GiB are free, so {fitting} would "
            "fit; lower --league.main_players, --league.main_exploiters or --replay.capacity"
        )


def check_queue(rings_bytes: int, device: jax.Device, slot_length: int) -> None:
    """Raises CapacityError if a queue's rings, with their bytes on each device, do not fit."""
    free = free_bytes(device)
    if free is not None and rings_bytes > free:
        raise errors.CapacityError(
            f"the agent's queue of {slot_length} rows per environment needs {rings_bytes / _GIB:.2f} GiB on "
            f"{device.platform}, and {free / _GIB:.2f} GiB are free; lower the length of unrolls, how many may wait, "
            "or --replay.num_slots"
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


def check(config: configs.Config, spec: types.EnvSpec) -> None:
    """Raises the ConfigError or CapacityError of `build.device_loop_for` for these environments; allocates nothing."""
    here = setups.make_places(config, spec, meshes.make(config.training.num_devices))
    place_replay(config, here, [states.Shapes.of(setup) for setup in here])


def place_replay(
    config: configs.Config, here: Sequence[setups.Setup], shapes: Sequence[states.Shapes]
) -> tuple[bool, bool, str]:
    """Returns whether checkpoints have the replay, whether the host keeps its frames, and a message about its size."""
    agent = here[0].agent
    if not agent.samples:  # the rings of a queue have nothing that a resumed run could use
        for setup, shape in zip(here, shapes, strict=True):
            num_bytes = trees.num_bytes(shape.actor.rings) // setup.layout.num_shards
            check_queue(num_bytes, setup.mesh.devices.flat[0], setup.slot_length)
        return False, False, ""
    is_small = checkpoint.saves_replay(config.checkpoint, sum(trees.num_bytes(shape.actor.rings) for shape in shapes))
    is_saved, train = config.run.deterministic or is_small, shapes[0].train
    loads = [_load(config, here[at], shape, is_saved=is_saved, is_first=at == 0) for at, shape in enumerate(shapes)]
    if len(loads) > 1 and here[0].mesh.devices.flat[0].platform == "cpu":  # they share the memory of the host
        needed = checkpoint.Needed(*map(sum, zip(*(load.needed for load in loads), strict=True)))
        loads = [loads[0]._replace(num_players=sum(load.num_players for load in loads), needed=needed, num_devices=1)]
    found = []
    for load in loads:
        of_player = trees.num_bytes(train) + 2 * trees.num_bytes(agent.acting(train))  # copies act and evaluate
        check_players(load.num_players, of_player, load.needed, load.device)
        # otherwise windows have their frames
        may_be_host = here[0].learners is None and config.league.most_players == 1
        found.append(
            fit_replay(config.replay, load.needed, load.device, num_devices=load.num_devices, may_be_host=may_be_host)
        )
    on_host, text = found[0]
    if config.checkpoint.replay == "auto" and not is_saved:
        text += "; checkpoints leave it out and a resume fills it again (--checkpoint.replay=on saves it)"
    if on_host:
        host_frames.check_length(here[0].slot_length, agent.num_kept, ahead=here[0].ahead)
    return is_saved, on_host, text


class _Load(NamedTuple):
    """The load of a place: most learning players, bytes over all devices, the first device, and their number."""

    num_players: int
    needed: checkpoint.Needed
    device: jax.Device
    num_devices: int


def _load(
    config: configs.Config, setup: setups.Setup, shape: states.Shapes, *, is_saved: bool, is_first: bool
) -> _Load:
    num_players, device = setup.num_players, setup.mesh.devices.flat[0]
    parts = dict.fromkeys(map(str, range(num_players)), states.parts(setup.agent, shape.train))
    needed = checkpoint.needed_bytes(checkpoint.by_player(parts), shape.actor.rings, is_saved=is_saved)
    if config.league.on:
        # Frozen players, including those that wait for the disk, and copies of players that learn in other places.
        most = snapshot_pools.most_on_devices(config, num_players) + checkpointers.MAX_FREEZES
        most += config.league.most_players - num_players
        if device.platform == "cpu" and is_first:  # all places share one cache
            most += snapshot_pools.most_on_host(config)
        copies = needed.state_copies + most * trees.num_bytes(setup.agent.acting(shape.train))
        needed = needed._replace(state_copies=copies)
    return _Load(num_players, needed, device, setup.layout.num_shards)
