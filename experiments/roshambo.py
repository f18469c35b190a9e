"""Repeated rock-paper-scissors against OpenSpiel's 43 bots, measured as in Lanctot et al. (2023, arXiv 2303.03196).

    python experiments/roshambo.py table [--games=3] [--out=runs/roshambo.json]
    python experiments/roshambo.py score RUN_DIR [--games=4] [--step=last] [--table=runs/roshambo.json]

`table` lets every pair of bots play games of 1,000 throws, and writes the mean returns [bot, bot]; `score` lets the
agent of a run play each bot, and prints its place among the bots of a table. An agent's population return is the mean
of its returns against all bots, and its within-population exploitability is the most that one of them wins against it.
Bots are ordered by the difference. A bot's return against itself is 0. With few games exploitability comes out too
large, because it is a maximum of noisy numbers, so compare only results from the same number of games per pair.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import runs

import seedzero
from seedzero.core import opponents
from seedzero.envs import bots, spiel

GAME = "repeated_game(stage_game=matrix_rps(),num_repetitions=1000,recall=20)"
Table = Mapping[str, Mapping[str, float]]


class Measures(NamedTuple):
    """An agent's population return, its within-population exploitability, and their difference, per game."""

    population_return: float
    exploitability: float
    score: float


def main() -> None:
    """Reads the command line, plays, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for_table = commands.add_parser("table")
    for_table.add_argument("--games", type=int, default=3)
    for_table.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/roshambo.json"))
    for_score = commands.add_parser("score")
    for_score.add_argument("run_dir")
    for_score.add_argument("--games", type=int, default=4, help="against each bot, half of them in each seat")
    for_score.add_argument("--step", default="last")
    for_score.add_argument("--table", type=pathlib.Path, default=pathlib.Path("runs/roshambo.json"))
    arguments = parser.parse_args()
    if arguments.command == "table":
        began = time.monotonic()
        table = cross_table(opponents.ROSHAMBO_BOTS, arguments.games)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(table))
        print(f"{arguments.games} games of each pair in {time.monotonic() - began:.0f} s")
        print(ranking({name: measures(row) for name, row in table.items()}))
        return
    if arguments.games < 2 or arguments.games % 2:
        parser.error(f"--games={arguments.games}: expected an even number, for both seats")
    step = int(arguments.step) if arguments.step.isdigit() else arguments.step
    found = agent_returns(arguments.run_dir, arguments.games, step=step)
    for name, value in sorted(found.items(), key=lambda pair: pair[1]):
        print(f"{name:18}{value:8.1f}")
    table = json.loads(arguments.table.read_text()) if arguments.table.exists() else {}
    print(ranking({**{name: measures(row) for name, row in table.items()}, "THE RUN": measures(found)}))


def cross_table(names: tuple[str, ...], num_games: int, *, game: str = GAME) -> dict[str, dict[str, float]]:
    """Returns each bot's mean return against each other one; 0 against itself."""
    table = {name: dict.fromkeys(names, 0.0) for name in names}
    played: Any = spiel.load(game)
    for pair, (one, other) in enumerate(itertools.combinations(names, 2)):
        sides = [bots.Members(2 * pair + side) for side in (0, 1)]  # each with its own draws
        total = 0.0
        for number in range(num_games):
            state = played.new_initial_state()
            for side in sides:
                side.begin(number)
            while not state.is_terminal():
                throws = zip(sides, (one, other), (0, 1), strict=True)
                state.apply_actions([side.move(opponents.ROSHAMBO + bot, state, seat) for side, bot, seat in throws])
            total += state.returns()[0]
        table[one][other], table[other][one] = total / num_games, -total / num_games
    return table


def agent_returns(run_dir: str, num_games: int, *, step: Any = "last") -> dict[str, float]:
    """Returns the mean return of a run's agent against each bot, over both seats."""
    every = opponents.ROSHAMBO + opponents.ALL
    episodes = num_games * len(opponents.ROSHAMBO_BOTS)
    found = seedzero.evaluate(run_dir, episodes, opponent=every, step=step, policy="sample")
    means = opponents.mean_returns(found.task_returns or {})
    return {name.removeprefix(opponents.ROSHAMBO): value for name, value in means.items()}


def measures(returns: Mapping[str, float]) -> Measures:
    """Returns an agent's measures from its mean returns against all bots."""
    mean, lost = sum(returns.values()) / len(returns), -min(returns.values())
    return Measures(mean, lost, mean - lost)


def ranking(found: Mapping[str, Measures]) -> str:
    """Returns the table in Markdown, the best first."""
    ordered = sorted(found.items(), key=lambda pair: -pair[1].score)
    rows = [(str(place), name, *(f"{value:.0f}" for value in one)) for place, (name, one) in enumerate(ordered, 1)]
    return runs.table(("place", "player", "population return", "exploitability", "difference"), rows)


if __name__ == "__main__":
    main()
