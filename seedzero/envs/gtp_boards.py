"""Writes and reads moves of Go, Hex and Othello as text, by the Go Text Protocol (GTP, version 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seedzero.core import errors

COLORS = ("black", "white")
"""Black makes the first move."""
_LETTERS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"
"""Letters of Go's columns, which leave out I."""
_ALL_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LAST = {"go": "pass", "othello": "pass", "hex": "swap-pieces"}
"""Name of the action after those of the board's cells."""


class GtpBoard(NamedTuple):
    """The board of a game as GTP's commands describe it."""

    kind: str  # go, hex or othello
    size: int
    komi: float | None  # None: the game has no komi

    @property
    def _letters(self) -> str:
        return _LETTERS if self.kind == "go" else _ALL_LETTERS

    def vertex(self, action: int) -> str:
        """Returns the name of an action: A1, or pass.

        Rows count from the bottom in Go, and from the top in Hex and Othello.
        """
        row, column = divmod(action, self.size)
        return _LAST[self.kind] if row == self.size else f"{self._letters[column]}{row + 1}"

    def action(self, vertex: str) -> int:
        """Returns the action with a name in any case. Raises ValueError if this board has none."""
        if vertex.lower() == _LAST[self.kind]:
            return self.size**2
        column, row = self._letters.find(vertex[:1].upper()), vertex[1:]
        if not vertex or not 0 <= column < self.size or not row.isdecimal() or not 1 <= int(row) <= self.size:
            raise ValueError(f"{vertex!r} is no move on this board; expected one as A1, or {_LAST[self.kind]}")
        return (int(row) - 1) * self.size + column


def color(text: str) -> int:
    """Returns the number of a color: b or black, w or white. Raises ValueError for other names."""
    found = [number for number, name in enumerate(COLORS) if text.lower() in (name, name[0])]
    if not found:
        raise ValueError(f"{text!r} is no color; expected black or white")
    return found[0]


def of(game: Any) -> GtpBoard:
    """Returns the board of a game, a pyspiel.Game or `pgx_games.PgxGame`.

    Raises EnvironmentFailure for other games.
    """
    # a game of Pgx knows its kind without OpenSpiel
    kind, values = getattr(game, "kind", None) or str(game.get_type().short_name), game.get_parameters()
    if kind not in _LAST:
        raise errors.EnvironmentFailure(f"game {kind!r} has no moves in GTP; the protocol is for {', '.join(_LAST)}")
    return GtpBoard(kind, _size(values), float(values["komi"]) if kind == "go" else None)


def _size(values: Mapping[str, Any]) -> int:
    sizes: Sequence[int] = [int(values[name]) for name in ("num_rows", "num_cols", "board_size") if name in values]
    sizes = sizes[:2] or [8]
    if len(set(sizes)) > 1:
        raise errors.EnvironmentFailure(
            f"a board of {sizes[0]}x{sizes[1]} has no size in GTP: boards are square there"
        )
    return sizes[0]
