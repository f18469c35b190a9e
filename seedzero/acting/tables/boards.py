"""Reads the board in a game's text, so that a page can draw it; knows no rules, and needs no JAX."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from typing import Any

_KINDS = ("tic_tac_toe", "connect_four", "hex", "go", "othello", "breakthrough")
_STONES = {**dict.fromkeys(".+-", 0), **dict.fromkeys("xyzXb", 1), **dict.fromkeys("opqOw", 2)}
"""OpenSpiel's hex uses letters for stones that are connected to an edge."""
_CELL = f"[{re.escape(''.join(_STONES))}]"
_LINE = re.compile(rf"\s*(?P<row>\d+)?\s*(?P<cells>{_CELL}(?:\s*{_CELL})*)[\s\d]*")
_POINTS = re.compile(r"\|([.xo\d]{6})\|([.xo\d]{6})\|")


def board_of(env_id: str, text: str, legal: Iterable[int] = ()) -> dict[str, Any] | None:
    """Returns the board in a text, or None for other games and texts.

    kind: of the game. stones: rows from the top, with 0 for free, 1 for the first side, and 2. actions: rows of legal
    actions, or None; in connect four, each cell of an open column has the column's action, and in games of moving
    pieces no cell has one. rows, columns: their names. pieces: rows of letters, in chess. Backgammon has points: of 1
    to 24, the stones of the first side, or those of the second below 0; and rest: lines of text.
    """
    family, _, name = env_id.partition(":")
    kind = "go" if name.startswith("go_") else name.partition("(")[0]
    if family == "spiel" and kind in ("chess", "backgammon"):
        return _chess(text) if kind == "chess" else _backgammon(text)
    if family not in ("spiel", "pgx") or kind not in _KINDS:
        return None
    found = list(filter(None, map(_LINE.fullmatch, text.splitlines())))
    stones = [[_STONES[cell] for cell in line["cells"] if not cell.isspace()] for line in found]
    if not stones or len({len(row) for row in stones}) > 1:
        return None
    open_actions, height, width = set(legal), len(stones), len(stones[0])

    def action(row: int, column: int) -> int | None:
        if kind == "connect_four":
            number = column
        elif kind == "go" and family == "spiel":  # the text's first point is at the bottom
            number = (height - 1 - row) * width + column
        else:
            number = row * width + column
        return number if kind != "breakthrough" and number in open_actions else None

    actions = [[action(row, column) for column in range(width)] for row in range(height)]
    names: Iterable[Any] = string.ascii_lowercase
    if kind in ("tic_tac_toe", "connect_four"):
        names = range(width)
    elif kind == "go" and family == "spiel":
        names = string.ascii_lowercase.replace("i", "")
    first = {"tic_tac_toe": 0, "hex": 1}.get(kind)
    rows = [line["row"] or ("" if first is None else str(first + number)) for number, line in enumerate(found)]
    columns = [str(name) for name, _ in zip(names, range(width), strict=False)]
    return {"kind": kind, "stones": stones, "actions": actions, "rows": rows, "columns": columns}


def _chess(text: str) -> dict[str, Any] | None:
    """Returns the board in a line of Forsyth-Edwards notation."""
    rows = re.sub(r"[1-8]", lambda found: " " * int(found[0]), text.partition(" ")[0]).split("/")
    if [len(row) for row in rows] != [8] * 8 or set("".join(rows)) - set(" pnbrqkPNBRQK"):
        return None
    stones = [[0 if cell == " " else 1 + cell.islower() for cell in row] for row in rows]
    names = {"rows": list("87654321"), "columns": list("abcdefgh"), "pieces": [[*row.lower()] for row in rows]}
    return {"kind": "chess", "stones": stones, "actions": [[None] * 8] * 8, **names}


def _backgammon(text: str) -> dict[str, Any] | None:
    """Returns the points in OpenSpiel's drawing: 13 to 24 above, from the left, and 12 to 1 below."""
    lines = [found[1] + found[2] for found in map(_POINTS.fullmatch, text.splitlines()) if found]
    if len(lines) != 10:
        return None

    def count(column: str) -> int:
        number = next((int(cell) for cell in column if cell.isdigit()), sum(cell in "xo" for cell in column))
        return number if "x" in column else -number

    above, below = (["".join(line[place] for line in half) for place in range(12)] for half in (lines[:5], lines[5:]))
    points = [*map(count, reversed(below)), *map(count, above)]
    rest = [line for line in text.splitlines() if line and line[0] not in "|+"]
    return {"kind": "backgammon", "points": points, "rest": rest}
