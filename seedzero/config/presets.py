"""Presets: named settings that work, and how the values left open follow from the machine.

The order is: a preset's values; on a CPU its `on_cpu` values over them; what the command line sets over both; and last
the automatic ones (`config.AUTO`), from the cores and devices that are there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from typing import NamedTuple

from seedzero.config import config as config_lib
from seedzero.core import errors

MAX_AUTO_BATCH = 1024
MIN_OPEN_SLOTS = 64
OPEN_WORKERS = 4
"""Workers that there is room for by default where they come from elsewhere."""


@dataclasses.dataclass(frozen=True)
class Preset:
    """Settings by SECTION.KEY, as differences from `config.Config()`. on_cpu: replaced where no accelerator is."""

    description: str
    values: Mapping[str, config_lib.Value]
    on_cpu: Mapping[str, config_lib.Value] = dataclasses.field(default_factory=dict)


CATCH = Preset(
    "Catch, a 10x5 grid: learns in seconds, ends at a mean return of 1.0",
    {
        "env.id": "catch",
        "run.stop_at_return": 1.0,
        "search.num_simulations": 8,
        "search.num_considered": 3,
        "network.kind": "conv",
        "network.width": 32,
        "network.num_bins": 21,
        "network.support_limit": 2.0,
        "muzero.n_step": 9,
        "replay.capacity": 32_000,
        "replay.min_steps": 500,
        "replay.batch_size": 128,
        "replay.samples_per_insert": 16.0,
        "evaluation.every_updates": 100,
        "evaluation.episodes": 100,
        "evaluation.num_envs": 100,
    },
)

# The CartPole probe of the design: a greedy mean of 475 in 20 to 72 s on two cores.
CARTPOLE = Preset(
    "CartPole-v1: learns within two minutes on two cores, ends at a mean return of 495",
    {
        "env.id": "gym:CartPole-v1",
        "run.stop_at_return": 495.0,
        "search.num_simulations": 16,
        "search.num_considered": 2,
        "network.kind": "mlp",
        "network.width": 64,
        "muzero.n_step": 20,
        "muzero.target_network_updates": 100,
        "optimizer.learning_rate": 2e-3,
        "replay.capacity": 64_000,
        "replay.min_steps": 1_280,
        "replay.batch_size": 256,
        "replay.samples_per_insert": 32.0,
        "evaluation.every_updates": 200,
        "evaluation.episodes": 20,
        "evaluation.num_envs": 20,
    },
)

# With a discount of 0.99 LunarLander's runs often learn to hover: landing is too far away to count for much.
VECTOR = Preset(
    "any Gymnasium environment whose observations are vectors",
    {
        "env.id": "gym:LunarLander-v3",
        "search.num_simulations": 16,
        "search.num_considered": 4,
        "network.kind": "mlp",
        "network.width": 64,
        "network.head_width": 64,
        "muzero.discount": 0.995,
        "muzero.n_step": 20,
        "muzero.target_network_updates": 100,
        "optimizer.learning_rate": 2e-3,
        "replay.capacity": 128_000,
        "replay.min_steps": 1_280,
        "replay.batch_size": 256,
        "replay.samples_per_insert": 16.0,
        "evaluation.every_updates": 500,
        "evaluation.episodes": 20,
        "evaluation.num_envs": 20,
    },
)

CONTINUOUS = Preset(
    "any Gymnasium environment of continuous actions, Pendulum unless told: ends there at a mean return of -170",
    {
        "env.id": "gym:Pendulum-v1",
        "run.stop_at_return": -170.0,
        "search.num_simulations": 16,
        "search.num_sampled": 16,
        "search.num_considered": 8,
        "network.width": 64,
        "network.head_width": 64,
        "muzero.discount": 0.97,
        "muzero.n_step": 10,
        "muzero.target_network_updates": 100,
        "optimizer.learning_rate": 2e-3,
        "replay.capacity": 128_000,
        "replay.min_steps": 1_280,
        "replay.batch_size": 256,
        "replay.samples_per_insert": 16.0,
        "evaluation.every_updates": 250,
        "evaluation.episodes": 40,
        "evaluation.num_envs": 40,
    },
)

# The openings bring positions that its own moves, all good by the end, leave out.
TICTACTOE = Preset(
    "tic-tac-toe against itself: does not lose any more after some minutes on two cores",
    {
        "env.id": "spiel:tic_tac_toe",
        "env.random_opening": 6,
        "run.max_updates": 30_000,
        "search.num_simulations": 32,
        "search.num_considered": 9,
        "search.gumbel_scale": 4.0,
        "search.min_value_range": 1.0,
        "network.kind": "conv",
        "network.width": 64,
        "network.num_bins": 21,
        "network.support_limit": 1.0,
        "muzero.discount": 1.0,
        "muzero.n_step": 2,
        "muzero.stored_value": "policy",
        "optimizer.schedule": "cosine",
        "optimizer.decay_updates": 30_000,
        "replay.capacity": 64_000,
        "replay.min_steps": 1_000,
        "replay.batch_size": 256,
        "replay.samples_per_insert": 16.0,
        "evaluation.every_updates": 500,
        "evaluation.episodes": 200,
        "evaluation.num_envs": 100,
    },
)

# Random openings show it more positions than noise in its moves, and leave the values of its moves as they are.
CONNECT_FOUR = Preset(
    "connect four on a board of 4 rows and 5 columns, against itself",
    {
        "env.id": "spiel:connect_four(rows=4,columns=5)",
        "env.random_opening": 12,
        "run.max_updates": 50_000,
        "search.num_simulations": 32,
        "search.num_considered": 5,
        "search.min_value_range": 1.0,
        "network.kind": "conv",
        "network.width": 128,
        "network.head_width": 128,
        "network.num_bins": 21,
        "network.support_limit": 1.0,
        "muzero.discount": 1.0,
        "muzero.n_step": 2,
        "muzero.stored_value": "policy",
        "optimizer.schedule": "cosine",
        "optimizer.decay_updates": 50_000,
        "replay.capacity": 64_000,
        "replay.min_steps": 1_000,
        "replay.batch_size": 256,
        "replay.samples_per_insert": 8.0,
        "evaluation.every_updates": 2_000,
        "evaluation.episodes": 200,
        "evaluation.num_envs": 100,
    },
)

SPIEL = Preset(
    "any game of OpenSpiel for two players (or one), against itself",
    {
        "env.id": "spiel:connect_four",
        "search.num_simulations": 32,
        "search.num_considered": 16,
        "search.gumbel_scale": 2.0,
        "search.min_value_range": 1.0,
        "network.width": 256,
        "network.head_width": 128,
        "network.num_bins": 121,
        "network.support_limit": 6.0,
        "muzero.discount": 1.0,
        "muzero.n_step": 4,
        "optimizer.learning_rate": 1e-3,
        "replay.capacity": 256_000,
        "replay.min_steps": 2_000,
        "replay.batch_size": 256,
        "replay.samples_per_insert": 8.0,
        "evaluation.every_updates": 2_000,
        "evaluation.episodes": 100,
        "evaluation.num_envs": 50,
    },
)

# Stored root values, not a target network: its six observations a window would take most of an update's time. The
# smallest range of values and the entropy keep the policy undecided where all actions are alike: without them agents
# go the same way every time, and never see what would have saved them where it ends.
MINATAR = Preset(
    "MinAtar, Atari's games on a grid of 10x10",
    {
        "env.id": "gym:MinAtar/Breakout-v1",
        "worker.envs_per_group": 32,
        "search.num_simulations": 8,
        "search.num_considered": 4,
        "search.min_value_range": 1.0,
        "network.kind": "conv",
        "network.width": 64,
        "muzero.discount": 0.99,
        "muzero.n_step": 5,
        "muzero.entropy_weight": 0.5,
        "optimizer.learning_rate": 1e-3,
        "optimizer.schedule": "cosine",
        "optimizer.decay_updates": 60_000,
        "replay.capacity": 256_000,
        "replay.min_steps": 2_000,
        "replay.batch_size": 128,
        "replay.samples_per_insert": 4.0,
        "evaluation.every_updates": 2_000,
        "evaluation.episodes": 50,
        "evaluation.num_envs": 50,
    },
)

# What pixels need on two cores: a few calls of a small network a step, and small batches.
_PIXELS_ON_CPU: Mapping[str, config_lib.Value] = {
    "worker.envs_per_group": 8,
    "search.num_simulations": 4,
    "search.num_considered": 4,
    "optimizer.learning_rate": 5e-4,
    "optimizer.warmup_updates": 100,
    "replay.capacity": 100_000,
    "replay.min_steps": 500,
    "replay.batch_size": 16,
    "replay.samples_per_insert": 0.5,
    "training.publish_every": 1,
    "training.max_in_flight": 2,
    "evaluation.every_updates": 500,
    "evaluation.episodes": 4,
    "evaluation.num_envs": 4,
}

PIXELS = Preset(
    "any Gymnasium environment whose observations are images",
    {
        "env.id": "gym:ALE/Pong-v5",
        "worker.envs_per_group": 64,
        "search.num_simulations": 16,
        "search.num_considered": 8,
        "network.kind": "resnet",
        "network.frame_stack": 4,
        "network.num_bins": 601,
        "muzero.n_step": 10,
        "muzero.shift_pixels": 4,
        "optimizer.learning_rate": 8e-4,
        "optimizer.warmup_updates": 500,
        "replay.capacity": 200_000,
        "replay.min_steps": 5_000,
        "replay.batch_size": 256,
        "replay.samples_per_insert": 4.0,
        "training.publish_every": 4,
        "training.max_in_flight": 3,
        "evaluation.every_updates": 2_000,
        "evaluation.episodes": 10,
        "evaluation.num_envs": 10,
    },
    on_cpu=_PIXELS_ON_CPU,
)

# With the small network, on one H200 and without sticky actions, training episodes of Pong return 18 after 216 s and
# 2.2 million steps. The middle one is for what comes after the first minutes of a harder game.
ATARI = Preset(
    "an Atari game (Pong unless --env=atari:GAME), 200 million frames: one accelerator, or slowly on a CPU",
    {
        "env.id": "atari:Pong",
        "env.noop_max": 30,
        "env.full_action_space": False,
        "run.max_env_steps": 50_000_000,
        "worker.envs_per_group": 128,
        "search.num_simulations": 16,
        "search.num_considered": 8,
        "network.kind": "resnet",
        "network.resnet_size": "middle",
        "network.frame_stack": 4,
        "network.num_bins": 601,
        "muzero.discount": 0.997,
        "muzero.n_step": 10,
        "muzero.shift_pixels": 4,
        "optimizer.learning_rate": 8e-4,
        "optimizer.warmup_updates": 500,
        "optimizer.clip_norm": 5.0,
        "replay.capacity": 500_000,
        "replay.min_steps": 10_000,
        "replay.batch_size": 512,
        "replay.samples_per_insert": 4.0,
        "training.publish_every": 4,
        "training.max_in_flight": 3,
        "evaluation.every_updates": 5_000,
        "evaluation.episodes": 32,
        "evaluation.num_envs": 32,
    },
    on_cpu={**_PIXELS_ON_CPU, "network.resnet_size": "small"},
)

# After EfficientZero V2 (Wang et al. 2024, appendix): an update of 256 windows for each step, unroll 5, n-step 5,
# consistency, priorities, fresh targets. Few environments, so that acting is never far from the newest parameters.
ATARI_100K = Preset(
    "an Atari game in 100 thousand steps: little data, much learning from it; for one accelerator",
    {
        "env.id": "atari:Pong",
        "env.noop_max": 30,
        "env.sticky_actions": 0.0,
        "env.full_action_space": False,
        "env.life_loss": True,
        "run.max_env_steps": 100_000,
        "worker.envs_per_group": 4,
        "search.num_simulations": 16,
        "search.num_considered": 8,
        "network.kind": "resnet",
        "network.frame_stack": 4,
        "network.num_bins": 601,
        "muzero.discount": 0.997,
        "muzero.n_step": 5,
        "muzero.shift_pixels": 4,
        "muzero.intensity_scale": 0.05,
        "muzero.consistency_weight": 2.0,
        "optimizer.learning_rate": 5e-4,
        "optimizer.warmup_updates": 1_000,
        "optimizer.clip_norm": 5.0,
        "replay.capacity": 100_000,
        "replay.min_steps": 2_000,
        "replay.batch_size": 256,
        "replay.samples_per_insert": 256.0,
        "replay.priority_alpha": 0.6,
        "reanalyse.per_insert": 32.0,
        "training.publish_every": 4,
        "training.max_in_flight": 3,
        "evaluation.every_updates": 10_000,
        "evaluation.episodes": 32,
        "evaluation.num_envs": 32,
    },
    on_cpu={**_PIXELS_ON_CPU, "worker.envs_per_group": 4, "reanalyse.per_insert": 0.0},
)

# MuKoe's numbers: 256 channels with 10 and 6 blocks, batches of 512, 8 samples per insert, cosine decay from 1e-4.
ATARI_LARGE = Preset(
    "an Atari game with MuKoe's large network and 50 simulations: for a host of accelerators",
    {
        "env.id": "atari:Pong",
        "env.noop_max": 30,
        "env.full_action_space": False,
        "worker.envs_per_group": 256,
        "search.num_simulations": 50,
        "search.num_considered": 16,
        "network.kind": "resnet",
        "network.resnet_size": "large",
        "network.frame_stack": 4,
        "network.head_width": 256,
        "network.num_bins": 601,
        "muzero.discount": 0.997,
        "muzero.n_step": 10,
        "muzero.shift_pixels": 4,
        "optimizer.learning_rate": 1e-4,
        "optimizer.schedule": "cosine",
        "optimizer.warmup_updates": 1_000,
        "optimizer.decay_updates": 1_000_000,
        "optimizer.clip_norm": 32.0,
        "replay.capacity": 1_000_000,
        "replay.min_steps": 50_000,
        "replay.batch_size": 512,
        "replay.samples_per_insert": 8.0,
        "training.publish_every": 4,
        "training.max_in_flight": 3,
        "evaluation.every_updates": 5_000,
        "evaluation.episodes": 32,
        "evaluation.num_envs": 32,
    },
)

PRESETS: Mapping[str, Preset] = {
    "catch": CATCH,
    "cartpole": CARTPOLE,
    "tictactoe": TICTACTOE,
    "connect_four": CONNECT_FOUR,
    "spiel": SPIEL,
    "minatar": MINATAR,
    "vector": VECTOR,
    "continuous": CONTINUOUS,
    "pixels": PIXELS,
    "atari": ATARI,
    "atari-100k": ATARI_100K,
    "atari-large": ATARI_LARGE,
}


class Machine(NamedTuple):
    """What the automatic values follow from. platform: "cpu", "gpu" or "tpu"; num_devices: local ones."""

    platform: str
    num_cores: int
    num_devices: int


def names() -> dict[str, str]:
    """Returns the description of every preset by its name."""
    return {name: preset.description for name, preset in PRESETS.items()}


def get(name: str) -> config_lib.Config:
    """Returns a preset's settings as they are on an accelerator, automatic ones still open.

    Raises:
      ConfigError: no preset has this name.
    """
    return config_lib.override(config_lib.Config(), find(name).values)


def find(name: str) -> Preset:
    """Returns the preset of this name.

    Raises:
      ConfigError: there is none.
    """
    if name not in PRESETS:
        nearest = config_lib.nearest(name, PRESETS)
        hint = f"; did you mean --preset={nearest}?" if nearest else f"; choose one of {', '.join(PRESETS)}"
        raise errors.ConfigError(f"unknown preset --preset={name}{hint}")
    return PRESETS[name]


def name_for(env_id: str, *, is_continuous: bool = False) -> str:
    """Returns the preset that suits an environment when none is named; observations aren't known yet.

    Args:
      env_id: of the environment.
      is_continuous: whether its actions are known to be vectors.
    """
    if is_continuous:
        return "continuous"
    if env_id == "catch":
        return "catch"
    if env_id.startswith("atari:"):
        return "atari"
    if env_id.startswith("spiel:"):
        return next((name for name, preset in PRESETS.items() if preset.values["env.id"] == env_id), "spiel")
    if env_id.startswith("gym:MinAtar/"):
        return "minatar"
    return "pixels" if "ALE/" in env_id else "vector"


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
    changes = cpu_values(preset, explicit=explicit)
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


def cpu_values(preset: str, *, explicit: Set[str]) -> dict[str, config_lib.Value]:
    """Returns what a preset changes on a CPU, save what the user set."""
    return {name: value for name, value in find(preset).on_cpu.items() if name not in explicit}


def _listing(values: Mapping[str, config_lib.Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _automatic(config: config_lib.Config, machine: Machine) -> dict[str, config_lib.Value]:
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
    return {name: value for name, value in values.items() if current[name] == config_lib.AUTO}


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
    shared = {"replay.batch_size": config.replay.batch_size, "replay.num_slots": config.replay.num_slots}
    if config.reanalyse.per_insert:
        shared["reanalyse.batch_size"] = config.reanalyse.batch_size
    for name, number in shared.items():
        if number % num_devices:
            raise errors.ConfigError(
                f"--{name}={number} can't be shared evenly by training.num_devices={num_devices}; "
                f"try --{name}={_round_up(number, num_devices)}"
            )
