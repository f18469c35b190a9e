"""Pictures of win rates, read back."""

from __future__ import annotations

import io
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from seedzero.api import heatmap
from seedzero.core import errors

TABLE = heatmap.WinRates(
    ("main", "main-0a", "a<b"),
    ((None, 1.0, 0.75), (0.0, None, 0.5), (0.25, 0.5, None)),
    ((0, 40, 4), (40, 0, 2), (4, 2, 0)),
    ((None, 5.0, 1.0), (0.0, None, 10.0), (1.0, 10.0, None)),
)
_SVG = "{http://www.w3.org/2000/svg}"


def _wide(number: int) -> heatmap.WinRates:
    names = [f"main-{place:012x}" for place in range(number)]
    rates = np.random.default_rng(0).random((number, number)).tolist()
    return heatmap.WinRates(names, rates, [[10] * number] * number, rates)


def _squares(content: bytes) -> dict[str, str]:
    """Returns the color of each square by its text for a browser."""
    found = ElementTree.fromstring(content).iter(f"{_SVG}rect")
    return {title.text or "": square.attrib["fill"] for square in found for title in square.iter(f"{_SVG}title")}


def test_a_square_has_the_color_and_text_of_its_win_rate() -> None:
    found = _squares(heatmap.svg(TABLE, "title & more"))
    assert len(found) == 9
    assert found["main against main-0a: 1.000 in 40 games, mean return 5"] == "#2166ac"
    assert found["main-0a against main: 0.000 in 40 games, mean return 0"] == "#b2182b"
    assert found["main-0a against a<b: 0.500 in 2 games, mean return 10"] == "#f7f7f7"
    assert found["main against a<b: 0.750 in 4 games, mean return 1"] == "#8caed2"  # halfway: (247 + 33) / 2, ...
    assert found["main against main: no match"] == "#dddddd"


def test_squares_of_returns_go_from_the_smallest_to_the_largest() -> None:
    content = heatmap.svg(TABLE, "title", of_returns=True)
    found = {label.partition(":")[0]: color for label, color in _squares(content).items()}
    assert (found["main against main-0a"], found["main-0a against main"]) == ("#f7f7f7", "#b2182b")
    assert (found["main-0a against a<b"], found["main against main"]) == ("#2166ac", "#dddddd")
    texts = [text.text for text in ElementTree.fromstring(content).iter(f"{_SVG}text")]
    assert [text for text in texts if text in ("0", "5", "10")] == ["5", "0", "10", "10"]
    even = TABLE._replace(returns=((None, 2.0, None), (2.0, None, None), (None, None, None)))
    assert list(_squares(heatmap.svg(even, "title", of_returns=True)).values()).count("#f7f7f7") == 2


def test_rows_have_names_and_columns_their_numbers() -> None:
    texts = [text.text for text in ElementTree.fromstring(heatmap.svg(TABLE, "title & more")).iter(f"{_SVG}text")]
    assert texts[0] == "title & more" and {"main 1", "main-0a 2", "a<b 3", "1", "2", "3"} <= set(texts)
    rates = [text for text in texts if text in ("0", "25", "50", "75", "100")]
    assert rates == ["100", "75", "0", "50", "25", "50"]


def test_a_png_shows_the_same_squares() -> None:
    picture = Image.open(io.BytesIO(heatmap.png(TABLE, "title")))
    squares = {square.label: square for square in heatmap._layout(TABLE, "title").squares}
    colors = {
        "main against main-0a: 1.000 in 40 games, mean return 5": "#2166ac",
        "main against main: no match": "#dddddd",
    }
    for label, color in colors.items():
        x, y, size = squares[label][:3]
        corner = picture.getpixel((round(2 * (x + size / 8)), round(2 * (y + size / 8))))
        assert "#" + bytes(corner).hex() == color  # type: ignore[arg-type]
    layout = heatmap._layout(TABLE, "title")
    assert picture.size == (round(2 * layout.width), round(2 * layout.height))


@pytest.mark.parametrize("number", [1, 40, 41, 300])
def test_a_league_of_any_size_has_room(number: int) -> None:
    layout = heatmap._layout(_wide(number), "wins in 100 matches")
    right = max(square.x + square.size for square in layout.squares)
    bottom = max(square.y + square.size for square in layout.squares)
    assert right < layout.width and bottom < layout.height < 4_000 and len(layout.squares) == number**2
    assert all(text.x - len(text.text) * heatmap._LETTER > 0 for text in layout.texts if text.anchor == "end")
    num_labels = sum(text.anchor == "end" for text in layout.texts)
    assert num_labels == (number if number <= 40 else -(-number // 5))


def test_without_pillow_an_svg_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert heatmap.svg(TABLE, "title").startswith(b"<svg")
    with pytest.raises(errors.UsageError, match=r"Pillow .*--out=FILE\.svg"):
        heatmap.png(TABLE, "title")
