"""Run directories of small agents with random parameters in games, for tests that play against them."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import jax
import numpy as np
import saved_league

from seedzero.agents import agent_table
from seedzero.config import configs, options, presets
from seedzero.core import types
from seedzero.envs import registry
from seedzero.storage.checkpoints import run_dirs

_SMALL: dict[str, options.Value] = {
    "network__width": 4,
    "network__head_width": 4,
    "network__num_bins": 11,
    "search__num_simulations": 4,
    "worker__envs_per_group": 12,
    "evaluation__num_envs": 12,
    "evaluation__episodes": 12,
}


def make(path: pathlib.Path, env_id: str, agent: str = "", **changes: options.Value) -> pathlib.Path:
    """Writes the run directory of a game; returns the path. agent: "": by the game. changes: SECTION__KEY=value."""
    if not agent:
        settings = configs.override(configs.Config(), {"env.id": env_id}).env
        agent = "ppo" if registry.seated_by(settings) or env_id == "catch" else "muzero"
    state: dict[str, options.Value] = {"env__game_state": True} if agent == "alphazero" else {}
    given: dict[str, options.Value] = {**_SMALL, **state, "env__id": env_id, "run__agent": agent, **changes}
    named = {name.replace("__", "."): value for name, value in given.items()}
    preset = "cartpole" if agent == "ppo" else "tictactoe"
    config = configs.override(presets.get(preset, agent), named)
    spec = spec_of(config)

    made = saved_league.make(path, {"num_updates": 90}, preset, functools.partial(params_of, spec=spec), **given)
    run_dirs.write_spec(made, spec)
    return made


def params_of(config: configs.Config, spec: types.EnvSpec) -> Any:
    """Returns random acting parameters of a run's agent."""
    made, random = agent_table.make(config, spec, "cpu"), np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: made.acting(made.init(jax.random.key(0))))
    return jax.tree.map(lambda x: random.normal(size=x.shape).astype(x.dtype), shapes)


def spec_of(config: configs.Config) -> types.EnvSpec:
    """Returns the spec of a game's environments, as a worker tells it."""
    env = registry.make(config.env.id, config.env, 1)
    num_rows = max(1, len(env.spec.seats))
    env = registry.make(config.env.id, config.env, num_rows)
    env.reset([0] * num_rows)
    return env.spec
