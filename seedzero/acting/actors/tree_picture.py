"""Draws a search tree, or probabilities, as SVG: plain text without scripts, fonts or links.

The picture has a white background, so that it is readable in light and dark notebooks.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MOST_NODES = 40
MOST_BARS = 20
_WIDTH, _HEIGHT, _ACROSS, _DOWN, _TOP, _MARGIN = 132, 36, 176, 46, 34, 12
_LONGEST = 18
"""Longest name in a box, in characters; its tooltip shows the whole name."""
_INK, _MAIN, _BAD, _GROUND = "#1f2328", "#1a5fb4", "#b3261e", "#ffffff"


class Box(NamedTuple):
    """A node of the picture: its parent's number, its texts, and the numbers that decide its size and color."""

    parent: int | None
    title: str
    text: str
    note: str
    visits: int
    depth: int
    value: float
    is_main: bool
    is_legal: bool
    is_round: bool = False


def tree(title: str, numbers: Sequence[int], boxes: Sequence[Box], most_nodes: int = MOST_NODES) -> str:
    """Draws the most visited nodes with the root at the left; `numbers` are the boxes' numbers, the root's first."""
    # A parent has more visits than its children, so every box that is kept has its parent.
    order = sorted(zip(numbers, boxes, strict=True), key=lambda pair: (-pair[1].visits, pair[0]))
    kept = dict(order[: max(1, most_nodes)])
    below: dict[int, list[int]] = {number: [] for number in kept}
    for number, box in kept.items():
        if box.parent is not None:
            below[box.parent].append(number)
    rows = _rows(numbers[0], below)
    largest = max(abs(box.value) for box in kept.values()) or 1.0
    most_visits = max(box.visits for box in kept.values())
    parts = list(_edges(kept, rows, most_visits)) + [_box(box, rows[n], largest) for n, box in kept.items()]
    left_out = f"; {len(kept)} of {len(boxes)} nodes" if len(kept) < len(boxes) else ""
    width = _MARGIN * 2 + _WIDTH + _ACROSS * max(box.depth for box in kept.values())
    height = _TOP + _MARGIN + _HEIGHT + _DOWN * max(rows.values())
    return _picture(f"{title}{left_out}", width, height, parts)


def bars(title: str, values: Sequence[tuple[str, float]]) -> str:
    """Draws the largest probabilities as named bars."""
    shown = sorted(values, key=lambda pair: -pair[1])[:MOST_BARS]
    parts = []
    for row, (name, value) in enumerate(shown):
        y = _TOP + 24 * row
        parts.append(_text(_MARGIN, y + 15, _short(name)))
        parts.append(f'<rect x="150" y="{y + 3}" width="{240 * value:.1f}" height="16" fill="{_MAIN}"/>')
        parts.append(_text(156 + 240 * value, y + 15, f"{value:.3f}"))
    return _picture(title, 460, _TOP + _MARGIN + 24 * len(shown), parts)


def _rows(root: int, below: dict[int, list[int]]) -> dict[int, float]:
    """Returns each node's row: leaves are stacked, and a parent is centered on its children."""
    rows: dict[int, float] = {}
    num_leaves = 0
    waiting = [(root, False)]
    while waiting:
        number, is_done = waiting.pop()
        children = below[number]
        if is_done:
            rows[number] = (rows[children[0]] + rows[children[-1]]) / 2
        elif children:
            waiting.append((number, True))
            waiting += [(child, False) for child in reversed(children)]
        else:
            rows[number], num_leaves = float(num_leaves), num_leaves + 1
    return rows


def _corner(box: Box, row: float) -> tuple[float, float]:
    return _MARGIN + _ACROSS * box.depth, _TOP + _DOWN * row


def _edges(kept: dict[int, Box], rows: dict[int, float], most_visits: int) -> Iterator[str]:
    for number, box in kept.items():
        if box.parent is not None:
            (x0, y0), (x1, y1) = _corner(kept[box.parent], rows[box.parent]), _corner(box, rows[number])
            x0, y0, y1 = x0 + _WIDTH, y0 + _HEIGHT / 2, y1 + _HEIGHT / 2
            middle = (x0 + x1) / 2
            width = 1.0 + 5.0 * box.visits / most_visits
            yield (
                f'<path d="M{x0:.0f} {y0:.1f}C{middle:.0f} {y0:.1f} {middle:.0f} {y1:.1f} {x1:.0f} {y1:.1f}" '
                f'fill="none" stroke="{_MAIN if box.is_main else "#9aa0a6"}" stroke-width="{width:.1f}"/>'
            )


def _box(box: Box, row: float, largest: float) -> str:
    x, y = _corner(box, row)
    share = min(1.0, abs(box.value) / largest) * 0.5
    red, green, blue = (46, 125, 50) if box.value >= 0 else (198, 40, 40)
    fill = "#" + "".join(f"{round(255 + (part - 255) * share):02x}" for part in (red, green, blue))
    corner = _HEIGHT // 2 if box.is_round else 5
    stroke = _BAD if not box.is_legal else _MAIN if box.is_main else "#5f6368"
    dashes = "" if box.is_legal else ' stroke-dasharray="5 3"'
    name = _short(box.title) if box.is_legal else f"{_short(box.title)} illegal"
    return (
        f"<g><title>{_escaped(box.note)}</title>"
        f'<rect x="{x:.0f}" y="{y:.1f}" width="{_WIDTH}" height="{_HEIGHT}" rx="{corner}" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="{2 if box.is_main else 1}"{dashes}/>'
        f"{_text(x + 8, y + 15, name, bold=True)}{_text(x + 8, y + 29, box.text)}</g>"
    )


def _picture(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    width = max(width, 2 * _MARGIN + 6.6 * len(title))
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" role="img">'
    ground = f'<rect width="100%" height="100%" rx="6" fill="{_GROUND}"/>'
    return "\n".join([head, f"<title>{_escaped(title)}</title>", ground, _text(_MARGIN, 20, title), *parts, "</svg>"])


def _text(x: float, y: float, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.1f}" fill="{_INK}"{weight}>{_escaped(text)}</text>'


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _escaped(text: str) -> str:
    """Escapes text for XML, which allows no control characters except line ends."""
    return html.escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))
