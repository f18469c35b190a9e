"""Presets: settings that work together: an environment with its evaluation and budget, and a part for each agent.

The order is: a preset's values, its agent's part over them; on a CPU the `on_cpu` values of both over these; then the
command line's; and last the automatic ones (`options.AUTO`), from the machine's cores and devices (`machine.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set

from seedzero.config import config as config_lib
from seedzero.config import muzero_presets, options, preset_part, vtrace_presets
from seedzero.core import errors

PARTS: Mapping[str, Mapping[str, preset_part.Part]] = {
    "muzero": muzero_presets.PARTS,
    "vtrace": vtrace_presets.PARTS,
}
"""Agent -> preset -> the agent's part."""

_PIXELS_ON_CPU: Mapping[str, options.Value] = {
    "worker.envs_per_group": 8,
    "training.publish_every": 1,
    "training.max_in_flight": 2,
    "evaluation.every_updates": 500,
    "evaluation.episodes": 4,
    "evaluation.num_envs": 4,
}
_ATARI: Mapping[str, options.Value] = {
    "env.noop_max": 30,
    "env.full_action_space": False,
    "training.publish_every": 4,
    "training.max_in_flight": 3,
    "evaluation.every_updates": 5_000,
    "evaluation.episodes": 32,
    "evaluation.num_envs": 32,
}


@dataclasses.dataclass(frozen=True)
class Preset:
    """Values by SECTION.KEY that all agents share, over those of `config.Config()`. on_cpu: without accelerator."""

    description: str
    values: Mapping[str, options.Value]
    on_cpu: Mapping[str, options.Value] = dataclasses.field(default_factory=dict)


PRESETS: Mapping[str, Preset] = {
    "catch": Preset(
        "Catch, a 10x5 grid: learns in seconds, ends at a mean return of 1.0",
        {
            "env.id": "catch",
            "run.stop_at_return": 1.0,
            "evaluation.every_updates": 100,
            "evaluation.episodes": 100,
            "evaluation.num_envs": 100,
        },
    ),
    "cartpole": Preset(
        "CartPole-v1: learns within two minutes on two cores, ends at a mean return of 495",
        {
            "env.id": "gym:CartPole-v1",
            "run.stop_at_return": 495.0,
            "evaluation.every_updates": 200,
            "evaluation.episodes": 20,
            "evaluation.num_envs": 20,
        },
    ),
    "tictactoe": Preset(
        "tic-tac-toe against itself: does not lose any more after some minutes on two cores",
        {
            "env.id": "spiel:tic_tac_toe",
            "env.random_opening": 6,
            "run.max_updates": 30_000,
            "evaluation.every_updates": 500,
            "evaluation.episodes": 200,
            "evaluation.num_envs": 100,
        },
    ),
    "connect_four": Preset(
        "connect four on a board of 4 rows and 5 columns, against itself",
        {
            "env.id": "spiel:connect_four(rows=4,columns=5)",
            "env.random_opening": 12,
            "run.max_updates": 50_000,
            "evaluation.every_updates": 2_000,
            "evaluation.episodes": 200,
            "evaluation.num_envs": 100,
        },
    ),
    "spiel": Preset(
        "any game of OpenSpiel for two players (or one), against itself",
        {
            "env.id": "spiel:connect_four",
            "evaluation.every_updates": 2_000,
            "evaluation.episodes": 100,
            "evaluation.num_envs": 50,
        },
    ),
    "minatar": Preset(
        "MinAtar, Atari's games on a grid of 10x10",
        {
            "env.id": "gym:MinAtar/Breakout-v1",
            "worker.envs_per_group": 32,
            "evaluation.every_updates": 2_000,
            "evaluation.episodes": 50,
            "evaluation.num_envs": 50,
        },
    ),
    "vector": Preset(
        "any Gymnasium environment whose observations are vectors",
        {
            "env.id": "gym:LunarLander-v3",
            "evaluation.every_updates": 500,
            "evaluation.episodes": 20,
            "evaluation.num_envs": 20,
        },
    ),
    "continuous": Preset(
        "any Gymnasium environment of continuous actions, Pendulum unless told: ends there at a mean return of -170",
        {
            "env.id": "gym:Pendulum-v1",
            "run.stop_at_return": -170.0,
            "evaluation.every_updates": 250,
            "evaluation.episodes": 40,
            "evaluation.num_envs": 40,
        },
    ),
    "pixels": Preset(
        "any Gymnasium environment whose observations are images",
        {
            "env.id": "gym:ALE/Pong-v5",
            "worker.envs_per_group": 64,
            "training.publish_every": 4,
            "training.max_in_flight": 3,
            "evaluation.every_updates": 2_000,
            "evaluation.episodes": 10,
            "evaluation.num_envs": 10,
        },
        on_cpu=_PIXELS_ON_CPU,
    ),
    "atari": Preset(
        "an Atari game (Pong unless --env=atari:GAME), 200 million frames: one accelerator, or slowly on a CPU",
        {
            **_ATARI,
            "env.id": "atari:Pong",
            "run.max_env_steps": 50_000_000,
            "worker.envs_per_group": 128,
        },
        on_cpu=_PIXELS_ON_CPU,
    ),
    "atari-100k": Preset(
        "an Atari game in 100 thousand steps: little data, much learning from it; for one accelerator",
        {
            "env.id": "atari:Pong",
            "env.noop_max": 30,
            "env.sticky_actions": 0.0,
            "env.full_action_space": False,
            "env.life_loss": True,
            "run.max_env_steps": 100_000,
            "worker.envs_per_group": 4,
            "training.publish_every": 4,
            "training.max_in_flight": 3,
            "evaluation.every_updates": 10_000,
            "evaluation.episodes": 32,
            "evaluation.num_envs": 32,
        },
        on_cpu={**_PIXELS_ON_CPU, "worker.envs_per_group": 4},
    ),
    "atari-large": Preset(
        "an Atari game with MuKoe's large network and 50 simulations: for a host of accelerators",
        {
            **_ATARI,
            "env.id": "atari:Pong",
            "worker.envs_per_group": 256,
        },
    ),
}


def names() -> dict[str, str]:
    """Returns the description of every preset by its name."""
    return {name: preset.description for name, preset in PRESETS.items()}


def get(name: str, agent: str = "muzero") -> config_lib.Config:
    """Returns the settings of a preset and an agent as they are on an accelerator, automatic ones still open.

    Raises:
      ConfigError: there is no such preset or agent.
    """
    values = {**find(name).values, **part(name, agent).values, "run.agent": agent}
    return config_lib.override(config_lib.Config(), values)


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


def part(name: str, agent: str) -> preset_part.Part:
    """Returns an agent's part of a preset; where there is none, an empty one: the agent's defaults."""
    return PARTS.get(agent, {}).get(name, preset_part.Part({}))


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


def cpu_values(preset: str, agent: str = "muzero", *, explicit: Set[str]) -> dict[str, options.Value]:
    """Returns the changes of a preset on a CPU, save what the user set."""
    values = {**find(preset).on_cpu, **part(preset, agent).on_cpu}
    return {name: value for name, value in values.items() if name not in explicit}
