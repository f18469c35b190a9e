"""Opponents of games: random moves, and OpenSpiel's bot with a Monte Carlo tree search (UCT, random rollouts)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from seedzero.core import opponents

Bot: TypeAlias = Callable[[Any], int]
"""pyspiel.State, not terminal -> a legal action."""

_EXPLORATION = 2.0
_MEMORY = 64
"""Most megabytes of a tree."""


def random_move(state: Any, generator: np.random.Generator) -> int:
    """Returns a legal action, each with the same probability."""
    legal = state.legal_actions()
    return int(legal[generator.integers(len(legal))])


def make(name: str, generator: np.random.Generator) -> Bot:
    """Returns an opponent by its name, as of `opponents.parse`; equal numbers of the generator make equal moves."""
    num_simulations = opponents.num_simulations(name)
    if not num_simulations:
        return lambda state: random_move(state, generator)
    import pyspiel  # type: ignore[import-not-found, unused-ignore]

    def move(state: Any) -> int:
        seed, game = int(generator.integers(2**31)), state.get_game()
        if type(game).__module__.partition(".")[0] != "pyspiel":  # a game in Python: the bot in C++ crashes
            return int(_in_python(game, num_simulations, seed).step(state))
        rollouts = pyspiel.RandomRolloutEvaluator(1, seed)
        bot = pyspiel.MCTSBot(game, rollouts, _EXPLORATION, num_simulations, _MEMORY, True, seed, False)
        return int(bot.step(state))

    return move


def _in_python(game: Any, num_simulations: int, seed: int) -> Any:
    """Returns OpenSpiel's bot in Python."""
    from open_spiel.python.algorithms import mcts  # type: ignore[import-untyped, unused-ignore]

    random = np.random.RandomState(seed)
    rollouts = mcts.RandomRolloutEvaluator(1, random)
    return mcts.MCTSBot(game, _EXPLORATION, num_simulations, rollouts, random_state=random)
