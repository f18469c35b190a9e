"""Photographs of the page: which are taken, how large they are, and a browser told by its pipe."""

from __future__ import annotations

import io
import shutil
from typing import Any

import pytest
import screens  # see conftest.py
from PIL import Image


def test_every_screen_is_of_a_run_that_is_made_and_shown_in_the_document() -> None:
    text = (screens.ROOT / "docs/page.md").read_text()
    for screen in screens.SCREENS:
        runs = [part.removeprefix("run=") for part in screen.address.split("?")[-1].split("&") if "run=" in part]
        assert set(runs) <= {*screens.RUNS, "live"}
        assert screen.is_live or f"page/{screen.name}.png" in text, screen.name
    assert screens.RECORDED.keys() <= screens.RUNS.keys()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium is installed")
def test_the_browser_is_told_by_its_pipe(tmp_path: Any) -> None:
    page = tmp_path / "page.html"
    page.write_text("<body style='background: #f00; margin: 0'><main id=main>done</main></body>")
    with screens.Browser("chromium") as browser:
        screen = screens.Screen("x", "", width=320, height=200, seconds=60.0)
        image = Image.open(io.BytesIO(browser.picture(f"file://{page}", screen)))
        assert image.size == (320, 200) and image.convert("RGB").getpixel((310, 190)) == (255, 0, 0)
        with pytest.raises(RuntimeError, match=r"Nothing\.such"):
            browser._call("Nothing.such")
