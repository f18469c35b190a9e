"""Combines a run's agent, environments and devices into the one argument that all device functions are made from."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import numpy as np

from seedzero.agents import agent_table, base
from seedzero.config import configs, seats_config
from seedzero.core import errors, types
from seedzero.device import batches, meshes, placements
from seedzero.replay import ring_store, sources

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
    planned = placements.plan(config, acting.devices.size, has_seats=bool(spec.seats))
    if len(planned) == 1:
        return (make(config, spec, mesh, planned[0]),)
    return tuple(make(config, spec, meshes.part(mesh, one.placement.devices), one) for one in planned)


def make(
    config: configs.Config,
    spec: types.EnvSpec,
    mesh: jax.sharding.Mesh,
    planned: placements.PlannedPlace | None = None,
) -> Setup:
    """Returns the setup of a place on its devices, with automatic values resolved. planned: None for the only place.

    Raises ConfigError if the agent does not suit these environments or devices.
    """
    agent = agent_table.make(config, spec, mesh.devices.flat[0].platform)
    mesh, learners = meshes.split(mesh, config.training.acting_devices)
    if planned is None:
        (planned,) = placements.plan(config, mesh.devices.size, has_seats=bool(spec.seats))
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
