"""Pictures of win rates."""

from __future__ import annotations

import io
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from seedzero.api import figures
from seedzero.core import errors

TABLE = figures.WinRates(
    ("main", "main-0a", "a<b$"),
    ((None, 1.0, 0.75), (0.0, None, 0.5), (0.25, 0.5, None)),
    ((0, 40, 4), (40, 0, 2), (4, 2, 0)),
    ((None, 5.0, 1.0), (0.0, None, 10.0), (1.0, 10.0, None)),
)


def _colors(table: figures.WinRates, *, of_returns: bool = False) -> set[str]:
    content = figures.draw_win_rates(table, "title & $more$", ending=".png", of_returns=of_returns)
    pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).reshape(-1, 3)
    found, counts = np.unique(pixels, axis=0, return_counts=True)
    return {"#" + bytes(color.tolist()).hex() for color, count in zip(found, counts, strict=True) if count > 200}


def test_squares_have_the_colors_of_their_win_rates() -> None:
    found = _colors(TABLE)
    assert {"#b2182b", "#f7f7f7", "#2166ac", "#dddddd"} <= found  # 0, 0.5, 1 and players that never met


def test_squares_of_returns_go_from_the_smallest_to_the_largest() -> None:
    assert figures.shares_of(TABLE.returns) == [[None, 0.5, 0.1], [0.0, None, 1.0], [0.1, 1.0, None]]
    even = TABLE._replace(returns=((None, 2.0, None), (2.0, None, None), (None, None, None)))
    assert {"#f7f7f7", "#dddddd"} <= (found := _colors(even, of_returns=True)) and "#2166ac" not in found


@pytest.mark.thorough
@pytest.mark.parametrize("number", [1, 40, 41, 300])
def test_a_league_of_any_size_is_drawn(number: int) -> None:
    names = [f"main-{place:012x}" for place in range(number)]
    rates = np.random.default_rng(0).random((number, number)).tolist()
    table = figures.WinRates(names, rates, [[10] * number] * number, rates)
    picture = Image.open(io.BytesIO(figures.draw_win_rates(table, "wins in 100 matches", ending=".png")))
    assert 400 < picture.width < 5_000


def test_an_svg_can_be_read() -> None:
    assert ElementTree.fromstring(figures.draw_win_rates(TABLE, "title & $more$", ending=".svg")).tag.endswith("svg")


def test_without_matplotlib_the_numbers_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(errors.UsageError, match=r"matplotlib .*league payoff --json.*install"):
        figures.draw_win_rates(TABLE, "title", ending=".svg")
