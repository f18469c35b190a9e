"""Measures the share of an agent's moves that are optimal, in positions of random play.

    python experiments/keeps_value.py RUN_DIR [--positions=1000] [--seed=0] [--step=best|last|N]

The agent moves as in `seedzero evaluate`: with its search, without noise. The last line is JSON: `share` of all
positions; `decisive_share` of the positions with at least one legal move that loses value.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from typing import Any

import numpy as np
import solver

from seedzero.acting.actors import agent_choice
from seedzero.acting.tables import scoring
from seedzero.envs import bots, spiel

_BATCH = 64
_TRIES = 100
"""Limit of random games per requested position."""


def main() -> None:
    """Reads the command line and prints the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=pathlib.Path)
    parser.add_argument("--positions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", default=None)
    arguments = parser.parse_args()
    step = int(arguments.step) if arguments.step and arguments.step.isdecimal() else arguments.step
    print(json.dumps(measure(arguments.run_dir, step, arguments.positions, arguments.seed)))


def measure(run_dir: pathlib.Path, step: Any, num_positions: int, seed: int) -> dict[str, Any]:
    """Returns the shares, and the seconds of the solver and the agent."""
    game, player = scoring.engine(agent_choice.AgentChoice(run_dir, step), size=_BATCH)
    states = random_positions(game, num_positions, np.random.default_rng(seed))
    exact = solver.Solver(game)
    began = time.perf_counter()
    values = [exact.action_values(state) for state in states]
    solved = time.perf_counter()
    actions = player(states)
    moved = time.perf_counter()
    kept = np.array([value[int(action)] == max(value.values()) for value, action in zip(values, actions, strict=True)])
    decisive = np.array([min(value.values()) < max(value.values()) for value in values])
    return {
        "game": game.name,
        "positions": len(states),
        "share": float(kept.mean()),
        "decisive_positions": int(decisive.sum()),
        "decisive_share": float(kept[decisive].mean()),
        "solver_seconds": round(solved - began, 1),
        "solver_positions": exact.num_positions,
        "agent_seconds": round(moved - solved, 1),
    }


def random_positions(game: spiel.Game, number: int, generator: np.random.Generator) -> list[spiel.State]:
    """Returns distinct non-terminal positions: one per random game, each of its moves equally likely.

    Fewer than `number` if the game has fewer.
    """
    found: dict[str, spiel.State] = {}
    for _ in range(_TRIES * number):
        if len(found) == number:
            break
        states = [game.initial()]
        while not game.is_terminal(states[-1]):
            states.append(game.apply(states[-1], bots.random_move(states[-1], generator)))
        state = states[generator.integers(len(states) - 1)]
        found[str(state)] = state
    return list(found.values())


if __name__ == "__main__":
    main()
