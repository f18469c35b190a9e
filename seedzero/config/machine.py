"""Settings that follow from the machine: automatic values, and those of a preset on a CPU."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from seedzero.config import config as config_lib
from seedzero.config import options, presets
from seedzero.core import errors

MAX_AUTO_BATCH = 1024
MIN_OPEN_SLOTS = 64
OPEN_WORKERS = 4
"""Workers that there is room for by default where they come from elsewhere."""


class Machine(NamedTuple):
    """What the automatic values follow from. platform: "cpu", "gpu" or "tpu"; num_devices: local ones."""

    platform: str
    num_cores: int
    num_devices: int


def resolve(
    config: config_lib.Config, *, preset: str, explicit: Set[str], machine: Machine
) -> tuple[config_lib.Config, list[str]]:
    """Returns the configuration with everything filled in that depends on the machine, and notes for the user.

    Args:
      config: the preset's values with the user's over them.
      preset: the name of the preset.
      explicit: names SECTION.KEY of what the user set; those are never changed.
      machine: where the learner runs.

    Raises:
      ConfigError: the devices can't share the batch or the slots evenly.
    """
    notes = []
    changes = presets.cpu_values(preset, config.run.agent, explicit=explicit)
    if machine.platform == "cpu" and changes:
        config = config_lib.override(config, changes)
        notes.append(f"preset {preset} on a CPU: {_listing(changes)}")
    automatic = _automatic(config, machine)
    if automatic:
        config = config_lib.override(config, automatic)
        cores, devices = f"{machine.num_cores} cores", f"{machine.num_devices} {machine.platform} device(s)"
        notes.append(f"automatic, for {cores} and {devices}: {_listing(automatic)}")
    _check_shares(config)
    return config, notes


def _listing(values: Mapping[str, options.Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _automatic(config: config_lib.Config, machine: Machine) -> dict[str, options.Value]:
    """Values for what is still AUTO."""
    num_devices = config.training.num_devices or machine.num_devices
    num_envs = config.worker.num * config.worker.num_groups * config.worker.envs_per_group
    num_slots = config.replay.num_slots or _num_slots(config, num_envs)
    most_rows = num_slots if config.run.deterministic else min(MAX_AUTO_BATCH, num_slots)
    values = {
        "training.num_devices": num_devices,
        "replay.num_slots": _round_up(num_slots, num_devices),
        "batcher.max_batch": max(most_rows, config.worker.envs_per_group),
        "worker.threads": max(1, machine.num_cores // max(1, config.worker.num)),
    }
    current = config_lib.flatten(config)
    return {name: value for name, value in values.items() if current[name] == options.AUTO}


def _num_slots(config: config_lib.Config, num_envs: int) -> int:
    """Returns rings for the local environments, or with room for others where workers can come from elsewhere."""
    listen = config.transport.listen
    remote = config.worker.num_remote
    is_open = config.worker.num == 0 or remote > 0 or (listen and not listen.startswith("unix:"))
    if config.run.deterministic or not is_open:
        return num_envs
    a_worker = config.worker.num_groups * config.worker.envs_per_group
    return max(MIN_OPEN_SLOTS, OPEN_WORKERS * a_worker, 2 * num_envs, num_envs + remote * a_worker)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _check_shares(config: config_lib.Config) -> None:
    """Every device holds the same number of slots and takes the same share of a batch."""
    num_devices = config.training.num_devices
    for name, number in {**config.agent.shared(config), "replay.num_slots": config.replay.num_slots}.items():
        if number % num_devices:
            raise errors.ConfigError(
                f"--{name}={number} can't be shared evenly by training.num_devices={num_devices}; "
                f"try --{name}={_round_up(number, num_devices)}"
            )
