"""Describes the positions and actions of a game in words, as a seat may see them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from seedzero.core import packing, types
from seedzero.envs import pgx_texts, spiel


class Face(Protocol):
    """Shows a game to one seat.

    has_undo: whether a player may take moves back: nothing is hidden, and one player moves at a time.
    """

    has_undo: bool

    def text(self, seat: int, step: types.EnvStep, row: int) -> str:
        """Returns the position as a seat may see it; the observation is in this row of the step."""

    def move(self, seat: int, action: int) -> str:
        """Returns the game's name for an action that the seat may take now."""


def of(env_id: str, env: Any) -> Face:
    """Returns the face of a group of one game. env: made by `registry.make` and reset."""
    kind, _, name = env_id.partition(":")
    if kind == "spiel":
        return SpielFace(name, env)
    if kind == "pgx" and (board := pgx_texts.board(name, env.spec.arrays[0].shape)) is not None:
        return BoardFace(board, env.spec)
    return ArraysFace(env.spec, has_undo=kind == "pgx")


class SpielFace:
    """Uses OpenSpiel's own descriptions: of the whole state if nothing is hidden, otherwise of what the seat knows."""

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
        """Returns OpenSpiel's name of the action, or "wait" if the seat has no choice."""
        state = self._env.states[0]
        player = state.current_player() if self.has_undo else seat
        return str(state.action_to_string(player, action)) if state.legal_actions(player) else "wait"


class BoardFace:
    """Draws a board of Pgx from the observation of the side to move."""

    has_undo = True

    def __init__(self, board: pgx_texts.PgxBoard, spec: types.EnvSpec) -> None:
        self._board, self._spec = board, spec

    def text(self, seat: int, step: types.EnvStep, row: int) -> str:
        return self._board.text(_arrays(self._spec, step.observation[row])[self._spec.arrays[0].name], seat)

    def move(self, seat: int, action: int) -> str:
        return self._board.move(action)


class ArraysFace:
    """Lists the numbers that a seat observes, under the names of their arrays; actions are shown as numbers."""

    def __init__(self, spec: types.EnvSpec, *, has_undo: bool) -> None:
        self._spec, self.has_undo = spec, has_undo

    def text(self, seat: int, step: types.EnvStep, row: int) -> str:
        hidden = {array.name for array in self._spec.arrays if array.acting_only}
        shown = _arrays(self._spec, step.observation[row]).items()
        return "\n".join(f"{name}: {pgx_texts.numbers(array)}" for name, array in shown if name not in hidden)

    def move(self, seat: int, action: int) -> str:
        return str(action)


def _arrays(spec: types.EnvSpec, observation: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the arrays of one observation by name."""
    if not spec.packed:
        return {spec.arrays[0].name: observation}
    return {name: array[0] for name, array in packing.unpack(spec.packed, observation[np.newaxis]).items()}
