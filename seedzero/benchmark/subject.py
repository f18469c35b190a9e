"""What is measured: a preset's agent, device state and batches, as a learner on this machine would have them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.agents import table as agents
from seedzero.config import config as config_lib
from seedzero.config import presets
from seedzero.core import errors, types
from seedzero.device import batch as batch_lib
from seedzero.device import steps
from seedzero.envs import registry
from seedzero.replay import rings as rings_lib

SHARDED = jax.sharding.PartitionSpec(steps.AXIS)
REPLICATED = jax.sharding.PartitionSpec()
ON_CPU, ON_ACCELERATOR = "cartpole", "atari"
EPISODE_LENGTH = 60
"""Steps of an episode in filled rings: some windows meet an end, most don't."""


class Subject(NamedTuple):
    """A preset on this machine.

    Attributes:
      preset: its name.
      config: with everything resolved.
      spec: of its environments.
      agent: what acts and learns.
      mesh: the devices.
      layout: of the slots.
      sizes: rows a shard of compiled acting batches, ascending.
      slot_length: rows of a ring.
    """

    preset: str
    config: config_lib.Config
    spec: types.EnvSpec
    agent: base.Agent
    mesh: jax.sharding.Mesh
    layout: batch_lib.Layout
    sizes: tuple[int, ...]
    slot_length: int

    @property
    def num_inserts(self) -> np.int32:
        """Training steps stored once the rings are full."""
        return np.int32(self.slot_length * self.layout.num_train)


def make(preset: str, settings: Mapping[str, config_lib.Value | str]) -> Subject:
    """Returns what a learner with this preset would run.

    Args:
      preset: its name; empty: the one that suits the device.
      settings: by SECTION.KEY, over the preset's.

    Raises:
      ConfigError: an unknown preset or setting.
      EnvironmentFailure: the environment can't be made, so its spec isn't known.
    """
    platform = jax.default_backend()
    preset = preset or (ON_CPU if platform == "cpu" else ON_ACCELERATOR)
    config = config_lib.override(presets.get(preset), settings)
    if config.replay.placement == "host":
        raise errors.ConfigError(
            "--replay.placement=host: what is measured here is a replay in device memory; leave it out"
        )
    machine = presets.Machine(platform, num_cores(), jax.local_device_count())
    config, _ = presets.resolve(config, preset=preset, explicit=settings.keys(), machine=machine)
    spec = _spec(config)
    agent = agents.make(config, spec, platform)
    mesh = steps.make_mesh(config.training.num_devices)
    layout, sizes = batch_lib.plan(config, mesh.devices.size)
    return Subject(
        preset=preset,
        config=config,
        spec=spec,
        agent=agent,
        mesh=mesh,
        layout=layout,
        sizes=sizes,
        slot_length=rings_lib.slot_length(
            config.replay.capacity, config.replay.num_slots, agent.stack + steps.RING_MARGIN
        ),
    )


def _spec(config: config_lib.Config) -> types.EnvSpec:
    env = registry.make(config.env.id, config.env, 1)
    try:
        return env.spec
    finally:
        env.close()


def num_cores() -> int:
    """Returns the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def facts(subject: Subject) -> dict[str, str | int]:
    """Returns what a figure depends on besides the code."""
    device = subject.mesh.devices.flat[0]
    return {
        "preset": subject.preset,
        "platform": device.platform,
        "device": device.device_kind,
        "devices": int(subject.mesh.devices.size),
        "cores": num_cores(),
        "jax": jax.__version__,
    }


def mapped(
    subject: Subject, function: Callable[..., Any], in_specs: Any, out_specs: Any, donate: tuple[int, ...] = ()
) -> Callable[..., Any]:
    """Returns the jitted function over the devices, as the learner runs its own."""
    return steps.over_devices(function, subject.mesh, in_specs, out_specs, donate=donate)


def filled_actor(subject: Subject) -> steps.ActorState:
    """Returns the acting state after a while: every row of every ring was written."""
    agent, length = subject.agent, subject.slot_length
    actor = steps.init_actor(agent, subject.spec, subject.layout, length, subject.mesh)

    def fill(rings: rings_lib.Rings) -> rings_lib.Rings:
        slot = jnp.arange(subject.layout.train_per_shard, dtype=jnp.int32)

        def write(time: jax.Array, rings: rings_lib.Rings) -> rings_lib.Rings:
            num_inserts = time * subject.layout.num_train
            return rings_lib.write(rings, slot, _row(rings, time + 7 * slot), num_inserts, agent.stack)

        filled: rings_lib.Rings = jax.lax.fori_loop(0, length, write, rings)
        return filled

    return actor._replace(rings=mapped(subject, fill, SHARDED, SHARDED, (0,))(actor.rings))


def _row(rings: rings_lib.Rings, step: jax.Array) -> rings_lib.Row:
    """Returns one row for each slot; `step` [S] int32 counts the environment's steps."""

    def full(ring: jax.Array, value: jax.Array) -> jax.Array:
        shape = (*value.shape, *ring.shape[2:])
        return jnp.broadcast_to(value.reshape(-1, *[1] * (len(shape) - 1)), shape).astype(ring.dtype)

    # 1 / A makes a policy of A actions; a number alone becomes 1.
    one = jnp.ones(step.shape)
    extras = {name: full(ring, one / max(1, *ring.shape[2:], 1)) for name, ring in rings.extras.items()}
    return rings_lib.Row(
        observation=full(rings.observation, step % 7),
        reward=one,
        terminated=step % EPISODE_LENGTH == EPISODE_LENGTH - 1,
        truncated=step < 0,
        first=step < 0,
        extras=extras,
    )


def batch(subject: Subject, num_rows: int) -> batch_lib.Batch:
    """Returns a full batch of `num_rows` rows a shard: training slots first, evaluation slots where those don't do."""
    local = np.minimum(np.arange(num_rows, dtype=np.int32), subject.layout.slots_per_shard)
    slot = np.tile(local, subject.layout.num_shards)
    empty = steps.example_batch(subject.spec, subject.layout, num_rows)
    return empty._replace(slot=slot, first=np.zeros(slot.shape, bool), explore=slot < subject.layout.train_per_shard)
