from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from seedzero.api import figures
from seedzero.core import errors
from seedzero.monitoring import series


def _line(label: str, *seeds: list[float]) -> figures.Line:
    x = np.arange(float(len(seeds[0])))
    band = series.band([series.curve(x, np.array(seed)) for seed in seeds])
    assert band is not None
    return figures.Line(label, band)


def _draw(*lines: figures.Line, ending: str = ".png") -> bytes:
    return figures.draw(lines, title="catch", x="steps", y="mean return", ending=ending)


@pytest.mark.thorough
@pytest.mark.parametrize(("ending", "begin"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_a_file_has_the_format_of_its_ending(ending: str, begin: bytes) -> None:
    pytest.importorskip("matplotlib")
    assert _draw(_line("a", [0, 1]), _line("b", [0, 1], [0, 2]), ending=ending).startswith(begin)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The panels of the figures that are saved."""
    figure, found = pytest.importorskip("matplotlib.figure"), list[Any]()
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, *args, **options: found.extend(self.axes))
    return found


def test_a_panel_has_lines_bands_and_a_legend(drawn: list[Any]) -> None:
    _draw(_line("a", [0, 1]), _line("b", [0, 1], [0, 3], [0, 2]), _line("c", [5]))
    (axis,) = drawn
    assert [list(line.get_ydata()) for line in axis.lines] == [[0, 1], [0, 2], [5]]
    assert len(axis.collections) == 1 and (axis.get_xlabel(), axis.get_title()) == ("steps", "catch")
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a", "b", "c"]
    low, high = axis.get_ylim()
    assert -3.5 < low < 0 and 5 < high < 8


def test_dollars_in_names_are_no_formulas() -> None:
    pytest.importorskip("matplotlib")
    words = {"title": r"$\gtp", "x": "steps", "y": r"info/$\won$"}
    assert figures.draw([_line(r"opponents=$\HOME$", [0, 1])], **words, ending=".svg").startswith(b"<?xml")


def test_two_runs_are_dots_and_no_band_that_fills_the_picture(drawn: list[Any]) -> None:
    _draw(_line("a", [0, 1], [0, 4]))
    (axis,) = drawn
    assert [list(line.get_ydata()) for line in axis.lines] == [[0, 2.5], [0, 1], [0, 4]] and not axis.collections
    assert [line.get_linestyle() for line in axis.lines] == ["-", "None", "None"]
    low, high = axis.get_ylim()
    assert -0.5 < low < 0 and 4 < high < 4.5  # the interval reaches 2.5 + 19
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a"]


def test_without_matplotlib_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(errors.UsageError, match=r"matplotlib.*--json.*pip install.*matplotlib"):
        _draw(_line("a", [0, 1]))
