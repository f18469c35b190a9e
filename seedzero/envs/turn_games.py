"""The interface of games whose players take turns, as functions of single states: OpenSpiel's and Pgx's."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from seedzero.core import types

State = Any
"""A pyspiel.State, or a `pgx_games.State` with the same methods; functions here do not change it."""


class TurnGame(Protocol):
    """The rules of a game; `spec` describes its environments. Generators draw chance."""

    name: str
    spec: types.EnvSpec
    num_players: int
    num_actions: int
    has_chance: bool
    first_mover: int  # 0 or 1; where chance decides who begins, 0 stands for the first side

    def initial(self, generator: np.random.Generator | None = None) -> State:
        """Returns the state before the first move, after chance."""

    def mover(self, state: State) -> int:
        """Returns the player to move, 0 or 1; in a terminal state the one whose turn it would be."""

    def observe(self, state: State) -> np.ndarray:
        """Returns the observation of the player to move, of the spec's dtype."""

    def legal_mask(self, state: State) -> np.ndarray:
        """Returns [A] bool, true: legal; all true in a terminal state, which ignores every action."""

    def apply(self, state: State, action: int, generator: np.random.Generator | None = None) -> State:
        """Returns the state after a legal move, and after chance. Raises EnvironmentFailure if the move is illegal."""

    def is_terminal(self, state: State) -> bool:
        """Returns whether the game is over."""

    def returns(self, state: State) -> tuple[float, ...]:
        """Returns each player's sum of rewards since the first move."""
