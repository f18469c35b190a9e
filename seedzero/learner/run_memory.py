"""Counts the bytes that a run's players, replay and checkpoints need, and decides where they go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax

from seedzero.checkpoints import checkpoint, checkpointers, trees
from seedzero.config import configs
from seedzero.core import types
from seedzero.device import host_frames, meshes, setups, states
from seedzero.league_play import snapshot_pools
from seedzero.learner import capacity


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
            capacity.check_queue(num_bytes, setup.mesh.devices.flat[0], setup.slot_length)
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
        capacity.check_players(load.num_players, of_player, load.needed, load.device)
        # otherwise windows have their frames
        may_be_host = here[0].learners is None and config.league.most_players == 1
        found.append(
            capacity.place(
                config.replay, load.needed, load.device, num_devices=load.num_devices, may_be_host=may_be_host
            )
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
