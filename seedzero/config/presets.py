"""Presets have settings, evaluation and budget for an environment or a kind, and a part for each agent.

Later values replace earlier ones: a preset's values, its agent's part, on a CPU the `on_cpu` values of both, then the
command line's, and last the automatic ones (`options.AUTO`), from the machine's cores and devices (`machines.py`).
"""

from __future__ import annotations

import math
import os
import pathlib
import sys
from collections.abc import Mapping, Set
from typing import NamedTuple

from seedzero.config import (
    configs,
    families,
    options,
    own_agents,
)
from seedzero.core import errors, types

PARTS: Mapping[str, Mapping[str, options.Part]] = {
    name: sys.modules[type(section).__module__].PARTS for name, section in configs.agent_sections().items()
}
"""Agent -> preset -> the agent's part, `PARTS` of the module that has the agent's section."""

_PIXELS_ON_CPU = options.values(
    worker=dict(envs_per_group=8),
    training=dict(publish_every=1, max_in_flight=2),
    evaluation=dict(every_updates=500, episodes=4, num_envs=4),
)
# Ten games of a greedy agent that never launches the ball, to Atari's limit, cost as much as the training.
_ATARI_ON_CPU = options.values(_PIXELS_ON_CPU, evaluation=dict(max_episode_steps=6_000))
_FOOTBALL = options.values(
    worker=dict(envs_per_group=16),
    training=dict(publish_every=1, max_in_flight=3),
    evaluation=dict(every_updates=2_000, episodes=32, num_envs=16),
)
_FOOTBALL_ON_CPU = options.values(
    worker=dict(envs_per_group=8),
    training=dict(max_in_flight=2),
    evaluation=dict(every_updates=500, episodes=8, num_envs=8),
)
_TICTACTOE = options.values(
    env=dict(id="spiel:tic_tac_toe", random_opening=6),
    run=dict(max_updates=30_000),
    evaluation=dict(every_updates=500, episodes=200, num_envs=100),
)
_CONNECT_FOUR = options.values(
    env=dict(id="spiel:connect_four(rows=4,columns=5)", random_opening=12),
    run=dict(max_updates=50_000),
    evaluation=dict(every_updates=2_000, episodes=200, num_envs=100),
)
_PGX = options.values(
    run=dict(agent="alphazero"),
    worker=dict(num=1, envs_per_group=64),
    evaluation=dict(every_updates=2_000, episodes=100, num_envs=50),
)
_BOTS = "random,mcts-100"
_SEATS = options.values(
    run=dict(agent="ppo"),
    worker=dict(envs_per_group=64),
    evaluation=dict(every_updates=1_000, episodes=200, num_envs=100),
)
_ATARI = options.values(
    env=dict(noop_max=30, full_action_space=False),
    training=dict(publish_every=4, max_in_flight=3),
    evaluation=dict(every_updates=5_000, episodes=32, num_envs=32),
)


SEATS, AGENTS, CHANCE = "seats", "agents", "chance"
"""The presets for games whose rows are seats, for agents of an environment, and for games of chance played in turn."""


class Preset(NamedTuple):
    """Values by SECTION.KEY for all agents, which replace those of `config.Config()`.

    on_cpu: without an accelerator.
    """

    description: str
    values: Mapping[str, options.Value]
    on_cpu: Mapping[str, options.Value]


def _preset(
    description: str, base: Mapping[str, options.Value] = {}, /, **settings: Mapping[str, options.Value]
) -> Preset:
    shared = options.part(base, **settings)
    return Preset(description, shared.values, shared.on_cpu)


PRESETS: Mapping[str, Preset] = {
    "catch": _preset(
        "Catch, a 10x5 grid: learns in seconds, ends at a mean return of 1.0",
        env=dict(id="catch"),
        run=dict(stop_at_return=1.0),
        evaluation=dict(every_updates=100, episodes=100, num_envs=100, pauses_training=True),
    ),
    "cartpole": _preset(
        "CartPole-v1: learns within two minutes on two cores, ends at a mean return of 495",
        env=dict(id="gym:CartPole-v1"),
        run=dict(stop_at_return=495.0),
        evaluation=dict(every_updates=200, episodes=20, num_envs=20, pauses_training=True),
    ),
    "tictactoe": _preset(
        "tic-tac-toe against itself: does not lose any more after some minutes on two cores", _TICTACTOE
    ),
    "connect_four": _preset("connect four on a board of 4 rows and 5 columns, against itself", _CONNECT_FOUR),
    "league-tictactoe": _preset(
        "tic-tac-toe against itself and its frozen past", _TICTACTOE, env=dict(opponents=_BOTS)
    ),
    "league-connect-four": _preset(
        "connect four on a board of 4 rows and 5 columns, against itself and its frozen past",
        _CONNECT_FOUR,
        env=dict(opponents=_BOTS),
    ),
    "league-brps": _preset(
        "biased rock-paper-scissors against its past, from a biased beginning",
        _SEATS,
        env=dict(id="spiel:matrix_brps"),
        run=dict(max_env_steps=1_000_000),
    ),
    "league-kuhn": _preset(
        "Kuhn poker against its past: a mixture of its snapshots is nearly unexploitable after some minutes",
        _SEATS,
        env=dict(id="spiel:kuhn_poker"),
        run=dict(max_env_steps=4_000_000),
    ),
    "league-leduc": _preset(
        "Leduc poker against its past",
        _SEATS,
        env=dict(id="spiel:leduc_poker"),
        run=dict(max_env_steps=10_000_000),
    ),
    "league-goofspiel": _preset(
        "goofspiel with four cards against its past and exploiters, where plain self-play becomes deterministic",
        _SEATS,
        env=dict(id="spiel:goofspiel(num_cards=4,imp_info=true,points_order=descending)"),
    ),
    "league-soccer": _preset(
        "Markov soccer, one against one with simultaneous moves, against its past",
        _SEATS,
        env=dict(id="spiel:markov_soccer"),
    ),
    "roshambo": _preset(
        "1,000 throws of rock-paper-scissors against OpenSpiel's 43 bots, each as often, with memory",
        _SEATS,
        env=dict(
            id="spiel:repeated_game(stage_game=matrix_rps(),num_repetitions=1000,recall=20)", opponents="roshambo:all"
        ),
        evaluation=dict(every_updates=500, episodes=86, num_envs=86),
    ),
    SEATS: _preset(
        "any game of OpenSpiel with hidden information, chance, simultaneous moves or several players, against itself",
        _SEATS,
        env=dict(id="spiel:kuhn_poker"),
    ),
    AGENTS: _preset(
        "PettingZoo's environments of several agents, with one policy for all of them",
        env=dict(id="pettingzoo:mpe2.simple_spread_v3"),
        run=dict(agent="ppo"),
        worker=dict(envs_per_group=64),
        evaluation=dict(every_updates=500, episodes=64, num_envs=64),
    ),
    "spiel": _preset(
        "any board game of OpenSpiel for two players (or one), against itself",
        env=dict(id="spiel:connect_four"),
        evaluation=dict(every_updates=2_000, episodes=100, num_envs=50),
    ),
    "chance": _preset(
        "2048, or another game of chance in which nothing is hidden: pig, backgammon",
        env=dict(id="spiel:2048(max_tile=65536)"),
        worker=dict(envs_per_group=32),
        evaluation=dict(every_updates=2_000, episodes=32, num_envs=32),
    ),
    "pgx": _preset(
        "any board game of Pgx for two players (or one), against itself, connect four by default",
        _PGX,
        env=dict(id="pgx:connect_four"),
    ),
    "hex": _preset("hex on a board of 5x5, against itself", _PGX, env=dict(id="pgx:hex(size=5)", random_opening=4)),
    "othello": _preset("othello, against itself", _PGX, env=dict(id="pgx:othello", random_opening=8)),
    "go9": _preset(
        "Go on a board of 9x9, against itself; nobody passes before move 40",
        _PGX,
        env=dict(id="pgx:go(first_pass=40)", random_opening=4),
    ),
    "minatar": _preset(
        "MinAtar, Atari's games on a grid of 10x10",
        env=dict(id="gym:MinAtar/Breakout-v1"),
        worker=dict(envs_per_group=32),
        evaluation=dict(every_updates=2_000, episodes=50, num_envs=50),
    ),
    "vector": _preset(
        "any Gymnasium environment with vectors or small grids as observations",
        env=dict(id="gym:LunarLander-v3"),
        evaluation=dict(every_updates=500, episodes=20, num_envs=20),
    ),
    "memory-cartpole": _preset(
        "CartPole-v1 without velocities: ends at a mean return of 495",
        env=dict(id="memory:cartpole"),
        run=dict(stop_at_return=495.0),
        evaluation=dict(every_updates=500, episodes=20, num_envs=20),
    ),
    "memory-tmaze": _preset(
        "a corridor; its start shows the turn at its end; 20 cells: ends at a mean return of 0.95, of at most 1",
        env=dict(id="memory:tmaze-20"),
        run=dict(stop_at_return=0.95),
        evaluation=dict(every_updates=500, episodes=100, num_envs=50),
    ),
    "memory-repeat": _preset(
        "the right action is the symbol of some steps ago; 4 steps: ends at a mean return of 30, of at most 32",
        env=dict(id="memory:repeat-4"),
        run=dict(stop_at_return=30.0),
        evaluation=dict(every_updates=500, episodes=100, num_envs=50),
    ),
    "discrete": _preset(
        "any Gymnasium environment with numbers as observations, such as FrozenLake or Taxi",
        env=dict(id="gym:FrozenLake-v1"),
        evaluation=dict(every_updates=2_000, episodes=100, num_envs=50),
    ),
    "continuous": _preset(
        "any Gymnasium environment of continuous actions, Pendulum by default: ends there at a mean return of -170",
        env=dict(id="gym:Pendulum-v1"),
        run=dict(stop_at_return=-170.0),
        evaluation=dict(every_updates=250, episodes=40, num_envs=40),
    ),
    "mujoco": _preset(
        "MuJoCo's robots, HalfCheetah by default: one million steps",
        env=dict(id="gym:HalfCheetah-v5"),
        run=dict(max_env_steps=1_000_000),
        evaluation=dict(every_updates=2_000, episodes=5, num_envs=5),
    ),
    "football": _preset(
        "Google Research Football by EnvPool, rewards for goals; academy_empty_goal by default",
        _FOOTBALL,
        env=dict(id="football:academy_empty_goal"),
        on_cpu=_FOOTBALL_ON_CPU,
    ),
    "football-sides": _preset(
        "the same from both sides by gfootball, with a policy for each; 3 against 1 of the academy by default",
        env=dict(id="football:academy_3_vs_1_with_keeper", kwargs='{"left": 3, "right": 1}'),
        run=dict(agent="ppo"),
        worker=dict(envs_per_group=16),
        evaluation=dict(every_updates=500, episodes=64, num_envs=16),
    ),
    "league-football": _preset(
        "five against five by gfootball, one policy against its past; it plays both sides in turn",
        env=dict(id="football:5_vs_5", kwargs='{"left": 4, "right": 4}'),
        run=dict(agent="ppo"),
        training=dict(num_devices=1),
        worker=dict(envs_per_group=16),
        evaluation=dict(every_updates=500, episodes=64, num_envs=16),
    ),
    "football-checkpoints": _preset(
        "the same with rewards for the ball's way to the goal, too; 11 against 11 by default",
        _FOOTBALL,
        env=dict(id="football:11_vs_11_easy_stochastic", checkpoint_rewards=True),
        on_cpu=_FOOTBALL_ON_CPU,
    ),
    "pixels": _preset(
        "any Gymnasium environment with images as observations",
        env=dict(id="gym:ALE/Pong-v5"),
        worker=dict(envs_per_group=64),
        training=dict(publish_every=4, max_in_flight=3),
        evaluation=dict(every_updates=2_000, episodes=10, num_envs=10),
        on_cpu=_PIXELS_ON_CPU,
    ),
    "atari": _preset(
        "an Atari game (Pong unless --env=atari:GAME), 200 million frames; on a CPU smaller",
        _ATARI,
        env=dict(id="atari:Pong"),
        run=dict(max_env_steps=50_000_000),
        worker=dict(envs_per_group=128),
        on_cpu=_ATARI_ON_CPU,
    ),
    "atari-100k": _preset(
        "an Atari game in 100 thousand steps: little data, much learning from it; for one accelerator",
        env=dict(id="atari:Pong", noop_max=30, sticky_actions=0.0, full_action_space=False, life_loss=True),
        run=dict(max_env_steps=100_000),
        worker=dict(envs_per_group=4),
        training=dict(publish_every=4, max_in_flight=3),
        evaluation=dict(every_updates=10_000, episodes=32, num_envs=32),
        on_cpu=options.values(_ATARI_ON_CPU, worker=dict(envs_per_group=4)),
    ),
    "dmlab": _preset(
        "DeepMind Lab, a billion frames: explore_goal_locations_small unless --env=dmlab:LEVEL, or dmlab:dmlab30: all",
        env=dict(id="dmlab:explore_goal_locations_small"),
        run=dict(max_env_steps=250_000_000),
        worker=dict(num=4, envs_per_group=4),
        training=dict(publish_every=1, max_in_flight=3),
        evaluation=dict(every_updates=5_000, episodes=30, num_envs=30),
        on_cpu=options.values(training=dict(max_in_flight=2)),
    ),
    "atari-large": _preset(
        "an Atari game with MuKoe's large network and 50 simulations: for a host of accelerators",
        _ATARI,
        env=dict(id="atari:Pong"),
        worker=dict(envs_per_group=256),
    ),
}


def get(name: str, agent: str = "") -> configs.Config:
    """Returns the settings of a preset and an agent for an accelerator; automatic values are still open.

    agent: "" for the preset's own.

    Raises:
      ConfigError: there is no such preset or agent.
    """
    agent = agent or agent_of(name)
    values = {**find(name).values, **part(name, agent).values, "run.agent": agent}
    return configs.override(configs.Config(), values)


def agent_of(name: str) -> str:
    """Returns a preset's agent, for users who name no agent."""
    return str(find(name).values.get("run.agent", configs.agent_names()[0]))


def find(name: str) -> Preset:
    """Returns the preset with a name.

    Raises:
      ConfigError: there is none.
    """
    if name not in PRESETS:
        nearest = configs.nearest(name, PRESETS)
        others = "`seedzero train --help` lists them; --env=ENV names an environment"
        hint = f"did you mean --preset={nearest}?" if nearest else others
        raise errors.ConfigError(f"unknown preset --preset={name}; {hint}")
    return PRESETS[name]


def part(name: str, agent: str) -> options.Part:
    """Returns an agent's part of a preset, which is empty for an agent with defaults alone."""
    parts = own_agents.load(agent).parts if own_agents.is_own(agent) else PARTS.get(agent, {})
    return parts.get(name, options.part())


def choose(
    env_id: str, spec: types.EnvSpec | None, *, in_turn: bool = False, has_sides: bool = False
) -> tuple[str, str]:
    """Returns the preset that suits an environment, and the environment's property that decided, or "".

    spec: that of an environment of Gymnasium or OpenSpiel; None if only workers know it. in_turn: whether chance alone
    makes the game's rows seats, and the chosen agent plays it in turn instead. has_sides: whether agents play Football
    on both sides.
    """
    if has_sides:
        return "football-sides", " has agents on both sides"
    if of_family := families.of(env_id).presets:
        task = env_id.partition("-")[0]  # memory:tmaze-5 is played as memory:tmaze-20
        tasks = {str(PRESETS[name].values["env.id"]).partition("-")[0]: name for name in reversed(of_family)}
        if task not in tasks and in_turn:
            return CHANCE, " has chance, and nothing is hidden"
        if task not in tasks and spec is not None and spec.seats:
            return AGENTS if spec.fixed_seats else SEATS, f" has {len(spec.seats)} seats, each a row of its own"
        return tasks.get(task, of_family[-1]), ""
    if env_id.startswith("gym:MinAtar/"):
        return "minatar", ""
    if spec is None:
        return "vector", " shows its observations only to workers"
    if spec.fixed_seats and types.shown(spec.arrays) != "images":
        return AGENTS, f" has {len(spec.seats)} agents, each a row of its own"
    if spec.is_continuous:
        return "continuous", " has continuous actions"
    if spec.num_states:
        return "discrete", f" shows one of {spec.num_states} numbers"
    shown, sizes = types.shown(spec.arrays), ["x".join(map(str, array.shape)) for array in spec.arrays]
    if spec.packed:
        parts = ", ".join(f"{array.name} of {size}" for array, size in zip(spec.packed, sizes, strict=True))
        return "pixels" if shown == "images" else "vector", f" shows {parts}"
    return "pixels" if shown == "images" else "vector", f" shows {shown} of {sizes[0]}"


def cpu_values(preset: str, agent: str, *, explicit: Set[str]) -> dict[str, options.Value]:
    """Returns what a preset changes on a CPU, except for the user's settings."""
    values = {**find(preset).on_cpu, **part(preset, agent).on_cpu}
    return {name: value for name, value in values.items() if name not in explicit}


class PresetFile(NamedTuple):
    """The content of a file. Its settings count as the user's own, so a run directory keeps them."""

    preset: str  # the preset of the table that the file changes
    settings: dict[str, str]  # texts by SECTION.KEY


def is_file(preset: str) -> bool:
    """Returns whether --preset names a file: presets have neither dots nor slashes."""
    return "." in preset or "/" in preset


def read_file(path: str | os.PathLike[str]) -> PresetFile:
    """Returns the content of a file.

    Raises:
      ConfigError: with file and line, if a line is not a setting, an unknown or repeated one, or has a wrong value.
    """
    found: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        text = line.strip()
        if not text or text.startswith(("#", "//")):
            continue
        key, has_value, value = text.removeprefix("--").partition("=")
        key = configs.ALIASES.get(key, key)
        if not (text.startswith("--") and has_value):
            raise errors.ConfigError(f"{path}:{number}: {text!r}; expected --setting=value")
        if key in found:
            raise errors.ConfigError(f"{path}:{number}: --{key} is in line {lines[key]}, too; leave one out")
        found[key], lines[key] = value, number
    preset = found.pop("preset", "")
    if not preset:
        raise errors.ConfigError(f"{path}:1: --preset=NAME is missing, the preset that the file changes")
    try:
        agent = found.get("run.agent") or agent_of(preset)
        values: dict[str, options.Value | str] = {**found}
        configs.override(get(preset, agent), values)
        configs.check_read(found, agent)
    except errors.ConfigError as error:
        names = {name: (f"--{name}", configs.flag(name)) for name in lines}
        at = [line for name, line in lines.items() if any(flag in str(error) for flag in names[name])]
        raise errors.ConfigError(f"{path}:{(at or [lines.get(configs.ALIASES['agent'], 1)])[0]}: {error}") from None
    return PresetFile(preset, found)


def _text(path: str | os.PathLike[str]) -> str:
    try:
        content = pathlib.Path(path).read_bytes()
        return content.decode("utf-8-sig")  # editors on Windows put a mark at the beginning
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise errors.ConfigError(f"{path}:{line}: no text; expected lines of --setting=value") from None
    except OSError as error:
        raise errors.ConfigError(f"--preset={path}: {error.strerror}; expected a file, or a preset's name") from None


# Decides when a run ends: by default as the environment does, if neither the user nor the preset says when.
NO_END: Mapping[str, options.Value] = {
    "run.stop_at_return": math.inf,
    "run.max_env_steps": 0,
    "run.max_updates": 0,
    "run.max_seconds": 0.0,
}
"""Setting that ends a run -> its value for no end."""
_STEPS = {"gym:MinAtar/": 5_000_000, "atari:": 50_000_000, "gym:ALE/": 50_000_000}
"""Prefix of an id -> training steps of the published runs: MinAtar's 5 million frames (Young & Tian 2019), and Atari's
200 million of 4 a step (Machado et al. 2018)."""


def default_end(
    config: configs.Config, *, explicit: Set[str], reward_threshold: float | None
) -> dict[str, options.Value]:
    """Returns the values of the default end; none if an end is set, or the user chose to have none.

    Args:
      config: a preset's values with the user's over them.
      explicit: names SECTION.KEY of what the user set.
      reward_threshold: mean return at which the environment counts as solved; None: unknown.
    """
    values = configs.flatten(config)
    if NO_END.keys() & explicit or any(values[name] != off for name, off in NO_END.items()):
        return {}
    # The returns of episodes that are cut off mean less than the threshold does.
    is_scored = config.evaluation.every_updates > 0 and "evaluation.max_episode_steps" not in explicit
    if reward_threshold is not None and is_scored:
        return {"run.stop_at_return": reward_threshold}
    steps = next((steps for prefix, steps in _STEPS.items() if config.env.id.startswith(prefix)), 0)
    return {"run.max_env_steps": steps} if steps else {}


def end_sentence(config: configs.Config, *, preset: str, explicit: Set[str]) -> str:
    """Describes the ends that the user did not set, or an endless run; "" if the user set all."""
    values = configs.flatten(config)
    found = [name for name, off in NO_END.items() if values[name] != off]
    if not found:
        return "" if NO_END.keys() & explicit else _ENDLESS
    named = [f"{_shown(config, name)} ({_source(config, name, preset)})" for name in found if name not in explicit]
    off = [f"{configs.flag(name)}={options.shown(NO_END[name])}" for name in found if name not in explicit]
    verb = "ends" if len(named) == len(found) else "also ends"
    return f"{verb} {' or '.join(named)}; to train without that, give {' '.join(off)}" if named else ""


_ENDLESS = (
    "no end is set: Ctrl-C saves and leaves; --max_seconds=N, --max_env_steps=N or --stop_at_return=R ends the run"
)


def _shown(config: configs.Config, name: str) -> str:
    run = config.run
    return {
        "run.stop_at_return": f"at a mean return of {run.stop_at_return:g}",
        "run.max_env_steps": f"after {run.max_env_steps:,} steps",
        "run.max_updates": f"after {run.max_updates:,} updates",
        "run.max_seconds": f"after {run.max_seconds:g} s",
    }[name]


def _source(config: configs.Config, name: str, preset: str) -> str:
    """Returns the source of an end, for brackets: the preset, or else the environment."""
    of_preset, agent = configs.flatten(get(preset, config.run.agent)), config.run.agent
    own = {of_preset[name], cpu_values(preset, agent, explicit=frozenset()).get(name)}
    if configs.flatten(config)[name] in own:
        return f"preset {preset}'s own"
    kind = "threshold" if name == "run.stop_at_return" else "budget"
    return f"{config.env.id.rpartition(':')[2]}'s own {kind}"
