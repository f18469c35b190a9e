"""A run directory with a checkpoint of a league: two frozen players and ten matches."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from seedzero.config import configs, options, presets
from seedzero.league import members, payoffs
from seedzero.storage.checkpoints import checkpoint_dir, run_dirs

OLD, NEW = "main-0123456789ab", "main-ba9876543210"


def made_counters() -> dict[str, Any]:
    """Returns a checkpoint's counters: of the ten matches main won 4, drew 2 and lost 4."""
    pool, _ = members.Pool().freeze(members.MAIN, OLD[5:], version=30, env_steps=1_000)
    pool, _ = pool.freeze(members.MAIN, NEW[5:], version=60, env_steps=2_000)
    played = [
        *[payoffs.Match(payoffs.SELF_PLAY, "main", "main", 0, outcome, outcome) for outcome in (1, 0, -1)],
        *[payoffs.Match(payoffs.PAST, "main", OLD, side, 1, 1.0) for side in (0, 0, 1)],
        *[payoffs.Match(payoffs.PAST, "main", NEW, 1, outcome, outcome) for outcome in (0, -1, -1, -1)],
    ]
    league = {
        "pool": pool.to_json(),
        "payoff": payoffs.record(payoffs.Payoff(), played).to_json(),
        "active": [NEW, "main", NEW, OLD],
        "num_sets": 3,
        "num_void": 2,
    }
    return {"num_updates": 90, "ledger": {"stored": 2_500}, "league": league}


def make(
    path: pathlib.Path,
    counters: dict[str, Any] | None = None,
    preset: str = "league-tictactoe",
    params: Callable[[configs.Config], Any] = lambda config: {"weight": np.zeros(2, np.float32)},
    **changes: options.Value,
) -> pathlib.Path:
    """Writes the run directory, with a checkpoint of these counters and parameters; {}: with no checkpoint.

    changes: SECTION__KEY=value. Returns the path.
    """
    config = configs.override(presets.get(preset), {name.replace("__", "."): value for name, value in changes.items()})
    with run_dirs.open_run_dir(path, config, preset=preset, given={}) as opened:
        if (counters := made_counters() if counters is None else counters) != {}:
            files = checkpoint_dir.CheckpointDir(opened.checkpoints, config.checkpoint, lambda: 0.0)
            files.write(90, {"params": {"params": params(config)}}, counters, (), None)
        return opened.path


def make_seats(
    path: pathlib.Path, game: str = "kuhn_poker", counters: dict[str, Any] | None = None, **changes: options.Value
) -> pathlib.Path:
    """Writes the run directory of a small PPO agent in a game of seats; its frozen players differ from main.

    host, changes: as of `make`; a league unless changes say otherwise.
    """
    from seedzero.agents import agent_table  # JAX
    from seedzero.envs import spiel_seats
    from seedzero.storage.checkpoints import player_files, run_dirs

    spec = spiel_seats.SpielSeats(game).spec

    def params(config: configs.Config, seed: int = 0) -> Any:
        agent, random = agent_table.make(config, spec, "cpu"), np.random.default_rng(seed)
        shapes = jax.eval_shape(lambda: agent.acting(agent.init(jax.random.key(0))))
        return jax.tree.map(lambda x: random.normal(size=x.shape).astype(x.dtype), shapes)

    small: dict[str, options.Value] = {"run__agent": "ppo", "network__width": 4, "league__freeze_every": 1_000}
    path = make(path, counters, "cartpole", params, **{"env__id": f"spiel:{game}", **small, **changes})
    run_dirs.write_spec(path, spec)
    config = run_dirs.read_saved(path).config
    for seed, (name, version) in enumerate(((OLD, 30), (NEW, 60)), 1):
        player_files.write(path / "checkpoints", name, version, params(config, seed), {}, time=0.0)
    return path


def damaged(values: Any, *path: Any, value: Any) -> Any:
    """Returns a copy of JSON with another value at a path."""
    found = inner = copy.deepcopy(values)
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return found
