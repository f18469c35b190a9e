"""Draws win rates between players with matplotlib. Columns have the rows' players, and only show their numbers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seedzero.api import curve_plot

FORMATS = (".svg", ".png", ".pdf")
"""The file endings that can be written."""
_LOST, _EVEN, _WON, _UNMET = "#b2182b", "#f7f7f7", "#2166ac", "#dddddd"
_MOST_NUMBERED = 40
"""Up to this number of players, squares show their numbers."""
_INCHES, _SMALL_INCHES = 0.3, 0.12
"""Size of a square, with and without its number."""


class WinRates(NamedTuple):
    """Win rates and mean returns [N, N] of the rows' players against the columns', None if two never met.

    games: [N, N].
    """

    names: Sequence[str]
    rates: Sequence[Sequence[float | None]]
    games: Sequence[Sequence[int]]
    returns: Sequence[Sequence[float | None]]


def draw(table: WinRates, title: str, *, ending: str, of_returns: bool = False) -> bytes:
    """Returns a picture: red for 0, white for 0.5, blue for 1, and grey for players that never met.

    ending: one of `FORMATS`. of_returns: show mean returns, from the smallest to the largest, instead of win rates.
    Raises UsageError if matplotlib is missing.
    """
    curve_plot.check("`seedzero league payoff --json`")
    from matplotlib import colors, figure

    number, is_numbered = len(table.names), len(table.names) <= _MOST_NUMBERED
    side = number * (_INCHES if is_numbered else _SMALL_INCHES)
    picture = figure.Figure(figsize=(side + 4.0, side + 1.0), layout="constrained")
    axis = picture.add_subplot()
    shares = np.array(shares_of(table.returns) if of_returns else table.rates, np.float64)  # None: NaN
    # An odd number of colours: 0.5 has the middle one.
    palette = colors.LinearSegmentedColormap.from_list("rates", [_LOST, _EVEN, _WON], 257).with_extremes(bad=_UNMET)
    axis.imshow(shares, palette, vmin=0.0, vmax=1.0)
    places = range(0, number, 1 if is_numbered else 5)  # numbers of more columns do not fit
    axis.set_yticks(places, [f"{table.names[place]} {place + 1}" for place in places], parse_math=False)
    axis.set_xticks(places, [str(place + 1) for place in places])
    axis.tick_params(length=0, labelsize=8, top=True, labeltop=True, bottom=False, labelbottom=False)
    axis.set_title(title, fontsize=10, parse_math=False)
    if is_numbered:
        for row, column in np.argwhere(~np.isnan(shares)):
            share, mean = shares[row, column], table.returns[row][column]
            text = f"{mean:.2g}" if of_returns else f"{100 * share:.0f}"
            color = "white" if abs(share - 0.5) > 0.3 else "black"
            axis.text(column, row, text, ha="center", va="center", fontsize=8, color=color)
    file = io.BytesIO()
    picture.savefig(file, format=ending.removeprefix("."))
    return file.getvalue()


def shares_of(returns: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Maps mean returns [N, N] to numbers from 0, the smallest one, to 1, the largest."""
    known = [value for row in returns for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)

    def share(value: float | None) -> float | None:
        return value if value is None else (value - low) / (high - low) if high > low else 0.5

    return [[share(value) for value in row] for row in returns]
