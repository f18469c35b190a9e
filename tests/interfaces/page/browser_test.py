"""The pages in a real browser, without a screen: all is drawn, nothing is refused, hostile names stay texts."""

from __future__ import annotations

import pathlib
import re
import subprocess
import urllib.parse
from collections.abc import Iterator
from typing import Any, cast

import browser_driver
import page_records
import page_runs
import pytest
import saved_league

from seedzero.interfaces.page import app, live_feeds, thinker

BACK = "\x1b[2J"
EVIL = "<img src=x onerror=document.title='broken'>"
pytestmark = browser_driver.NEEDS_BROWSER


class _Thinker:
    """Answers with a tree of 50 simulations: one line of illegal moves, and children of the root."""

    def ask(self, question: object) -> dict[str, Any]:
        nodes = [_node(number, number - 1 if number < 25 else 0) for number in range(51)]
        for node in nodes[1:]:
            nodes[node["parent"]]["children"].append(node["number"])
        choice = {"number": 1, "name": EVIL, "is_legal": True, "is_taken": True, "prior": 0.5, "policy": 1.0}
        choice |= {"visits": 50, "q_value": 0.25, "completed_q": 0.25}
        numbers = {"value": 0.5, "network_value": 0.25, "num_simulations": 50, "num_nodes": 51, "seconds": 0.1}
        line = {"text": EVIL, "visits": 50, "q_value": 0.25, "nodes": list(range(1, 25))}
        found = {"choices": [choice], "num_choices": 1, "lines": [line], "nodes": nodes}
        return {"step": 7, "action": 1, "name": EVIL, **numbers, **found}


def _node(number: int, parent: int) -> dict[str, Any]:
    numbers = {"prior": 0.5, "visits": 51 - number, "reward": 0.0, "discount": -1.0, "value": 0.0, "depth": 1}
    is_root = not number
    texts = {"name": "" if is_root else f"{EVIL}{number}", "position": f"{EVIL}{number}", "is_legal": number % 2 == 0}
    return {"number": number, "parent": None if is_root else parent, "children": [], "frame": None, **numbers, **texts}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the address of a page with a run of hostile names, and a league."""
    root = tmp_path_factory.mktemp("runs")
    config = {"preset": EVIL, "given": {}, "config": {**page_runs.CONFIG["config"], "env.id": EVIL}}
    rows = [page_runs.row(number, episode_return=number, loss=1.0, **{EVIL: 1.0}) for number in range(1, 5)]
    page_runs.write(root / "a <b>", *rows, config=config, status={"finished": EVIL, "env_steps": 80})
    (root / "a <b>" / "train.log").write_text(f"{EVIL}{BACK}")
    (root / "a <b>" / f"{EVIL}.mp4").write_bytes(b"no video")
    saved_league.make(root / "league")
    page_records.write(root / "league", actions=["left", EVIL, "right"], task=EVIL)
    page = app.Page(root)
    for environment in (None, 0):
        feed = page.live._feeds[root / "league", environment] = live_feeds.Feed(root / "league", environment)
        feed._learner = cast(Any, _Learner())
    page.thoughts = thinker.ThoughtAnswers(root, _Thinker(), trusted=False)  # type: ignore[arg-type]
    page.places.limit = 0  # virtual time would stand still beside an open stream; serve_test.py has streams
    with browser_driver.served(page) as address:
        yield address


class _Learner:
    """In place of a running learner; its worker has a hostile name."""

    def close(self) -> None:
        pass

    def ask(self, *, environment: int | None, **asked: Any) -> tuple[dict[str, Any], bytes]:
        found: dict[str, Any] = {"instance": "one"}
        worker = {"name": EVIL + BACK, "role": "train", "environments": 4, "groups": 2, "state": EVIL}
        if environment is None:
            calls = [[1, "act", 0.0, 0.1, 0.2, 3, 4, 7, ""], [2, EVIL, 0.2, 0.2, 0.5, 0, 0, None, EVIL]]
            found |= {"now": 1.0, "calls": calls, "means": {"batch_wait_seconds": 0.25}, "num_workers": 1234}
            status = {"steps_stored": 56_789, "steps_discarded": {EVIL: 3}}
            return {**found, "status": status, "workers": [{**worker, "quiet_seconds": 1.5}]}, b""
        arrays = [
            {"name": name, "shape": shape, "dtype": "uint8", "text": False, "low": 0, "high": 255}
            for name, shape in (("camera", [32, 32, 3]), ("board", [3, 3, 2]), ("speed", [2]))
        ]
        columns: dict[str, Any] = {
            "number": [4, 5],
            "reward": [0.0, 0.75],
            "action": [1, None],
            "first": [True, False],
        }
        columns |= {"terminated": [False, True], "value": [0.5, None], "policy": [[0.125, 0.875], [0.25, 0.75]]}
        found |= {"environments": {"train": [0], "evaluate": [7]}, "environment": 0, "role": "train", "note": EVIL}
        spec = {"arrays": arrays, "tasks": [], "action_names": ["noop", "fire"]}
        size = 32 * 32 * 3 + 3 * 3 * 2 + 2
        return {**found, "spec": spec, "worker": EVIL + BACK, "steps": columns}, bytes([1] * 2 * size)


def _open(url: str, profile: pathlib.Path) -> tuple[str, str]:
    """Returns the page's elements after its scripts, as HTML, and the browser's messages."""
    assert browser_driver.BROWSER is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--timeout=600000"]
    options = [f"--user-data-dir={profile}", "--virtual-time-budget=8000", "--dump-dom", url]
    command = [browser_driver.BROWSER, *flags, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("#/", ["<h1>Runs</h1>", "<title>Runs · seedzero</title>", "a &lt;b&gt;", "2 runs below", "tic_tac_toe"]),
        (
            "#/run?run=a+%3Cb%3E",
            ["<canvas", "episode_return", "Loss</h2>", "<title>a &lt;b&gt; · curves", "best evaluation", "80"],
        ),
        ("#/compare?run=a+%3Cb%3E&run=league", ["<canvas", "2 runs compared", "in which they differ</summary>"]),
        ("#/compare?run=a+%3Cb%3E&run=league&group=1", ["<canvas", "2 runs compared", "each run", "left out"]),
        ("#/log?run=a+%3Cb%3E", ["train.log", "&lt;img src=x", "x1b[2J", "bytes, the end is shown"]),
        ("#/records?run=a+%3Cb%3E", ["<video", "&lt;img src=x", "8 bytes", "/a &lt;b&gt;' --episodes=5"]),
        (
            "#/settings?run=a+%3Cb%3E",
            ["&lt;img src=x", "run.max_env_steps", "end after this many training steps"],
        ),
        (
            "#/league?run=league",
            ["Win rates", "Elo", "Lineage", "Who met whom", "main #1</span></th>", f'title="{saved_league.OLD}"'],
        ),
        ("#/runtime?run=league", ["acting", "1,233 more", "56,789", "&lt;img src=x", "[2J", "1.5 s ago", "250 ms"]),
        (
            "#/game?run=league&environment=0",
            ["0.750", "camera 32 ", "swatch", "<meter", "[2J", "evaluating 0", "fire"],
        ),
        ("#/game?run=a+%3Cb%3E", ["no learner is at work in this run", '<div hidden="">']),
        ("#/runtime?run=a+%3Cb%3E", ["no learner is at work in this run", '<div hidden="">']),
        ("#/records?run=league", ['aria-label="recorded episodes"', "episode-000000.npz", "&lt;img src=x"]),
        (
            "#/record?run=league&record=episode-000000.npz&step=1",
            ["<canvas", "1 of 5", "&lt;img src=x", "completed Q", "network_value", "think about step 1"],
        ),
        (
            "#/record?run=league&record=episode-000000.npz&step=2&think=1",
            ["Principal lines", "treeitem", "&lt;img src=x", "illegal", "50 simulations", "Before any action"],
        ),
        ("#/record?run=league&record=..%2Fconfig.npz", ["not the name of a record"]),
        ("#/run?run=" + urllib.parse.quote("../else"), ["not the name of a run"]),
    ],
)
def test_pages_are_drawn(url: str, address: str, expected: list[str], tmp_path: pathlib.Path) -> None:
    html, messages = _open(url + address, tmp_path)
    assert not [part for part in expected if part not in html], html
    elements = re.sub(r'"[^"]*"', "", html)  # browsers differ in attributes
    assert "<img" not in elements and "[object " not in html and "broken" not in html.partition("</title>")[0]
    lines = messages.splitlines()
    assert not [line for line in lines if "Content Security Policy" in line or "Uncaught" in line], messages


def test_a_tree_of_50_simulations_is_drawn_whole(url: str, tmp_path: pathlib.Path) -> None:
    html, _ = _open(f"{url}#/record?run=league&record=episode-000000.npz&think=1", tmp_path)
    assert html.count('role="treeitem"') == 51 and "Before any action" in html
    assert html.count('<span class="hidden"> visits </span>') == 51, "figures have names where heads are not seen"
    assert html.count('aria-label="actions"') == html.count('aria-label="actions of the thought"') == 1
    assert '<th scope="col"></th>' not in html


_HELD = """
const whole = window.fetch;
window.fetch = async (path, options) => {
  const answer = await whole(path, options);
  if (path.includes("PART")) await new Promise((resolve) => (window.release = resolve));
  const read = answer.json.bind(answer);
  answer.json = () => read().finally(() => (window.given ||= path.includes("PART")));
  return answer;
};
"""
"""Holds the answers to some requests until `release()`; `given` tells that a page has one."""


@pytest.mark.parametrize("part", ["api/record?", "api/steps"])
def test_a_page_that_is_late_does_not_replace_another(url: str, part: str, tmp_path: pathlib.Path) -> None:
    with browser_driver.opened(url, tmp_path) as tab:
        tab.wait("document.querySelector('h1')?.textContent === 'Runs'")
        tab.value(_HELD.replace("PART", part) + "location.hash = '#/record?run=league&record=episode-000000.npz'")
        tab.wait("window.release")
        tab.value("location.hash = '#/settings?run=league'")
        tab.wait("document.querySelector('[aria-label=\"find a setting\"]') !== null")
        tab.value("release()")
        tab.wait("window.given")
        assert tab.value("document.querySelector('[aria-label=\"find a setting\"]') !== null")
        assert tab.value("document.title") == "league · settings · seedzero"
        assert tab.value("location.hash") == "#/settings?run=league"
        assert tab.errors == []


def test_a_thought_that_takes_time_says_so(url: str, tmp_path: pathlib.Path) -> None:
    told = "document.querySelector('.thought .told')"
    with browser_driver.opened(url, tmp_path) as tab:
        tab.wait("document.querySelector('h1')?.textContent === 'Runs'")
        record = "#/record?run=league&record=episode-000000.npz&think=1"
        tab.value(_HELD.replace("PART", "api/thought") + f"location.hash = '{record}'")
        tab.wait(f"window.release && /^thinking about step 0… .*[0-9] s/.test({told}.textContent)")
        assert tab.value(f"{told}.querySelector('progress') !== null")
        tab.value("release()")
        tab.wait(f"/50 simulations/.test({told}.textContent)")
        assert tab.errors == []
