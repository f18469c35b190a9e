"""Draws win rates between players: as SVG without a package, as PNG with Pillow.

Both draw the same list of squares and texts. Rows and columns have the same players in the same order; columns show
only their numbers.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax import saxutils

from seedzero.core import errors

_LOST, _EVEN, _WON, _UNMET = (178, 24, 43), (247, 247, 247), (33, 102, 172), (221, 221, 221)
_FONT, _MARGIN, _LETTER = 12, 12, 7.3
"""Height of texts, width of the empty border, and width of a letter, in pixels."""
_MOST_NUMBERED = 40
"""Up to this number of players, squares show their numbers."""
_SCALE = 2
"""Pixels of a PNG for each pixel of the layout."""


class WinRates(NamedTuple):
    """Win rates and mean returns [N, N] of the rows' players against the columns', None if two never met.

    games: [N, N].
    """

    names: Sequence[str]
    rates: Sequence[Sequence[float | None]]
    games: Sequence[Sequence[int]]
    returns: Sequence[Sequence[float | None]]


class _Square(NamedTuple):
    x: float
    y: float
    size: float
    color: tuple[int, int, int]
    label: str


class _Text(NamedTuple):
    x: float
    y: float  # of its middle
    text: str
    anchor: str  # start, middle or end
    color: str = "#222222"


class _Drawing(NamedTuple):
    width: float
    height: float
    squares: list[_Square]
    texts: list[_Text]


def svg(table: WinRates, title: str, *, of_returns: bool = False) -> bytes:
    """Returns an SVG file. Hovering over a square shows its players, rate, games and mean return.

    of_returns: show mean returns, from the smallest to the largest, instead of win rates.
    """
    drawing = _layout(table, title, of_returns)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{drawing.width:g}" height="{drawing.height:g}" '
        f'font-family="monospace" font-size="{_FONT}">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for square in drawing.squares:
        red, green, blue = square.color
        lines.append(
            f'<rect x="{square.x:g}" y="{square.y:g}" width="{square.size:g}" height="{square.size:g}" stroke="white" '
            f'fill="#{red:02x}{green:02x}{blue:02x}"><title>{saxutils.escape(square.label)}</title></rect>'
        )
    lines += [
        f'<text x="{text.x:g}" y="{text.y:g}" text-anchor="{text.anchor}" dominant-baseline="central" '
        f'fill="{text.color}">{saxutils.escape(text.text)}</text>'
        for text in drawing.texts
    ]
    return "\n".join([*lines, "</svg>\n"]).encode()


def png(table: WinRates, title: str, *, of_returns: bool = False) -> bytes:
    """Returns a PNG file; the arguments are those of `svg`. Raises UsageError without Pillow."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise errors.UsageError(
            f"PNG needs the package Pillow ({error}); give --out=FILE.svg, or install it"
        ) from None
    drawing, anchors = _layout(table, title, of_returns), {"start": "lm", "middle": "mm", "end": "rm"}
    picture = Image.new("RGB", (round(_SCALE * drawing.width), round(_SCALE * drawing.height)), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(_SCALE * _FONT)
    for x, y, size, color, _ in drawing.squares:
        corners = [_SCALE * x, _SCALE * y, _SCALE * (x + size) - 1, _SCALE * (y + size) - 1]
        pen.rectangle(corners, fill=color, outline="white")
    for text in drawing.texts:
        place = (_SCALE * text.x, _SCALE * text.y)
        pen.text(place, text.text, fill=text.color, font=font, anchor=anchors[text.anchor])
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def _layout(table: WinRates, title: str, of_returns: bool = False) -> _Drawing:
    number, is_numbered = len(table.names), len(table.names) <= _MOST_NUMBERED
    size = 30.0 if is_numbered else 12.0
    labels = [f"{name} {place}" for place, name in enumerate(table.names, 1)]
    left, top = _MARGIN + _LETTER * max(map(len, labels)) + 6, 2 * _MARGIN + 2.5 * _FONT
    width = max(left + number * size, _MARGIN + _LETTER * len(title)) + _MARGIN
    drawing = _Drawing(width, top + number * size + _MARGIN, [], [_Text(_MARGIN, _MARGIN + _FONT / 2, title, "start")])
    every = 1 if is_numbered else 5  # numbers of more columns do not fit
    shares = shares_of(table.returns) if of_returns else table.rates
    for row, name in enumerate(table.names):
        middle = (row + 0.5) * size
        if row % every == 0:
            drawing.texts.append(_Text(left - 6, top + middle, labels[row], "end"))
            drawing.texts.append(_Text(left + middle, top - _FONT, str(row + 1), "middle"))
        for column, opponent in enumerate(table.names):
            rate, mean, share = table.rates[row][column], table.returns[row][column], shares[row][column]
            told = f"{rate:.3f} in {table.games[row][column]:,} games" if rate is not None else "no match"
            label = f"{name} against {opponent}: {told}" + ("" if mean is None else f", mean return {mean:.4g}")
            drawing.squares.append(_Square(left + column * size, top + row * size, size, _color(share), label))
            if share is not None and is_numbered:
                color = "#ffffff" if abs(share - 0.5) > 0.3 else "#222222"
                place = (left + (column + 0.5) * size, top + middle)
                told = f"{mean:.2g}" if of_returns else f"{100 * share:.0f}"
                drawing.texts.append(_Text(*place, told, "middle", color))
    return drawing


def shares_of(returns: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Maps mean returns [N, N] to numbers from 0, the smallest one, to 1, the largest."""
    known = [value for row in returns for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)

    def share(value: float | None) -> float | None:
        return value if value is None else (value - low) / (high - low) if high > low else 0.5

    return [[share(value) for value in row] for row in returns]


def _color(rate: float | None) -> tuple[int, int, int]:
    """Returns a colour: red for 0, white for 0.5, blue for 1, and grey for players that never met."""
    if rate is None:
        return _UNMET
    end, share = (_WON if rate > 0.5 else _LOST), 2 * abs(rate - 0.5)
    red, green, blue = (round(share * far + (1 - share) * near) for far, near in zip(end, _EVEN, strict=True))
    return red, green, blue
