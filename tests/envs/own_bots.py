"""Bots of a user's, as of `seedzero.envs.bots.Function`, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np


def clever(state: Any, player: int, generator: np.random.Generator) -> int:
    """Wins where one move does, else moves at random."""
    legal = state.legal_actions(player)
    for action in legal:
        after = state.child(action)
        if after.is_terminal() and after.returns()[player] > 0:
            return int(action)
    return int(generator.choice(legal))


def illegal(state: Any, player: int, generator: np.random.Generator) -> int:
    return 9


def nothing(state: Any, player: int, generator: np.random.Generator) -> None:
    return None


def fails(state: Any, player: int, generator: np.random.Generator) -> int:
    raise KeyError("move")


def moves_on(state: Any, player: int, generator: np.random.Generator) -> int:
    """Plays on in the state that it was given."""
    state.apply_action(4)
    return 4


def looks_back(state: Any, player: int, generator: np.random.Generator) -> int:
    """Repeats the last move."""
    return int(state.history()[-1])
