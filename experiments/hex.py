"""The games of hex that a player wins as first mover from each opening that wins, against a perfect opponent.

    python experiments/hex.py RUN_DIR [--games=20] [--seed=0] [--step=best|last|N] [--simulations=N]

The first stone is given, and nobody swaps. The opponent draws among the moves that win; where none does, among all. So
in each game that the player loses it has made a mistake. The solver is `hex.c`, which gcc compiles; it is for boards
of up to 5x5 cells, where all openings take about a minute.

The last line is JSON: `openings` that win, those of them in which the player `held` the win in all games, its share of
`won` games, and the share that random moves win against the same opponent, `random_won`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import connect_four
import numpy as np

from seedzero.acting.actors import agent_choice
from seedzero.acting.tables import scoring
from seedzero.envs import turn_games

_TABLE_BITS, _BATCH = 22, 256
Player = Callable[[Sequence[turn_games.State]], np.ndarray]


class Solver:
    """Exact results from the compiled search, which keeps its table of positions between calls."""

    def __init__(self, size: int) -> None:
        """Compiles the search. Raises SystemExit if gcc is missing, or there is no memory."""
        self._library = connect_four.compiled(pathlib.Path(__file__).with_suffix(".c"))
        self._library.mover_wins.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int]
        self.num_cells = size * size
        if self._library.start(size, _TABLE_BITS):
            raise SystemExit(f"no memory for a table of 2^{_TABLE_BITS} positions")

    def mover_wins(self, moves: Sequence[int]) -> bool:
        """Returns whether the player to move wins after some moves, none of which swaps."""
        stones = [sum(1 << move for move in moves[side::2]) for side in range(2)]
        mover = len(moves) % 2
        return bool(self._library.mover_wins(stones[mover], stones[1 - mover], mover))

    def winning_moves(self, moves: Sequence[int]) -> list[int]:
        """Returns the winning moves of the player to move after some moves."""
        free = sorted(set(range(self.num_cells)) - set(moves))
        return [move for move in free if not self.mover_wins([*moves, move])]


def won_games(
    game: turn_games.TurnGame, player: Player, solver: Solver, openings: Sequence[int], generator: np.random.Generator
) -> np.ndarray:
    """Returns for each opening, which may be repeated, whether the player wins its game as the first mover."""
    states = [game.apply(game.initial(), opening) for opening in openings]
    while running := [index for index, state in enumerate(states) if not game.is_terminal(state)]:
        replying = [index for index in running if len(states[index].history()) % 2]
        for index in replying:
            moves = states[index].history()
            choices = solver.winning_moves(moves) or sorted(set(range(solver.num_cells)) - set(moves))
            states[index] = game.apply(states[index], int(generator.choice(choices)))
        thinking = [index for index in running if not game.is_terminal(states[index])]
        if thinking:
            for index, move in zip(thinking, player([states[index] for index in thinking]), strict=True):
                states[index] = game.apply(states[index], int(move))
    return np.array([len(state.history()) % 2 == 1 for state in states])  # the winner made the last move


def measure(choice: agent_choice.AgentChoice, num_games: int) -> dict[str, Any]:
    """Returns the openings held and the shares of games won."""
    game, player = scoring.engine(choice, size=_BATCH)
    size = math.isqrt(game.num_actions)
    if not game.name.startswith("hex") or size > 5:
        raise SystemExit(f"{choice.run_dir} was trained in {game.name}; expected hex on at most 5x5 cells")
    began, solver, generator = time.perf_counter(), Solver(size), np.random.default_rng(choice.seed)
    openings = solver.winning_moves([])

    def at_random(states: Sequence[turn_games.State]) -> np.ndarray:
        free = [sorted(set(range(size * size)) - set(state.history())) for state in states]
        return np.array([generator.choice(cells) for cells in free])

    games = [opening for opening in openings for _ in range(num_games)]
    won = won_games(game, player, solver, games, generator).reshape(len(openings), num_games)
    by_chance = won_games(game, at_random, solver, games, generator)
    return {
        "game": game.name,
        "openings": openings,
        "held": [opening for opening, all_won in zip(openings, won.all(axis=1), strict=True) if all_won],
        "won": float(won.mean()),
        "random_won": float(by_chance.mean()),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    """Reads the command line and prints the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=pathlib.Path)
    parser.add_argument("--games", type=int, default=20, help="of each opening")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", default="last")
    parser.add_argument("--simulations", type=int, default=None)
    given = parser.parse_args()
    step = int(given.step) if given.step.isdecimal() else given.step
    choice = agent_choice.AgentChoice(given.run_dir, step, seed=given.seed, simulations=given.simulations)
    print(json.dumps(measure(choice, given.games)))


if __name__ == "__main__":
    main()
