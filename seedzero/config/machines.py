"""Resolves settings that depend on the machine: automatic values, and a preset's values on a CPU."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pathlib
import platform
from collections.abc import Mapping, Set
from typing import NamedTuple

from seedzero.config import combinations, configs, options, presets, seats_config
from seedzero.core import control_groups, env_ids, errors, types

MAX_AUTO_BATCH = 1024
UNKNOWN_WORKERS = 4
"""How many workers to expect if all come from elsewhere and none is announced."""


def num_cores() -> int:
    """Returns the number of cores that the process may use: its own, or a container's share of time (`--cpus`)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, control_groups.num_cores() or cores)


def processor() -> str:
    """Returns the name of this machine's CPU."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


class Machine(NamedTuple):
    """The facts that automatic values depend on. platform: "cpu", "gpu" or "tpu"; num_devices: local devices."""

    platform: str
    num_cores: int
    num_devices: int


def resolve(
    config: configs.Config, *, preset: str, explicit: Set[str], machine: Machine, spec: types.EnvSpec | None = None
) -> tuple[configs.Config, list[str]]:
    """Returns the configuration with everything that depends on the machine, and notes for the user.

    Args:
      config: the preset's values, replaced by the user's.
      explicit: names SECTION.KEY of what the user set; those are never changed.
      spec: of the environment, if known.

    Raises:
      ConfigError: the devices cannot share the batch or the slots evenly.
    """
    notes = []
    changes = presets.cpu_values(preset, config.run.agent, explicit=explicit)
    if machine.platform == "cpu" and changes:
        config = _implied_again(config, changes, preset, explicit, spec)
        values = configs.flatten(config)
        notes.append(f"preset {preset} on a CPU: {_listing({name: values[name] for name in changes})}")
    automatic = _automatic(config, machine)
    if automatic:
        config = configs.override(config, automatic)
        found = f"{machine.num_cores} cores and {machine.num_devices} {machine.platform} device(s)"
        notes.append(f"automatic, for {found}: {_listing(automatic)}")
    check_shares(config)
    num_shards, num_envs = config.training.acting_devices or config.training.num_devices, config.worker.num_envs
    if num_envs < num_shards and not _may_join(config) and config.league.most_players == 1:
        notes.append(
            f"{num_envs} environments leave some of {num_shards} devices without any, and a new run learns nothing "
            "until each had one; give more --worker.envs_per_group or --workers, or fewer --training.num_devices"
        )
    return config, notes


def _implied_again(
    config: configs.Config,
    changes: Mapping[str, options.Value],
    preset: str,
    explicit: Set[str],
    spec: types.EnvSpec | None,
) -> configs.Config:
    """Returns the configuration with changes for a CPU, as far as the user's settings and the rows of a game allow."""
    agent = config.run.agent
    preset_env, elsewhere = presets.get(preset, agent).env.id, presets.part(preset, agent).elsewhere
    changed = configs.override(config, changes)
    implied, _ = combinations.imply(changed, preset_env=preset_env, explicit=explicit, elsewhere=elsewhere)
    values = configs.flatten(implied)
    # nothing else, because an end may have been found in the environment since
    config = configs.override(config, {name: values[name] for name in changes})
    return config if spec is None else combinations.imply_by_environment(config, spec, explicit=explicit)[0]


def _listing(values: Mapping[str, options.Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _automatic(config: configs.Config, machine: Machine) -> dict[str, options.Value]:
    one = bool(seats_config.of_config(config).asked)  # whose policies share a device
    num_devices = config.training.num_devices or (1 if one else machine.num_devices)
    num_acting = config.training.acting_devices or num_devices
    num_slots, num_sharing = _slots(config)
    most_rows = num_slots if config.run.deterministic else min(MAX_AUTO_BATCH, num_slots)
    if config.env.id == env_ids.DMLAB30 and config.evaluation.every_updates:
        most_rows = max(most_rows, env_ids.DMLAB30_LEVELS)  # an evaluation plays them all in one batch
    values = {
        "training.num_devices": num_devices,
        "replay.num_slots": num_slots if config.league.most_players > 1 else _round_up(num_slots, num_acting),
        **({"replay.num_envs": num_sharing} if num_sharing and config.agent.SAMPLES else {}),
        "batcher.max_batch": max(most_rows, config.worker.envs_per_group),
        "worker.threads": max(1, machine.num_cores // max(1, config.worker.num)),
    }
    current = configs.flatten(config)
    return {name: value for name, value in values.items() if current[name] == options.AUTO}


def _slots(config: configs.Config) -> tuple[int, int]:
    """Returns the number of rings, and how many environments share the capacity; 0: as many as there are rings.

    There are rings for local and announced workers, and for one more if any may join.
    """
    given, worker = config.replay.num_slots, config.worker
    a_worker, local = worker.num_groups * worker.envs_per_group, worker.num_envs
    if config.run.deterministic or not _may_join(config):
        return given or local, 0
    expected = local + worker.num_remote * a_worker
    if expected == 0:
        return given or UNKNOWN_WORKERS * a_worker, 0
    num_slots = given or (expected if worker.num_remote else expected + a_worker)
    return num_slots, expected if expected < num_slots else 0


def _may_join(config: configs.Config) -> bool:
    """Returns whether workers of other machines may bring environments."""
    listen = config.transport.listen
    is_open = bool(listen) and not listen.startswith("unix:")
    return is_open or config.worker.num == 0 or config.worker.num_remote > 0


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def check_shares(config: configs.Config, *, is_begun: bool = False) -> None:
    """Every device of a group holds the same number of slots and takes the same share of a batch.

    Args:
      config: its automatic values are resolved.
      is_begun: whether the run is resumed; it keeps its slots, so only its devices can change.

    Raises:
      ConfigError: with what would fit.
    """
    num_devices, num_acting = config.training.num_devices, config.training.acting_devices
    if config.league.most_players > 1:  # each place has a number of devices that divides its batches
        return
    if num_acting >= num_devices:
        fitting = f"{num_devices - 1} or less, or " if num_devices > 1 else ""
        raise errors.ConfigError(
            f"--training.acting_devices={num_acting} leaves none of training.num_devices={num_devices} to learn; "
            f"give {fitting}0: all act and learn"
        )
    for name, number, multiple, groups in _unshared(config, num_acting):
        remedy = f"try --{name}={_round_up(number, multiple)}"
        if is_begun:
            remedy = f"this run can continue with {_fitting(config)}"
        raise errors.ConfigError(f"--{name}={number} can't be shared evenly by {groups}; {remedy}")
    num_shards, num_envs = num_acting or num_devices, config.worker.num_envs
    num_filled = -(-num_envs // (config.replay.num_slots // num_shards))
    if config.run.deterministic and num_filled < num_shards:
        raise errors.ConfigError(
            f"--deterministic fills the rings in order: {num_envs} environments leave devices without any, "
            f"replay.num_slots={config.replay.num_slots} on {num_shards}; give --worker.envs_per_group so that "
            f"environments are a multiple of {num_shards}, or --training.num_devices={num_filled}"
        )


def _fitting(config: configs.Config) -> str:
    """Returns the settings of devices that share the slots and batches of a run: one device always does."""
    num_devices = config.training.num_devices
    if numbers := [str(other) for other in range(num_devices) if not _unshared(config, other)]:
        return f"--training.acting_devices={' or '.join(numbers)}"
    fewer = (
        dataclasses.replace(config, training=dataclasses.replace(config.training, num_devices=number))
        for number in range(num_devices - 1, 0, -1)
    )
    found = next(other for other in fewer if not _unshared(other, 0))
    return f"--training.num_devices={found.training.num_devices} --training.acting_devices=0"


def _unshared(config: configs.Config, num_acting: int) -> list[tuple[str, int, int, str]]:
    """Returns the numbers that groups of devices cannot divide: name, number, the required divisor, the groups."""
    num_devices = config.training.num_devices
    acting, all_groups, num_shares = f"training.num_devices={num_devices}", "", num_devices
    if num_acting:
        acting, all_groups = f"training.acting_devices={num_acting}", f" and the other {num_devices - num_acting}"
        num_shares = math.lcm(num_acting, num_devices - num_acting)
    shares = [(name, number, num_shares, acting + all_groups) for name, number in config.agent.shared(config).items()]
    shares.append(("replay.num_slots", config.replay.num_slots, num_acting or num_devices, acting))
    return [share for share in shares if share[1] % share[2]]
