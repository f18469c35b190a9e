"""The share of a player's moves that are optimal in connect four on 6 rows and 7 columns, by an exact solver.

    python experiments/connect_four.py RUN_DIR [--positions=2000] [--seed=0] [--step=best|last|N] [--simulations=N]

The positions have at least 8 stones, and half of them fewer than 20. They come from games of the player against
itself, in which two moves are random. A move is optimal if it keeps the position's result: win, draw or loss with best
play of both. The solver is `connect_four.c`, which gcc compiles. A position that takes longer than `--limit` visits is
left out, and counted.

The last line is JSON: `share`, of all positions; `decisive_share`, of those with a move that loses value; the same of
random moves, as means over legal moves; and the player's first move, whose result is known (Allis 1988).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seedzero.acting.actors import agent_choice
from seedzero.acting.tables import scoring
from seedzero.envs import turn_games

COLUMNS, FULL = 7, 2
FIRST_MOVES = (-1, -1, 0, 1, 0, -1, -1)
"""Results of the first player's opening moves: only the middle column wins."""
FEWEST_STONES, EARLY = 8, 20
_TABLE_BITS = 24
_GAMES = 256
"""Number of games played at a time."""


def compiled(source: pathlib.Path) -> ctypes.CDLL:
    """Returns the functions of a file in C. Raises SystemExit if gcc is missing, or fails."""
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / f"{source.stem}.so"
        command = ["gcc", "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"{source} needs gcc: {getattr(error, 'stderr', None) or error}") from None
        return ctypes.CDLL(str(library))


class Solver:
    """Exact results from the compiled search, which keeps its table of positions between calls."""

    def __init__(self, *, table_bits: int = _TABLE_BITS) -> None:
        """Compiles the search. Raises SystemExit if gcc is missing, or fails."""
        self._library = compiled(pathlib.Path(__file__).with_suffix(".c"))
        if self._library.start(table_bits):
            raise SystemExit(f"no memory for a table of 2^{table_bits} positions")

    def action_values(self, moves: Sequence[int], limit: int = 2**62) -> dict[int, int] | None:
        """Returns, for each legal column, the result for the player to move after some moves: 1, 0 or -1.

        limit: most positions to visit. Returns None if it was reached. Raises ValueError if the moves are impossible,
        or the game is over.
        """
        given, found = (ctypes.c_int8 * len(moves))(*moves), (ctypes.c_int8 * COLUMNS)()
        code = self._library.results(given, len(moves), ctypes.c_uint64(limit), found)
        if code == 2:
            raise ValueError(f"{list(moves)} is not a beginning of a game")
        return None if code else {column: value for column, value in enumerate(found) if value != FULL}


def own_positions(
    game: turn_games.TurnGame,
    player: Callable[[Sequence[turn_games.State]], np.ndarray],
    number: int,
    generator: np.random.Generator,
) -> list[turn_games.State]:
    """Returns different positions from a player's games against itself, with two random moves in each game.

    Half of them have fewer than EARLY stones. Fewer are returned if ten times as many games find no more.
    """
    found: dict[tuple[int, ...], turn_games.State] = {}
    early: list[turn_games.State] = []
    late: list[turn_games.State] = []
    for _ in range(max(1, 10 * number // _GAMES)):
        states = [game.initial()] * _GAMES
        chance = [set(generator.choice(EARLY, 2, replace=False).tolist()) for _ in states]
        for ply in range(6 * COLUMNS):
            running = [index for index, state in enumerate(states) if not game.is_terminal(state)]
            thinking = [index for index in running if ply not in chance[index]]
            if not running:
                break
            moves = {index: int(generator.choice(states[index].legal_actions())) for index in running}
            if thinking:
                chosen = player([states[index] for index in thinking])
                moves |= dict(zip(thinking, map(int, chosen), strict=True))
            for index, move in moves.items():
                state = states[index] = game.apply(states[index], move)
                key = tuple(sorted(enumerate(state.history()), key=lambda at: (at[1], at[0])))
                columns = tuple((number % 2, move) for number, move in key)
                if ply + 1 >= FEWEST_STONES and not game.is_terminal(state) and columns not in found:
                    found[columns] = state  # type: ignore[index]
                    (early if ply + 1 < EARLY else late).append(state)
        if len(early) >= number - number // 2 and len(late) >= number // 2:
            break
    parts = ((early, number - number // 2), (late, number // 2))
    return [part[index] for part, most in parts for index in generator.permutation(len(part))[:most].tolist()]


def measure(
    run_dir: pathlib.Path, step: Any, num_positions: int, seed: int, limit: int, num_simulations: int | None = None
) -> dict[str, Any]:
    """Returns the shares, and the seconds that solver and player took."""
    choice = agent_choice.AgentChoice(run_dir, step or "last", simulations=num_simulations)
    game, player = scoring.engine(choice, size=_GAMES)
    if game.num_actions != COLUMNS or not game.name.startswith("connect_four"):
        raise SystemExit(f"{run_dir} was trained in {game.name}; expected connect four on 6 rows and 7 columns")
    began = time.perf_counter()
    states = own_positions(game, player, num_positions, np.random.default_rng(seed))
    actions = player(states)
    played = time.perf_counter()
    solver = Solver()
    values = [solver.action_values(state.history(), limit) for state in states]
    solved = time.perf_counter()
    known = [(value, int(action)) for value, action in zip(values, actions, strict=True) if value is not None]
    best = [max(value.values()) for value, _ in known]
    kept = np.array([value[action] == top for (value, action), top in zip(known, best, strict=True)])
    chance = np.array([np.mean([each == top for each in v.values()]) for (v, _), top in zip(known, best, strict=True)])
    decisive, first = chance < 1.0, int(player([game.initial()])[0])
    return {
        "game": game.name,
        "positions": len(known),
        "early": sum(len(s.history()) < EARLY for s, v in zip(states, values, strict=True) if v is not None),
        "unsolved": len(states) - len(known),
        "share": float(kept.mean()),
        "random_share": float(chance.mean()),
        "decisive_positions": int(decisive.sum()),
        "decisive_share": float(kept[decisive].mean()),
        "decisive_random_share": float(chance[decisive].mean()),
        "first_move": first,
        "first_result": FIRST_MOVES[first],
        "player_seconds": round(played - began, 1),
        "solver_seconds": round(solved - played, 1),
    }


def main() -> None:
    """Reads the command line and prints the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=pathlib.Path)
    parser.add_argument("--positions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", default=None)
    parser.add_argument("--simulations", type=int, default=None)
    parser.add_argument("--limit", type=int, default=50_000_000, help="visited positions for each one of the measure")
    given = parser.parse_args()
    step = int(given.step) if given.step and given.step.isdecimal() else given.step
    print(json.dumps(measure(given.run_dir, step, given.positions, given.seed, given.limit, given.simulations)))


if __name__ == "__main__":
    main()
