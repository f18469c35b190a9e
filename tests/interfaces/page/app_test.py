"""The answers of the page: runs, curves, streams, files; whatever the names and wherever the directory went."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
from typing import Any

import page_client
import page_runs
import pytest
import saved_league

from seedzero.interfaces.page import app

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "runs"
    page_runs.write(root / "a", *(page_runs.row(number, loss=number / 2) for number in range(4)))
    page_runs.write(root / "group" / "b", page_runs.row(1, evaluation_mean_return=1.0))
    page_runs.write(tmp_path / "outside", page_runs.row(1, loss=1.0))
    (root / "link").symlink_to(tmp_path / "outside")
    return root


def _get(client: page_client.Client, path: str, code: int = 200, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters)
    assert answer.status_code == code, answer.text
    return answer.json()


def test_all_runs_are_listed(client: page_client.Client, page: app.Page) -> None:
    found = _get(client, "/api/runs")
    assert {run["run"] for run in found["runs"]} == {"a", "group/b"} and found["root"] == str(page.root)
    changed = [run["changed"] for run in found["runs"]]
    assert changed == sorted(changed, reverse=True)


def test_a_run_has_metrics_and_settings(client: page_client.Client) -> None:
    found = _get(client, "/api/run", run="a")
    assert (found["metrics"], found["rows"], found["read"], found["damaged"]) == (["loss"], 4, 1.0, 0)
    assert found["settings"]["given"] == {"run.seed": "3"} and found["settings"]["config"]["env.id"] == "catch"
    assert found["best"] is None and found["run_dir"].endswith("/a")


def test_a_resumed_run_has_the_time_of_all_its_processes(client: page_client.Client, page: app.Page) -> None:
    rows = [page_runs.row(number, loss=1.0) for number in range(4)]
    page_runs.write(page.root / "a", *rows, {**page_runs.row(4, loss=1.0), "seconds": 2.0})
    assert _get(client, "/api/run", run="a")["seconds"] == 17.0
    (told,) = [value for event, value in page.follow(["a"], [""])() if event == "summary"]
    assert told["seconds"] == 17.0


def test_series_are_over_any_x(client: page_client.Client) -> None:
    found = _get(client, "/api/series", run="a", metric=["loss", "other"], x="env_steps", low=30, high=50, buckets=5)
    assert found["series"] == {
        "loss": {"x": [20.0, 40.0, 60.0], "y": [0.5, 1.0, 1.5]},
        "other": {"x": [], "y": []},
    }
    assert found["cursor"].endswith("-4")


@pytest.mark.parametrize(
    "parameters",
    [{"x": "time"}, {"buckets": "0"}, {"buckets": "x"}, {"buckets": 10**9}, {"low": "nan"}, {"high": "inf"},
     {"metric": ["m"] * 65}],
)  # fmt: skip
def test_requests_without_meaning_are_named(client: page_client.Client, parameters: dict[str, Any]) -> None:
    assert next(iter(parameters)) in _get(client, "/api/series", 400, run="a", **parameters)["error"]


@pytest.mark.parametrize("name", ["", "..", "../outside", "link", "/etc", "a/../../outside", EVIL, "a\0", "%2e%2e"])
@pytest.mark.parametrize("path", ["/api/run", "/api/series", "/api/league", "/api/stream"])
def test_no_name_leads_out_of_the_directory(client: page_client.Client, path: str, name: str) -> None:
    assert "error" in _get(client, path, 404, run=name, cursor="")


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"]
)
def test_no_path_leads_out_of_the_static_files(client: page_client.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (404, 405) and "import" not in answer.text and "root:" not in answer.text


def test_a_deleted_run_is_named_and_others_go_on(client: page_client.Client, page: app.Page) -> None:
    poll = page.follow(["a", "group/b"], ["", ""])
    first = list(poll())
    assert [(name, value["run"]) for name, value in first] == [
        (kind, run) for run in ("a", "group/b") for kind in ("rows", "summary")
    ]
    assert list(poll()) == []
    with open(page.root / "a" / "metrics.jsonl", "ab") as file:
        file.write(page_runs.encode(page_runs.row(4, loss=9.0)))
    events = list(poll())
    assert events[0][1]["metrics"] == {"loss": {"rows": [0], "values": [9.0]}} and events[1][1]["seconds"] == 20.0
    shutil.rmtree(page.root / "a")
    ((name, value),) = list(poll())
    assert (name, value["run"]) == ("gone", "a") and "deleted" in value["error"]
    assert "deleted" in _get(client, "/api/run", 404, run="a")["error"]
    assert [run["run"] for run in _get(client, "/api/runs")["runs"]] == ["group/b"]
    shutil.rmtree(page.root)
    assert _get(client, "/api/runs")["runs"] == []


def test_a_full_server_refuses_a_stream(client: page_client.Client, page: app.Page) -> None:
    page.places.num_open = page.places.limit
    assert "64 streams" in _get(client, "/api/stream", 503, run="a", cursor="")["error"]


@pytest.mark.parametrize("parameters", [{}, {"run": ["a"]}, {"run": ["a"] * 17, "cursor": [""] * 17}])
def test_a_stream_takes_some_runs_each_with_a_cursor(client: page_client.Client, parameters: dict[str, Any]) -> None:
    assert "cursor" in _get(client, "/api/stream", 400, **parameters)["error"]


def test_hostile_names_stay_texts(client: page_client.Client, page: app.Page) -> None:
    config = {**page_runs.CONFIG["config"], "env.id": EVIL}
    name = "x<script>"
    page_runs.write(page.root / name, page_runs.row(1, **{EVIL: 1.0}), config={"config": config, "given": {}})
    answer = client.get("/api/run", params={"run": name})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["environment"] == EVIL and answer.json()["metrics"] == [EVIL]


def test_a_league_is_read_once_for_each_checkpoint(
    client: page_client.Client, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved_league.make(root / "league")
    calls = []
    read = app.league_view.read
    monkeypatch.setattr(app.league_view, "read", lambda *args: calls.append(args) or read(*args))
    assert _get(client, "/api/league", run="league") == _get(client, "/api/league", run="league")
    assert len(calls) == 1
    (path / "league.jsonl").write_text('{"event": "freeze"}\n')
    assert _get(client, "/api/league", run="league")["decisions"] == [{"event": "freeze"}]
    assert "no league" in _get(client, "/api/league", 409, run="a")["error"]


def test_the_browsers_part_is_served_and_names_no_other_place(client: page_client.Client) -> None:
    index = client.get("/")
    assert index.headers["content-type"].startswith("text/html")
    files = re.findall(r'(?:src|href)="(static/[^"]+)"', index.text)
    assert len(files) == 5 and not re.search(r"<script>|style=|\son\w+=", index.text)
    for file in files:
        assert client.get(f"/{file}").status_code == 200
    assert "MIT" in client.get("/static/vendor/uPlot.LICENSE").text
    parts = [path for path in app.STATIC.rglob("*.*") if path.suffix in (".js", ".css", ".html")]
    assert sum(path.stat().st_size for path in parts) < 200_000, "all that a page loads"
    own = [path.read_text() for path in app.STATIC.glob("*.*")]
    assert len(own) > 10 and not [
        text for text in own if re.search(r"https?://|innerHTML|insertAdjacent|eval\(", text)
    ]
    absolute = re.compile(r"""["'`(]/(api|static|token|")""")  # would leave the path of a proxy
    assert not [text for text in own if absolute.search(text)]


@pytest.mark.thorough
def test_the_scripts_are_well_formed() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    for path in sorted(app.STATIC.glob("*.js")):
        subprocess.run([node, "--check", "--input-type=module"], input=path.read_bytes(), check=True)
    checks = """
        import { clock, duration, number, short, smooth, charts } from "./format.js";
        const texts = [clock(3725), clock(5), duration(90061), duration(61)];
        const numbers = [short(1234567), number(0.123456), number(1e6)];
        const curves = [smooth([1, null, 3], 0.5), smooth([1, 2], 0), smooth([1, 3, 5], 0.25, [2, 2, 1])];
        const names = ["info/depth", "info/is_success", "evaluation_info/depth", "loss", "loss_value", "x"];
        const found = charts(names).map(({ title, group, metrics }) => [title, group, metrics]);
        console.log(JSON.stringify([texts, numbers, curves, found]));
    """
    done = subprocess.run(
        [node, "--input-type=module"], input=checks, capture_output=True, text=True, check=True, cwd=app.STATIC
    )
    texts, numbers, curves, charts = json.loads(done.stdout)
    assert texts == ["1:02:05", "0:05", "1 d 1 h", "1 min 1 s"] and numbers == ["1.23M", "0.1235", "1,000,000"]
    assert curves == [[1, None, 7 / 3], [1, 2], [1, 2.6, pytest.approx(3.71875 / 0.96875)]]
    assert charts == [
        ["success", "Environment", ["info/is_success"]],
        ["depth", "Environment", ["info/depth", "evaluation_info/depth"]],
        ["Loss", "Learning", ["loss", "loss_value"]],
    ]
