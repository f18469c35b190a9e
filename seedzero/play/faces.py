"""Games as texts for one of their seats, with the names of its actions.

Shape letters: H height, W width, C channels, A actions.
"""

from __future__ import annotations

import string
from typing import Any, Protocol

import numpy as np

from seedzero.core import packing, types
from seedzero.envs import pgx_ids, spiel

_MARKS = "XO"
"""Stones of the first and of the second side."""
_FREE = "."
_MOST_NUMBERS = 64
"""Of an observation's array in a text."""
_BOARDS = ("tic_tac_toe", "connect_four", "othello", "hex", "go", "go_9x9", "go_19x19")
"""Pgx's games whose observation's first two planes are the stones of the side to move, and of the other one."""


class Face(Protocol):
    """A game that is shown to one seat.

    has_undo: whether a move may be taken back: all seats see everything, and one moves at a time.
    """

    has_undo: bool

    def text(self, seat: int, step: types.EnvStep, row: int) -> str:
        """Returns the position as a seat may see it; a row of the step has its observation."""

    def move(self, seat: int, action: int) -> str:
        """Returns the game's name of an action that the seat may take now."""


def of(env_id: str, env: Any) -> Face:
    """Returns the texts of a group that holds one game. env: as of `registry.make`, after a reset."""
    kind, _, name = env_id.partition(":")
    if kind == "spiel":
        return SpielFace(name, env)
    if kind == "pgx" and pgx_ids.parsed(name)[0] in _BOARDS and not pgx_ids.module(name):
        return BoardFace(pgx_ids.parsed(name)[0], env.spec)
    return ArraysFace(env.spec, has_undo=kind == "pgx")


class SpielFace:
    """OpenSpiel's own texts: the state if nothing is hidden, else the seat's knowledge of it."""

    def __init__(self, name: str, env: Any) -> None:
        self._env = env
        kind = spiel.load(name).get_type()
        is_open = kind.information == kind.Information.PERFECT_INFORMATION
        self.has_undo = is_open and kind.dynamics == kind.Dynamics.SEQUENTIAL
        self._knows = kind.provides_information_state_string

    def text(self, seat: int, step: types.EnvStep, row: int) -> str:
        state = self._env.states[0]
        if self.has_undo:
            return str(state)
        return str(state.information_state_string(seat) if self._knows else state.observation_string(seat))

    def move(self, seat: int, action: int) -> str:
        """Returns OpenSpiel's name; a seat without a choice waits."""
        state = self._env.states[0]
        player = state.current_player() if self.has_undo else seat
        return str(state.action_to_string(player, action)) if state.legal_actions(player) else "wait"


class BoardFace:
    """A board of Pgx's, drawn from the observation of the side to move."""

    has_undo = True

    def __init__(self, game: str, spec: types.EnvSpec) -> None:
        self._game, self._spec = game, spec
        self.size = spec.arrays[0].shape[:2]

    def text(self, seat: int, step: types.EnvStep, row: int) -> str:
        board, (height, width) = self.stones(seat, step, row), self.size
        cells = [" ".join(f"{_FREE}{_MARKS}"[stone] for stone in line) for line in board]
        if self._game == "connect_four":
            return "\n".join([*cells, " ".join(map(str, range(width)))])
        slant = " " if self._game == "hex" else ""
        lines = [f"{height - number:>2} {slant * number}{line}" for number, line in enumerate(cells)]
        return "\n".join([*lines, f"   {slant * height}{' '.join(string.ascii_lowercase[:width])}"])

    def stones(self, mover: int, step: types.EnvStep, row: int) -> np.ndarray:
        """Returns the board [H, W] int: 0 free, 1 the first side, 2 the second one. mover: the side to move."""
        planes = _arrays(self._spec, step.observation[row])[self._spec.arrays[0].name]
        own, other = (planes[..., plane] > 0 for plane in (0, 1))
        return np.where(own, 1 + mover, np.where(other, 2 - mover, 0))

    def move(self, seat: int, action: int) -> str:
        height, width = self.size
        if self._game == "connect_four":
            return str(action)
        if action == height * width:
            return "swap" if self._game == "hex" else "pass"
        line, column = divmod(action, width)
        return f"{string.ascii_lowercase[column]}{height - line}"


class ArraysFace:
    """The numbers that a seat observes, by the names of their arrays; its actions are numbers."""

    def __init__(self, spec: types.EnvSpec, *, has_undo: bool) -> None:
        self._spec, self.has_undo = spec, has_undo

    def text(self, seat: int, step: types.EnvStep, row: int) -> str:
        shown = _arrays(self._spec, step.observation[row]).items()
        return "\n".join(f"{name}: {_numbers(array)}" for name, array in shown if not self._is_for_acting(name))

    def move(self, seat: int, action: int) -> str:
        return str(action)

    def _is_for_acting(self, name: str) -> bool:
        return next(array.acting_only for array in self._spec.arrays if array.name == name)


def _arrays(spec: types.EnvSpec, observation: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the arrays of one observation by their names."""
    if not spec.packed:
        return {spec.arrays[0].name: observation}
    return {name: array[0] for name, array in packing.unpack(spec.packed, observation[np.newaxis]).items()}


def _numbers(array: np.ndarray) -> str:
    if array.ndim == 3:  # of several planes in a cell the highest
        highest = np.where(array > 0, np.arange(1, array.shape[-1] + 1), 0).max(axis=-1)
        return "\n" + "\n".join(" ".join(f"{cell or _FREE:>3}" for cell in line) for line in highest.tolist())
    shown = [f"{value:g}" for value in array.reshape(-1)[:_MOST_NUMBERS].tolist()]
    return " ".join(shown) + (f" and {array.size - _MOST_NUMBERS} more" if array.size > _MOST_NUMBERS else "")
