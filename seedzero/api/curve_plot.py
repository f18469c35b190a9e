"""Draws learning curves with matplotlib: means with their intervals."""

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
    axis.set_ylabel(y)
    axis.set_title(title, fontsize="medium")
    axis.grid(alpha=0.3)
    axis.margins(x=0.02)
    if any(line.label for line in lines):
        axis.legend(fontsize="small", framealpha=0.8)
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
