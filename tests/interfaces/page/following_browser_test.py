"""Pages that stay open, in a real browser: late metrics, lost requests, other tabs, and quick changes."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import browser_driver
import page_runs
import pytest

from seedzero.interfaces.page import app

pytestmark = browser_driver.NEEDS_BROWSER
HEADS = "[...document.querySelectorAll('h2')].map((one) => one.textContent)"


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    """Returns a run whose only row has rates, as the first one of a training."""
    return page_runs.write(tmp_path / "runs" / "a", page_runs.row(0, env_steps_per_second=5.0))


@pytest.fixture
def tab(run: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[browser_driver.Tab]:
    with browser_driver.shown(app.Page(run.parent), "#/", tmp_path / "profile") as tab:
        tab.wait("document.querySelectorAll('.runs tbody tr').length === 1")
        yield tab
        assert not tab.errors


@pytest.mark.parametrize("page", ["run", "compare"])
def test_metrics_that_begin_later_are_shown(page: str, run: pathlib.Path, tab: browser_driver.Tab) -> None:
    tab.value(f"location.hash = '#/{page}?run=a'")
    tab.wait("document.querySelector('.plot canvas')")
    assert "Loss" not in tab.value(HEADS)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(page_runs.encode(*(page_runs.row(number, loss=0.5, episode_return=1.0) for number in (1, 2))))
    if page == "run":
        tab.wait(f"{HEADS}.includes('Loss') && {HEADS}[0] === 'Return'")
        assert "loss" in tab.value("document.querySelector('.picker').textContent")
    else:
        tab.wait("[...document.querySelectorAll('option')].some((one) => one.value === 'loss')")


@pytest.mark.parametrize("root", [".", ".."])
def test_the_only_run_is_opened_at_once_and_named_in_the_tab(
    root: str, run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with browser_driver.shown(app.Page((run / root).resolve()), "", tmp_path / "profile") as tab:
        tab.wait("document.querySelector('.figures') && document.title === 'a · curves · seedzero'")
        tab.value("document.querySelector('.settings-link').click()")
        tab.wait("document.getElementById('about').textContent.includes('catch')")
        assert tab.value("document.title") == "a · settings · seedzero"
        assert tab.value("document.querySelector('h1').textContent") == "a" and not tab.errors
        assert tab.value("document.querySelector('.league-link').hidden"), "a run without a league has no such tab"


def test_the_legend_has_the_newest_values_or_those_at_the_pointer(run: pathlib.Path, tab: browser_driver.Tab) -> None:
    rows = [page_runs.row(number, episode_return=float(number)) for number in (1, 2, 3)]
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(page_runs.encode(*rows, page_runs.row(4, evaluation_mean_return=0.94)))
    tab.value("localStorage.setItem('smoothing', '0'); location.hash = '#/run?run=a'")
    legend = "document.querySelector('.u-legend')?.innerText"
    tab.wait(f"{legend} === 'training3evaluation0.94'")
    tab.value("""(() => {
        const [over] = document.getElementsByClassName("u-over");
        const { left, top } = over.getBoundingClientRect();
        const at = { clientX: left + 1, clientY: top + 9, bubbles: true };
        over.dispatchEvent(new MouseEvent("mouseenter", at));
        over.dispatchEvent(new MouseEvent("mousemove", at));
    })()""")
    tab.wait(f"{legend} === 'step20training1evaluation0.94'")


def test_means_are_asked_for_again_after_a_lost_request(tab: browser_driver.Tab) -> None:
    script = """(async () => {
        const { Means } = await import("/static/means.js");
        const [timers, whole, wait] = [[], window.fetch, window.setTimeout];
        window.setTimeout = (look) => timers.push(look);
        const means = new Means(document.getElementById("main").firstChild, ["a"], [], () => {});
        means.isLive = true;
        await means.show([{ title: "rate", metrics: ["env_steps_per_second"] }]);
        window.fetch = () => Promise.reject(new Error("lost"));
        await timers.shift()();
        const told = document.getElementById("notice").textContent;
        window.fetch = whole;
        await timers.shift()();
        window.setTimeout = wait;
        return [told, timers.length, document.getElementById("notice").textContent];
    })()"""
    assert tab.value(script) == ["lost", 1, ""]


def test_what_another_tab_keeps_is_not_overwritten(tab: browser_driver.Tab) -> None:
    tab.click("last")
    key = tab.wait("Object.keys(localStorage).find((one) => one.startsWith('runs '))")
    columns = "JSON.parse(localStorage.getItem(key)).columns"
    tab.value(f"""(() => {{
        window.key = {key!r};
        const view = JSON.parse(localStorage.getItem(key));
        localStorage.setItem(key, JSON.stringify({{ ...view, columns: ["run.agent"] }}));
        window.dispatchEvent(new StorageEvent("storage", {{ key }}));
    }})()""")
    tab.wait("document.querySelector('.runs tbody').innerText.includes('muzero\\tcatch')")
    tab.click("last ▾")
    assert tab.value(columns) == ["run.agent"]


def test_a_worker_that_left_stays_until_the_learner_is_another(tab: browser_driver.Tab) -> None:
    tab.value("""(() => {
        const whole = window.fetch;
        const one = { role: "train", environments: 4, groups: 2, state: "steps", quiet_seconds: 1 };
        window.told = (names, more = {}) => {
            const workers = names.map((name) => ({ name, ...one }));
            return { cursor: "0", workers, num_workers: names.length, ...more };
        };
        const found = { ok: true, status: 200, json: async () => told(["near", "far"]) };
        window.fetch = async (path, options) => (path.startsWith("api/live?") ? found : whole(path, options));
        window.EventSource = class {
            addEventListener(name, handler) {
                if (name === "live") window.send = (value) => handler({ data: JSON.stringify(value) });
            }
            close() {}
        };
        location.hash = "#/runtime?run=a";
    })()""")
    shown = "[...document.querySelectorAll('[aria-label=workers] tbody tr')].map((row) => row.innerText)"
    assert len(tab.wait(f"window.send && {shown}.length === 2 && {shown}")) == 2
    for names, more, expected in (
        (["near"], {}, ["steps", "left; see the log"]),
        (["near", "far"], {}, ["steps", "steps"]),
        (["near"], {"num_workers": 300}, ["steps"]),  # far may be one of the others
        (["near", "far"], {"reset": True}, ["steps", "steps"]),
        (["near"], {"reset": True}, ["steps"]),
    ):
        tab.value(f"send(told({names!r}, {json.dumps(more)}))")
        rows = tab.value(shown)
        assert len(rows) == len(expected) and all(map(str.__contains__, rows, expected)), rows


def test_an_environment_chosen_twice_is_followed_once(tab: browser_driver.Tab) -> None:
    tab.value("""(() => {
        const whole = window.fetch;
        [window.held, window.streams, window.numRead] = [[], [], 0];
        const found = { ok: true, status: 200, json: async () => (numRead++, { cursor: "0", error: "" }) };
        const hold = () => new Promise((resolve) => held.push(() => resolve(found)));
        window.fetch = (path, options) => (path.startsWith("api/live?") ? hold() : whole(path, options));
        window.EventSource = class {
            constructor(url) { this.url = url; streams.push(this); }
            addEventListener() {}
            close() { this.isClosed = true; }
        };
        location.hash = "#/game?run=a&environment=0";
    })()""")
    tab.wait("held.length === 1")
    tab.value("""(() => {
        const choice = document.querySelector("select[aria-label=environment]");
        for (const one of ["1", "0", "1"]) {
            choice.append(new Option(one, one));
            choice.value = one;
            choice.dispatchEvent(new Event("change"));
        }
    })()""")
    tab.value("held.forEach((answer) => answer())")
    tab.wait("numRead === 4")
    tab.value("location.hash = '#/'")
    tab.wait("document.querySelector('.runs')")
    assert tab.value("streams.map((one) => [/environment=1/.test(one.url), one.isClosed])") == [[True, True]]
