"""Shows games of Pgx as texts: boards with names for their cells, or the numbers that a player observes.

Shape letters: H height, W width, C channels.
"""

from __future__ import annotations

import string
from typing import NamedTuple

import numpy as np

from seedzero.envs import pgx_ids

_MARKS = "XO"
"""Stones of the first and the second side."""
_FREE = "."
_MOST_NUMBERS = 64
"""Most numbers of an array in a text."""
_BOARDS = ("tic_tac_toe", "connect_four", "othello", "hex", "go", "go_9x9", "go_19x19")
"""Games whose observations begin with a plane of the mover's stones, and a plane of the opponent's."""


class PgxBoard(NamedTuple):
    """A board of H x W cells; game: its name without arguments."""

    game: str
    height: int
    width: int

    def text(self, seen: np.ndarray, mover: int) -> str:
        """Draws the board from the mover's observation [H, W, C]; mover: 0 for the first side, 1 for the second."""
        own, other = (seen[..., plane] > 0 for plane in (0, 1))
        stones = np.where(own, 1 + mover, np.where(other, 2 - mover, 0)).tolist()
        cells = [" ".join(f"{_FREE}{_MARKS}"[stone] for stone in line) for line in stones]
        if self.game == "connect_four":
            return "\n".join([*cells, " ".join(map(str, range(self.width)))])
        slant = " " if self.game == "hex" else ""
        lines = [f"{self.height - number:>2} {slant * number}{line}" for number, line in enumerate(cells)]
        return "\n".join([*lines, f"   {slant * self.height}{' '.join(string.ascii_lowercase[: self.width])}"])

    def move(self, action: int) -> str:
        """Returns the name of an action."""
        if self.game == "connect_four":
            return str(action)
        if action == self.height * self.width:
            return "swap" if self.game == "hex" else "pass"
        line, column = divmod(action, self.width)
        return f"{string.ascii_lowercase[column]}{self.height - line}"


def board(name: str, shape: tuple[int, ...]) -> PgxBoard | None:
    """Returns the board of a game, given the shape of its observations; None if they show no board."""
    if pgx_ids.module(name) or pgx_ids.parsed(name)[0] not in _BOARDS:
        return None
    return PgxBoard(pgx_ids.parsed(name)[0], *shape[:2])


def numbers(array: np.ndarray) -> str:
    """Shows an array of any game as text; where several planes are set in a cell, the highest one's number, from 1."""
    if array.ndim == 3:
        highest = np.where(array > 0, np.arange(1, array.shape[-1] + 1), 0).max(axis=-1)
        return "\n" + "\n".join(" ".join(f"{cell or _FREE:>3}" for cell in line) for line in highest.tolist())
    shown = [f"{value:g}" for value in array.reshape(-1)[:_MOST_NUMBERS].tolist()]
    return " ".join(shown) + (f" and {array.size - _MOST_NUMBERS} more" if array.size > _MOST_NUMBERS else "")
