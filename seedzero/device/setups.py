"""A run's setup is what all device functions are made from: agent, environments, and each place's devices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from seedzero.agents import agent_table, base
from seedzero.config import configs, seats_config
from seedzero.core import errors, types
from seedzero.device import batches, meshes
from seedzero.replay import ring_store, sources


# Divides learning players between devices: a run's places each have their own devices, players and slots.
#
# They depend only on the numbers of devices and players, so every start of a run finds the same places.
class Placement(NamedTuple):
    """The numbers of a place's devices and players; main players have the lowest numbers."""

    devices: tuple[int, ...]
    players: tuple[int, ...]


class PlannedPlace(NamedTuple):
    """A place with its layout of slots and its sizes of acting batches, as in `batches.plan`."""

    placement: Placement
    layout: batches.Layout
    sizes: tuple[int, ...]


def deal_players(
    num_devices: int, num_players: int, divides: Callable[[int], bool] = lambda number: True
) -> list[Placement]:
    """Divides players and devices into places.

    If there are enough devices, each player has a place, and the first players get one of the remaining devices each.
    A place leaves devices unused if batches or groups cannot be divided by their number. With fewer devices than
    players, each device is a place, and players are dealt to them in turn.

    Args:
      num_devices: at least 1.
      num_players: at least 1; a single player gets all devices.
      divides: whether that number of devices can share a batch and a group of environments.
    """
    if num_players == 1:
        return [Placement(tuple(range(num_devices)), (0,))]
    if num_devices < num_players:
        return [Placement((device,), tuple(range(device, num_players, num_devices))) for device in range(num_devices)]
    least, num_more = divmod(num_devices, num_players)
    found, begin = list[Placement](), 0
    for player in range(num_players):
        number = next(number for number in range(least + (player < num_more), 0, -1) if number == 1 or divides(number))
        found.append(Placement(tuple(range(begin, begin + number)), (player,)))
        begin += number
    return found


def placement_of(config: configs.Config, num_devices: int) -> list[Placement]:
    """Returns a run's places on this many devices."""
    shared = (*config.agent.shared(config).values(), config.worker.envs_per_group)
    return deal_players(
        num_devices, config.league.most_players, lambda number: not any(size % number for size in shared)
    )


def plan_places(config: configs.Config, num_devices: int, *, has_seats: bool = False) -> list[PlannedPlace]:
    """Returns a run's places with their slots; groups of environments are dealt to the players in turn.

    A group's slots are spread over the devices of its place; slots after the last whole group belong to no place. The
    first place has the evaluation slots. Automatic values of the configuration must be resolved. Raises ConfigError if
    there are fewer groups than places need.
    """
    found = placement_of(config, num_devices)
    if len(found) == 1:
        layout, sizes = batches.plan(config, len(found[0].devices), has_seats=has_seats)
        return [PlannedPlace(found[0], layout, sizes)]
    num_slots, size = config.replay.num_slots, config.worker.envs_per_group
    # the player of each group, once all players learn
    players: np.ndarray = np.arange(num_slots // size) % config.league.most_players
    planned = list[PlannedPlace]()
    for placement in found:
        groups = np.flatnonzero(np.isin(players, placement.players))
        if not groups.size:
            raise errors.ConfigError(
                f"--replay.num_slots={num_slots} has room for {len(players)} groups of environments, and each of "
                f"{config.league.most_players} learning players on {num_devices} devices needs one; give "
                f"--replay.num_slots={config.league.most_players * size} or more"
            )
        own = dataclasses.replace(config, replay=dataclasses.replace(config.replay, num_slots=len(groups) * size))
        if planned:
            own = dataclasses.replace(own, evaluation=dataclasses.replace(own.evaluation, every_updates=0))
        layout, sizes = batches.plan(own, len(placement.devices), has_seats=has_seats)
        planned.append(
            PlannedPlace(placement, layout._replace(numbers=_numbers(num_slots, size, groups, layout)), sizes)
        )
    return planned


def _numbers(num_slots: int, size: int, groups: np.ndarray, layout: batches.Layout) -> np.ndarray:
    """Returns this place's numbers [S] of a run's slots, as in `Layout`. groups: the place's groups, [G] ascending."""
    per_shard = size // layout.num_shards
    shard, local = np.arange(size) % layout.num_shards, np.arange(size) // layout.num_shards
    here = shard * layout.train_per_shard + np.arange(len(groups))[:, None] * per_shard + local
    found = np.full(num_slots, -1)
    found[(groups[:, None] * size + np.arange(size)).reshape(-1)] = here.reshape(-1)
    return found


def places_text(found: Sequence[Placement], names: Sequence[str], num_devices: int) -> str:
    """Describes the places of the named players, or returns "" if all share the only place."""
    if len(found) == 1:
        return ""
    places = [
        f"{', '.join(names[player] for player in place.players if player < len(names)) or 'players to come'} on "
        f"device{'s' * (len(place.devices) > 1)} {', '.join(map(str, place.devices))}"
        for place in found
    ]
    rest = num_devices - sum(len(place.devices) for place in found)
    left = f"; {rest} left over, which batches and groups of environments don't divide by" if rest else ""
    return f"learning players: {'; '.join(places)}{left}"


def places_table(layouts: Sequence[batches.Layout]) -> np.ndarray:
    """Returns the place [S] of each training slot, or -1 if it has none. layouts: those of all places."""
    is_there = np.stack([layout.is_here for layout in layouts])
    return np.where(is_there.any(axis=0), is_there.argmax(axis=0), -1)


RING_MARGIN = 2
"""Rows of a ring besides its steps and the frame stack: the pending row, and the one that is overwritten next."""


class Setup(NamedTuple):
    """Settings that all device functions share."""

    agent: base.Agent
    spec: types.EnvSpec
    mesh: jax.sharding.Mesh  # devices that act and hold the rings
    layout: batches.Layout
    sizes: tuple[int, ...]  # sizes of acting batches in rows of a shard, ascending
    slot_length: int  # number of rows in a ring
    batch_size: int  # windows of one update, over all devices
    capacity: int  # how many training steps the replay keeps
    # With frames in the host's memory: whether windows are drawn before their update. With separate learning devices:
    # whether acting continues before an update's parameters and priorities are ready.
    ahead: bool = True
    learners: jax.sharding.Mesh | None = None  # devices that only learn; None: the acting devices learn
    num_players: int = 1  # players that learn here; several share the rings, in different slots
    num_hosts: int = 1  # hosts of the run; each has a mesh like this one, and they learn together
    # Whether acting calls have `Batch.played`, because scripted members of a league play whole games.
    amends: bool = False

    @property
    def prioritization(self) -> sources.Prioritization | None:
        """How strongly priorities count; None if sampling is uniform, or for a queue."""
        data = self.agent.data
        return data.prioritization if isinstance(data, sources.Replay) else None

    @property
    def learns_on(self) -> jax.sharding.Mesh:
        return self.learners or self.mesh

    @property
    def stored(self) -> dict[str, sources.Stored]:
        """The arrays in a stored row: the agent's, and versions, which are equal when acting writes them."""
        version = sources.Stored((), np.dtype(np.int32))
        return {**self.agent.stored, **dict.fromkeys(version_names(self.agent), version)}

    @property
    def max_rows(self) -> int:
        """Number of rows in the largest acting batch, over all devices."""
        return self.sizes[-1] * self.layout.num_shards


def make_places(config: configs.Config, spec: types.EnvSpec, mesh: jax.sharding.Mesh) -> tuple[Setup, ...]:
    """Returns the setup of each place of a run. Arguments and errors are those of `make`."""
    acting, _ = meshes.split(mesh, config.training.acting_devices)
    planned = plan_places(config, acting.devices.size, has_seats=bool(spec.seats))
    if len(planned) == 1:
        return (make(config, spec, mesh, planned[0]),)
    return tuple(make(config, spec, meshes.part(mesh, one.placement.devices), one) for one in planned)


def make(
    config: configs.Config,
    spec: types.EnvSpec,
    mesh: jax.sharding.Mesh,
    planned: PlannedPlace | None = None,
) -> Setup:
    """Returns the setup of a place on its devices, with automatic values resolved. planned: None for the only place.

    Raises ConfigError if the agent does not suit these environments or devices.
    """
    agent = agent_table.make(config, spec, mesh.devices.flat[0].platform)
    mesh, learners = meshes.split(mesh, config.training.acting_devices)
    if planned is None:
        (planned,) = plan_places(config, mesh.devices.size, has_seats=bool(spec.seats))
    layout, data, policies = planned.layout, agent.data, seats_config.policies(config, spec.seats)
    for name, kept in agent.stored.items():
        # After a cut (the slot lost its environment), an unroll begins at any row.
        stride = 1 if isinstance(data, sources.Queue) else data.stride
        # If windows have rows before them, one of these has a stored value.
        if stride % kept.every and not sources.num_before(data):
            raise errors.ConfigError(
                f"agent {config.run.agent} stores {name!r} in every {kept.every}th row, but its windows begin at "
                f"multiples of {stride}"
            )
    batch_size = data.batch_size if isinstance(data, sources.Queue) else config.replay.batch_size
    num_reanalysed = agent.reanalyse.batch_size if agent.reanalyse else 0
    num_learning = learners.devices.size if learners else 1
    for number, name, shares in (
        (batch_size, "windows", math.lcm(layout.num_shards, num_learning)),
        (num_reanalysed, "reanalysed rows", layout.num_shards),
    ):
        if number % shares:
            groups = f"{layout.num_shards}{f' and {num_learning}' if learners else ''}"
            raise errors.ConfigError(f"{number} {name} of one call can't be shared by {groups} devices")
    return Setup(
        agent=agent,
        spec=spec,
        mesh=mesh,
        layout=layout,
        sizes=planned.sizes,
        slot_length=_slot_length(agent, config.replay.capacity, config.replay.num_sharing),
        batch_size=batch_size,
        capacity=2**31 - 1 if isinstance(data, sources.Queue) else config.replay.capacity,
        ahead=not config.run.deterministic,
        learners=learners,
        num_players=len(set(policies)) or len(planned.placement.players),
        num_hosts=config.cluster.num_hosts,
        amends=bool(config.league.scripted) and spec.num_players == 2,
    )


def _slot_length(agent: base.Agent, capacity: int, num_envs: int) -> int:
    """Returns the number of rows in a ring.

    The rings of `num_envs` environments together have a replay's capacity.
    """
    margin = agent.num_kept + RING_MARGIN
    if isinstance(agent.data, sources.Queue):
        # A slot waits once it has `max_lag` complete unrolls; the rows of one more call may follow.
        return ring_store.slot_length((agent.data.max_lag + 1) * agent.data.length, 1, margin)
    return ring_store.slot_length(capacity, num_envs, margin, agent.ring_multiple)


def version_names(agent: base.Agent) -> tuple[str, ...]:
    """Returns the names of stored arrays that contain versions."""
    return (ring_store.VERSION,) if agent.reanalyse is None else (ring_store.VERSION, ring_store.TARGET_VERSION)
