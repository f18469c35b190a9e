"""Exact values of small games of two players, by exhaustive search.

python experiments/solver.py "connect_four(rows=4,columns=5)"
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from seedzero.envs import spiel


class Solver:
    """Negamax with a table of visited positions. Positions must not repeat within a game.

    A position's value is the mover's return if both players are optimal. A move with the game's largest return ends a
    position's search, because no move is better, so the value stays exact.
    """

    def __init__(self, game: spiel.Game) -> None:
        """
        Args:
          game: of two players.
        """
        self._game = game
        self._values: dict[tuple[str, int], float] = {}
        self._most = float(game.initial().get_game().max_utility())
        # Moves in the middle of a board decide more games, so trying them first shortens the search.
        middle = (game.num_actions - 1) / 2
        self._order = {action: abs(action - middle) for action in range(game.num_actions)}

    @property
    def num_positions(self) -> int:
        """Number of positions in the table."""
        return len(self._values)

    def value(self, state: Any) -> float:
        """Returns the value of a non-terminal state for the player to move."""
        key = (str(state), self._game.mover(state))
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = self._search(state)
        return found

    def action_values(self, state: Any) -> dict[int, float]:
        """Returns each legal action's value for the player to move."""
        return {action: self._after(state, state.child(action)) for action in state.legal_actions()}

    def _search(self, state: Any) -> float:
        children = [state.child(action) for action in sorted(state.legal_actions(), key=self._order.__getitem__)]
        best = -self._most
        # Terminal children first, because they cost nothing.
        for child in sorted(children, key=lambda child: not child.is_terminal()):
            best = max(best, self._after(state, child))
            if best == self._most:
                break
        return best

    def _after(self, state: Any, child: Any) -> float:
        """Returns the value of the move from `state` to `child` for its mover."""
        if child.is_terminal():
            return float(child.returns()[self._game.mover(state)])
        return 0.0 - self.value(child)  # a draw is 0.0, not -0.0


def main(arguments: list[str]) -> None:
    """Solves the named game from its initial state and prints value, positions and seconds as JSON."""
    (name,) = arguments
    solver = Solver(spiel.Game(name))
    began = time.perf_counter()
    value = solver.value(spiel.Game(name).initial())
    seconds = round(time.perf_counter() - began, 1)
    print(json.dumps({"game": name, "value": value, "positions": solver.num_positions, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1:])
