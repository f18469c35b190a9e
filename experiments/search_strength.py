"""Plays games between two settings of the search, with the same checkpoint of a game of two players.

    python experiments/search_strength.py RUN_DIR A B [--games=400] [--moves=4] [--step=last] [--seed=0]

A and B are settings of `search`, without its name: `num_simulations=32`, or `num_simulations=7,rounds=1`; what they do
not name stays as in the run. Games come in pairs with the same random opening, in which each side moves first once.

The last line is JSON: A's wins, draws and losses, its score (a draw counts half) with the half width of a 95 %
interval over pairs; and for both sides the network calls of a move in a position with all actions legal, the rows of
these calls for one position, and the milliseconds of a move in one position and in a batch of 64.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.acting.actors import actor, agent_choice
from seedzero.acting.tables import match, scoring
from seedzero.config import configs
from seedzero.core import types
from seedzero.envs import turn_games
from seedzero.search import gumbel

BATCH = 64
_TIMED = 20
"""Timed moves, behind one that compiles."""


@dataclasses.dataclass(frozen=True)
class WithSettings(agent_choice.AgentChoice):
    """A choice with settings of its own for the search, as `NAME=VALUE,NAME=VALUE`."""

    settings: str = ""

    def config(self, *, makes_environments: bool = True) -> configs.Config:
        """Returns the run's configuration with these settings."""
        named = dict(pair.split("=", 1) for pair in self.settings.split(",") if pair)
        config = super().config(makes_environments=makes_environments)
        return configs.override(config, {f"search.{name}": value for name, value in named.items()})


def milliseconds(player: match.Player, state: turn_games.State, size: int) -> float:
    """Returns the median time of a move in each of `size` positions, which are one call."""
    player([state] * size)
    times = []
    for _ in range(_TIMED):
        began = time.perf_counter()
        player([state] * size)
        times.append(time.perf_counter() - began)
    return round(1000 * statistics.median(times), 2)


def side(choice: WithSettings) -> tuple[turn_games.TurnGame, match.Player, dict[str, Any]]:
    """Returns the game, the agent as a player of batches, and what a move costs."""
    search = choice.config().search
    game, player = scoring.engine(choice, size=BATCH)
    _, alone = scoring.engine(choice, size=1)
    num_actions = len(game.initial().legal_actions())
    widths = gumbel.sweep_widths(min(search.num_considered, num_actions), search.num_simulations, search.rounds)
    cost = {
        "settings": choice.settings,
        "calls": 1 + len(widths) if search.policy == "gumbel" else 1 + search.num_simulations,
        "rows": 1 + search.num_simulations,
        "ms_alone": milliseconds(alone, game.initial(), 1),
        f"ms_batch_{BATCH}": milliseconds(player, game.initial(), BATCH),
    }
    return game, player, cost


class Batched(NamedTuple):
    """Lets a player of batches act."""

    player: match.Player
    positions: turn_games.Positions

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        """Returns the actions, [E] int32, like `Actor.act`."""
        actions, rows = np.zeros(len(first), np.int32), np.flatnonzero(actor.shown(step))
        actions[rows] = self.player([self.positions.states[row] for row in rows])
        return actions


def score(totals: Sequence[float]) -> dict[str, Any]:
    """Returns A's results from its returns in pairs of games; an interval needs at least two pairs."""
    signs = np.sign(totals)
    pairs = ((1 + signs) / 2).reshape(-1, 2).mean(axis=1)
    counts = {name: int((signs == sign).sum()) for name, sign in (("wins", 1), ("draws", 0), ("losses", -1))}
    half = 1.96 * float(pairs.std(ddof=1)) / len(pairs) ** 0.5 if len(pairs) > 1 else None
    return {**counts, "score": float(pairs.mean()), "half_width": half}


def main() -> None:
    """Reads the command line, plays and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=pathlib.Path)
    parser.add_argument("settings", nargs=2, metavar="NAME=VALUE[,NAME=VALUE]")
    parser.add_argument("--games", type=int, default=400)
    parser.add_argument("--moves", type=int, default=4, help="of random openings")
    parser.add_argument("--step", default="last")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    step = int(given.step) if given.step.isdecimal() else given.step
    choices = [WithSettings(given.run_dir, step, seed=given.seed, settings=each) for each in given.settings]
    (game, first, cost), (_, second, other) = map(side, choices)
    generator = np.random.default_rng(given.seed)
    begun = [match.opening(game, generator, given.moves) for _ in range(-(-given.games // 2))]
    positions = turn_games.Positions(game, [state for state in begun for _ in range(2)], generator)
    games = match.play_games(positions, Batched(first, positions), Batched(second, positions))
    result = {"game": game.name, **score([each.total for each in games])}
    print(json.dumps({**result, "a": cost, "b": other, "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
