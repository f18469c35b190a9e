"""The table of runs in a real browser: sorted, grouped, filtered; a plot of means."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import browser_driver
import pytest
import saved_run

from seedzero.interfaces.page import app

pytestmark = browser_driver.NEEDS_BROWSER
NAMES = "[...document.querySelectorAll('.runs tbody tr')].map((row) => row.cells[1].innerText.split('\\n')[0])"


@pytest.fixture
def tab(tmp_path: pathlib.Path) -> Iterator[browser_driver.Tab]:
    root = tmp_path / "runs"
    for seed, value in ((1, 1.0), (2, 3.0)):
        saved_run.make(root / f"s{seed}", (0.0, value), run__seed=seed, optimizer__learning_rate=1e-3)
    saved_run.make(root / "t1", (0.0, 0.5), run__seed=1, optimizer__learning_rate=1e-4)
    with browser_driver.shown(app.Page(root), "", tmp_path / "profile") as tab:
        tab.wait(f"{NAMES}.length === 3")
        yield tab


def _set(tab: browser_driver.Tab, selector: str, value: str, event: str = "change") -> None:
    element = f"document.querySelector({selector!r})"
    tab.value(f"{element}.value = {value!r}; {element}.dispatchEvent(new Event({event!r}))")


def _choose(tab: browser_driver.Tab, name: str) -> None:
    tab.value(f"document.querySelector('input[aria-label=\"choose {name}\"]').click()")


def test_runs_are_sorted_grouped_and_compared(tab: browser_driver.Tab) -> None:
    tab.click("last")
    tab.wait(f"{NAMES}.join() === 's2,s1,t1'")
    tab.click("last ▾")
    tab.wait(f"{NAMES}.join() === 't1,s1,s2'")
    _set(tab, ".tools select", "seeds")
    tab.wait(f"{NAMES}.length === 2 && {NAMES}[1] === 'optimizer.learning_rate=0.001 (2 runs)'")
    assert "2 (-10.71 to 14.71)" in tab.value("document.querySelectorAll('.runs tbody tr')[1].innerText")
    _choose(tab, "optimizer.learning_rate=0.001")
    _choose(tab, "t1")
    tab.value("document.querySelector('.tools a.button').click()")
    tab.wait("document.querySelector('.plot canvas')")
    assert tab.value("document.querySelector('.u-legend').innerText").count("optimizer.learning_rate") == 2
    assert not tab.errors


def test_filters_and_columns_work_and_columns_stay_in_this_browser(tab: browser_driver.Tab) -> None:
    _set(tab, "input[type=search]", "s2", "input")
    tab.wait(f"{NAMES}.join() === 's2'")
    assert "1 of them here" in tab.value("document.body.innerText")
    tab.value("[...document.querySelectorAll('.picker label')].find((one) => one.textContent === 'run.seed').click()")
    tab.wait("[...document.querySelectorAll('.runs th')].some((one) => one.textContent === 'run.seed')")
    tab.value("location.reload()")
    tab.wait(f"{NAMES}.length === 3")
    tab.wait("[...document.querySelectorAll('.runs th')].some((one) => one.textContent === 'run.seed')")
    assert not tab.errors
