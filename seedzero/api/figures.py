"""Draws with matplotlib: learning curves with their intervals, and win rates between players."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seedzero.core import errors, packages
from seedzero.monitoring import series

FORMATS = (".png", ".svg", ".pdf")
"""The file endings that can be written."""
_MOST_COLORS = 10
"""Colours of runs; further runs have another style of line."""
_MOST_DOTS = 60
"""Dots of a run; more points are left out."""
_MARGIN = 0.06
"""Share of the height left free above and below the curves."""


class Line(NamedTuple):
    """A curve with its name in the legend, or "" if it has none there."""

    label: str
    band: series.Band


def check(instead: str = "--json") -> None:
    """Raises UsageError if matplotlib is missing. instead: what has the numbers without it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise errors.UsageError(
            f"a picture needs matplotlib ({error}); {instead} has the numbers, or install it: "
            f"{packages.install_command('matplotlib')}"
        ) from None


def draw(lines: Sequence[Line], *, title: str, x: str, y: str, ending: str) -> bytes:
    """Draws one panel and returns the file. x, y: names of the axes. ending: one of `FORMATS`. Raises as `check`.

    Two runs are shown as dots, because the interval of their mean would fill the panel: it is 13 times as wide as they
    are apart. The y axis covers the means and the dots; an interval of few seeds may be far wider and leaves the
    panel.
    """
    check()
    from matplotlib import figure, ticker

    picture = figure.Figure(figsize=(8, 5), layout="constrained")
    axis = picture.add_subplot()
    for number, line in enumerate(lines):
        band, style = line.band, ("-", "--", ":", "-.")[number // _MOST_COLORS % 4]
        is_point = len(band.x) == 1
        (drawn,) = axis.plot(band.x, band.mean, "o" if is_point else style, label=line.label or None, linewidth=1.8)
        if band.pair is not None:
            every = -(-len(band.x) // _MOST_DOTS)
            for run in band.pair:
                axis.plot(band.x, run, ".", color=drawn.get_color(), alpha=0.6, markersize=4, markevery=every)
        elif band.low is not None and band.high is not None:
            axis.fill_between(band.x, band.low, band.high, color=drawn.get_color(), alpha=0.18, linewidth=0)
    axis.set_ylim(*_limits(lines))
    axis.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    axis.set_xlabel(x)
    axis.set_ylabel(y, parse_math=False)
    axis.set_title(title, fontsize="medium", parse_math=False)
    axis.grid(alpha=0.3)
    axis.margins(x=0.02)
    if any(line.label for line in lines):
        for text in axis.legend(fontsize="small", framealpha=0.8).get_texts():
            text.set_parse_math(False)
    file = io.BytesIO()
    picture.savefig(file, format=ending.removeprefix("."), dpi=150)
    return file.getvalue()


def _limits(lines: Sequence[Line]) -> tuple[float, float]:
    """Returns the ends of the y axis, which covers means, dots, and intervals up to half their height beyond them."""
    means = np.concatenate([line.band.mean if line.band.pair is None else line.band.pair.ravel() for line in lines])
    low, high = float(means.min()), float(means.max())
    height = (high - low) or max(abs(high), 1.0) * 0.1
    wide = [line.band for line in lines if line.band.pair is None]
    lows = [band.low.min() for band in wide if band.low is not None]
    highs = [band.high.max() for band in wide if band.high is not None]
    least = max([low - height / 2, min([low, *map(float, lows)])])
    most = min([high + height / 2, max([high, *map(float, highs)])])
    return least - _MARGIN * height, most + _MARGIN * height


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


def draw_win_rates(table: WinRates, title: str, *, ending: str, of_returns: bool = False) -> bytes:
    """Returns a picture: red for 0, white for 0.5, blue for 1, and grey for players that never met.

    ending: ".svg", ".png" or ".pdf". of_returns: show mean returns, from the smallest to the largest, instead of win
    rates. Raises UsageError if matplotlib is missing.
    """
    check("`seedzero league payoff --json`")
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
