"""Resolves settings that depend on the machine: automatic values, and a preset's values on a CPU."""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform
from collections.abc import Mapping, Set
from typing import NamedTuple

from seedzero.config import combinations, configs, options, presets, rules, run_rules, seats_config
from seedzero.core import control_groups, env_ids, types

MAX_AUTO_BATCH = 1024
UNKNOWN_WORKERS = 4
"""How many workers to expect if all come from elsewhere and none is announced."""
_MOST_SHOWN = 8
"""Settings in the note about a preset on a CPU; of more, those to change first are shown."""


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
        notes.append(_changes_text(preset, config.run.agent, {name: values[name] for name in changes}))
    automatic = _automatic(config, machine)
    if automatic:
        config = configs.override(config, automatic)
        found = f"{machine.num_cores} cores and {machine.num_devices} {machine.platform} device(s)"
        notes.append(f"automatic, for {found}: {_listing(automatic)}")
    combinations.check_devices(config)
    _, told = combinations.implied(rules.Situation(config, explicit), rules.Needs.DEVICES)
    return config, [*notes, *(found.text for found in told)]


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


def _changes_text(preset: str, agent: str, changes: Mapping[str, options.Value]) -> str:
    """Names all settings that have other values on a CPU if they fit a line, else those to change first."""
    shown = changes
    if len(changes) > _MOST_SHOWN:
        shown = {name: value for name, value in changes.items() if configs.mark(name) == options.START}
    parts = [_listing(shown)] if shown else []
    if number := len(changes) - len(shown):
        command = f"seedzero config --preset={preset} --agent={agent} --advanced"
        parts.append(f"{number} more settings, which `{command}` shows")
    return f"preset {preset} on a CPU: {' and '.join(parts)}"


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
    if config.run.deterministic or not run_rules.may_join(config):
        return given or local, 0
    expected = local + worker.num_remote * a_worker
    if expected == 0:
        return given or UNKNOWN_WORKERS * a_worker, 0
    num_slots = given or (expected if worker.num_remote else expected + a_worker)
    return num_slots, expected if expected < num_slots else 0


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
