"""Reads the board of tic-tac-toe, connect four, hex or go from the game's text, so that a page can draw it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_KINDS = ("tic_tac_toe", "connect_four", "hex", "go")
_STONES = {**dict.fromkeys(".+", 0), **dict.fromkeys("xyzX", 1), **dict.fromkeys("opqO", 2)}
"""OpenSpiel's hex uses letters for stones that are connected to an edge."""
_LINE = re.compile(
    rf"\s*(?:\d+\s)?\s*(?P<cells>[{re.escape(''.join(_STONES))}](?:\s*[{re.escape(''.join(_STONES))}])*)\s*"
)


def of(env_id: str, text: str, legal: Iterable[int]) -> dict[str, Any] | None:
    """Returns the board in a text, or None for other games.

    kind: of the game. stones: rows from the top, with 0 for free, 1 for the first side, and 2. actions: rows of legal
    actions, or None; in connect four, each cell of an open column has the column's action.
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
        elif kind == "go" and family == "spiel":  # the text's first point is at the bottom
            number = (height - 1 - row) * width + column
        else:
            number = row * width + column
        return number if number in open_actions else None

    actions = [[action(row, column) for column in range(width)] for row in range(height)]
    return {"kind": kind, "stones": rows, "actions": actions}
