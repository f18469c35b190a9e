"""Makes what is measured, a preset's agent, device state and batches, and times it in alternating slices."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import muzero_model
from seedzero.config import configs, machines, options, presets
from seedzero.core import errors, types
from seedzero.device import acting, batches, compilation_cache, meshes, setups, states
from seedzero.envs import registry
from seedzero.replay import ring_store

# Times several programs in short alternating slices, so that other load on the machine affects all equally.
NUM_ROUNDS = 21
MIN_ROUNDS = 3
"""Number of rounds for programs that are too slow for NUM_ROUNDS."""

Program = Callable[[], Any]
"""Dispatches one call and returns arrays to wait for, which later calls must not donate."""

Slices = dict[str, list[float]]
"""Seconds that a call of each program takes, one number for each round."""

Row = dict[str, Any]


def carrying(function: Callable[[Any, int], tuple[Any, Any]], state: Any) -> Program:
    """Returns a program of (state, number of the call) -> (state, arrays to wait for) that donates its state."""
    calls = itertools.count()

    def call() -> Any:
        nonlocal state
        state, found = function(state, next(calls))
        return found

    return call


def interleave(programs: Mapping[str, Program], *, seconds: float) -> Slices:
    """Measures programs in turn for this many seconds in total, without compilation; slow programs take longer."""
    slice_seconds = seconds / (NUM_ROUNDS * len(programs))
    counts = {name: _count(program, slice_seconds) for name, program in programs.items()}
    slices: Slices = {name: [] for name in programs}
    begin = time.perf_counter()
    for index in range(NUM_ROUNDS):
        if index >= MIN_ROUNDS and time.perf_counter() - begin > seconds:
            break
        for name in list(programs)[:: 1 if index % 2 else -1]:
            slices[name].append(_seconds_a_call(programs[name], counts[name]))
    return slices


def _count(program: Program, slice_seconds: float) -> int:
    """Returns the number of calls in a slice, measured after compilation."""
    _seconds_a_call(program, 1)
    if _seconds_a_call(program, 1) > slice_seconds:
        return 1
    return max(1, round(slice_seconds / _seconds_a_call(program, 2)))


def _seconds_a_call(program: Program, count: int) -> float:
    """Runs `count` calls with two in flight, as the learner does."""
    begin = time.perf_counter()
    previous = program()
    for _ in range(count - 1):
        newest = program()
        jax.block_until_ready(previous)
        previous = newest
    jax.block_until_ready(previous)
    return (time.perf_counter() - begin) / count


def milliseconds(slices: Slices, name: str) -> float:
    """Returns the median of a program's slices."""
    return 1e3 * statistics.median(slices[name])


def ratio(slices: Slices, name: str, peer: str) -> float:
    """Returns a program's speed relative to its peer's, as the median over the rounds."""
    return statistics.median(theirs / ours for ours, theirs in zip(slices[name], slices[peer], strict=True))


def against(slices: Slices, name: str, *peers: str) -> Row:
    """Returns a row's figures: the peers' milliseconds, then the ratios to the peers."""
    times = {f"{peer}_milliseconds": milliseconds(slices, peer) for peer in peers}
    return times | {f"ratio_to_{peer}": ratio(slices, name, peer) for peer in peers}


Settings = Mapping[str, options.Value | str]
"""Settings by SECTION.KEY that override the preset's."""

ON_CPU, ON_ACCELERATOR = "cartpole", "atari"
EPISODE_LENGTH = 60
"""Length of episodes in filled rings: some windows contain an end, most do not."""


class Subject(NamedTuple):
    """A preset as in a learner: its name, the resolved configuration, and the setup of device functions."""

    preset: str
    config: configs.Config
    setup: setups.Setup

    @property
    def seed(self) -> np.int32:
        """The run's seed, as device functions take it."""
        return np.int32(self.config.run.seed)

    @property
    def num_inserts(self) -> np.int32:
        """Training steps that are stored when the rings are full."""
        return np.int32(self.setup.slot_length * self.setup.layout.num_train)

    @property
    def parts(self) -> muzero_model.Parts:
        """The agent's network and optimizer."""
        return muzero_model.make_parts(self.config, self.setup.spec, self.setup.mesh.devices.flat[0].platform)


def make(preset: str, settings: Settings, agents: Sequence[str] = ("muzero",)) -> Subject:
    """Returns the subject for this preset; "" is cartpole on a CPU, and atari on an accelerator.

    agents: those that can be measured, the default first.

    Raises:
      ConfigError: an unknown preset or setting.
      EnvironmentFailure: the environment, and so its spec, can't be made.
    """
    platform = compilation_cache.platform()
    preset = preset or (ON_CPU if platform == "cpu" else ON_ACCELERATOR)
    config = configs.override(presets.get(preset, str(settings.get("run.agent", agents[0]))), settings)
    if config.replay.placement == "host":
        raise errors.ConfigError(
            "--replay.placement=host: this benchmark measures a replay in device memory; omit the flag"
        )
    if config.training.acting_devices:
        raise errors.ConfigError(
            f"--training.acting_devices={config.training.acting_devices}: this benchmark measures devices that all do "
            "the same; omit the flag"
        )
    machine = machines.Machine(platform, machines.num_cores(), jax.local_device_count())
    if config.run.agent not in agents:
        raise errors.ConfigError(f"--agent={config.run.agent}: {_alone(agents)} measured here; leave it out")
    config, _ = machines.resolve(config, preset=preset, explicit=settings.keys(), machine=machine)
    mesh, spec = meshes.make(config.training.num_devices), registry.spec(config.env)
    if spec.seats and not config.agent.PLAYS_SEATS:
        able = [agent for agent in agents if configs.of_agent(agent).agent.PLAYS_SEATS]
        raise errors.ConfigError(
            f"--preset={preset}: agent {config.run.agent} does not play the seats of --env={config.env.id}, and "
            f"{_alone(agents)} measured here; give {f'--agent={able[0]}' if able else 'another preset'}"
        )
    return Subject(preset, config, setups.make(config, spec, mesh))


def _alone(agents: Sequence[str]) -> str:
    return "MuZero alone is" if agents == ("muzero",) else f"{' and '.join(agents)} alone are"


def facts(subject: Subject) -> dict[str, str | int]:
    """Returns what else a figure depends on besides the code."""
    device = subject.setup.mesh.devices.flat[0]
    return {
        "preset": subject.preset,
        "platform": device.platform,
        "device": device.device_kind,
        "devices": int(subject.setup.mesh.devices.size),
        "cores": machines.num_cores(),
        "jax": jax.__version__,
    }


def filled_actor(subject: Subject) -> acting.ActorState:
    setup = subject.setup
    actor = states.init_actor(setup)

    def fill(rings: ring_store.Rings) -> ring_store.Rings:
        slot = jnp.arange(setup.layout.train_per_shard, dtype=jnp.int32)

        def write(time: jax.Array, rings: ring_store.Rings) -> ring_store.Rings:
            num_inserts = time * setup.layout.num_train
            return ring_store.write(rings, slot, row(rings, time + 7 * slot), num_inserts, setup.agent.num_kept)

        filled: ring_store.Rings = jax.lax.fori_loop(0, setup.slot_length, write, rings)
        return filled

    filled = meshes.over_devices(fill, setup.mesh, meshes.SHARDED, meshes.SHARDED, donate=(0,))
    return actor._replace(rings=filled(actor.rings))


def row(rings: ring_store.Rings, step: jax.Array) -> ring_store.Row:
    """Returns one row for each slot. step: [S] int32, the number of the environment's steps."""

    def full(ring: jax.Array, value: jax.Array) -> jax.Array:
        shape = (*value.shape, *ring.shape[2:])
        return jnp.broadcast_to(value.reshape(-1, *[1] * (len(shape) - 1)), shape).astype(ring.dtype)

    # 1 / A is a uniform policy over A actions; a scalar becomes 1.
    one = jnp.ones(step.shape)
    stored = {name: full(ring, one / max(1, *ring.shape[2:], 1)) for name, ring in rings.stored.items()}
    return ring_store.Row(
        observation=full(rings.observation, step % 7),
        reward=one,
        terminated=step % EPISODE_LENGTH == EPISODE_LENGTH - 1,
        truncated=step < 0,
        first=step < 0,
        stored=stored,
    )


def batch(subject: Subject, num_rows: int) -> batches.Batch:
    """Returns a full batch of `num_rows` rows on each shard: training slots first, then evaluation slots."""
    local = np.minimum(np.arange(num_rows, dtype=np.int32), subject.setup.layout.slots_per_shard)
    slot = np.tile(local, subject.setup.layout.num_shards)
    empty = batches.padding(subject.setup.spec, subject.setup.layout, num_rows)
    action_mode = np.where(slot < subject.setup.layout.train_per_shard, types.EXPLORE, types.GREEDY)
    return empty._replace(slot=slot, ring=slot, first=np.zeros(slot.shape, bool), action_mode=action_mode)
