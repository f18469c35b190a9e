"""Rows that are seats of games: hidden information, simultaneous moves, several players.

Shape letters: E rows of one group, S seats of a game, A actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from seedzero.core import types

State = Any
"""A state of a game, of the game's own type; no function here changes one."""


class SeatGame(Protocol):
    """The rules of a game of S = `num_seats` seats, as functions of single states."""

    name: str
    spec: types.EnvSpec
    num_seats: int

    def initial(self, generator: np.random.Generator) -> State:
        """Returns the state before the first move."""

    def movers(self, state: State) -> tuple[int, ...]:
        """Returns the seats that move now, at the same time; none: the game is over."""

    def is_out(self, state: State, seat: int) -> bool:
        """Returns whether a seat's episode has ended while others go on; such a seat is none of the movers."""

    def observe(self, state: State, seat: int) -> np.ndarray:
        """Returns a seat's observation, [*observation_shape] of the spec's dtype."""

    def legal_mask(self, state: State, seat: int) -> np.ndarray:
        """Returns [A] bool, true: legal; at least one."""

    def apply(self, state: State, actions: Mapping[int, int], generator: np.random.Generator) -> State:
        """Returns the state after the action of each mover, by seat; chance is drawn from the generator."""

    def returns(self, state: State) -> Sequence[float]:
        """Returns [S], each seat's sum of rewards since the first move."""


def random_action(mask: np.ndarray, generator: np.random.Generator) -> int:
    """Returns a legal action, each with the same probability; mask: [A] bool."""
    legal = np.flatnonzero(mask)
    return int(legal[generator.integers(len(legal))])
