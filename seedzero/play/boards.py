"""Boards that a page can draw, read from a game's own text: tic-tac-toe, connect four, hex and go."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_KINDS = ("tic_tac_toe", "connect_four", "hex", "go")
_STONES = {**dict.fromkeys(".+", 0), **dict.fromkeys("xyzX", 1), **dict.fromkeys("opqO", 2)}
"""OpenSpiel's hex has letters for stones that are connected with an edge."""
_LINE = re.compile(
    rf"\s*(?:\d+\s)?\s*(?P<cells>[{re.escape(''.join(_STONES))}](?:\s*[{re.escape(''.join(_STONES))}])*)\s*"
)


def of(env_id: str, text: str, legal: Iterable[int]) -> dict[str, Any] | None:
    """Returns the board in a text; None: the game has none of these.

    kind: of the game. stones: rows of 0 (free), 1 (the first side) and 2, the upper one first. actions: rows of legal
    actions, None in other cells; of connect four, each cell of an open column has its action.
    """
    family, _, name = env_id.partition(":")
    kind = "go" if name.startswith("go_") else name.partition("(")[0]
    if family not in ("spiel", "pgx") or kind not in _KINDS:
        return None
    found = [_LINE.fullmatch(line) for line in text.splitlines()]
    rows = [[_STONES[cell] for cell in line["cells"] if not cell.isspace()] for line in found if line]
    if not rows or len({len(row) for row in rows}) > 1:
        return None
    open_actions, height, width = set(legal), len(rows), len(rows[0])

    def action(row: int, column: int) -> int | None:
        if kind == "connect_four":
            number = column
        elif kind == "go" and family == "spiel":  # its first point is the lowest
            number = (height - 1 - row) * width + column
        else:
            number = row * width + column
        return number if number in open_actions else None

    actions = [[action(row, column) for column in range(width)] for row in range(height)]
    return {"kind": kind, "stones": rows, "actions": actions}
