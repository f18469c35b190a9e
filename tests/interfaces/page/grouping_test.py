"""Groups over seeds on the page are those of `seedzero plot`, and their means have Student's intervals."""

from __future__ import annotations

import pathlib
from typing import Any

import page_client
import page_runs
import pytest
import saved_run

from seedzero.api import run_groups
from seedzero.interfaces.page import app, grouping
from seedzero.monitoring import series

METRIC = "evaluation_mean_return"


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """Three seeds of a setting, one of another, and two whose settings fit no version."""
    for seed, value in ((1, 1.0), (2, 2.0), (3, 3.0)):
        saved_run.make(tmp_path / "runs" / f"s{seed}", (0.0, value), run__seed=seed, optimizer__learning_rate=1e-3)
    saved_run.make(tmp_path / "runs" / "t1", (0.0, 5.0), run__seed=1, optimizer__learning_rate=1e-4)
    page_runs.write(tmp_path / "runs" / "odd", config={"preset": "x", "given": {}, "config": {"no.setting": 1}})
    own = {"run.agent": "mine:Agent", "mine.list": [1]}
    page_runs.write(tmp_path / "runs" / "odder", config={"preset": "x", "given": {}, "config": own})
    return tmp_path / "runs"


def _get(client: page_client.Client, path: str, code: int = 200, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters)
    assert answer.status_code == code, answer.text
    return answer.json()


def test_the_table_has_the_groups_of_plot(client: page_client.Client, page: app.Page) -> None:
    found = _get(client, "/api/runs", groups=1)
    runs = [run_groups.read_run(str(page.root / name), (series.EVALUATION,)) for name in ("s1", "s2", "s3", "t1")]
    expected = [[pathlib.Path(run.place).name for run in group.runs] for group in run_groups.group(runs)]
    assert [sorted(group["runs"]) for group in found["groups"]] == expected == [["t1"], ["s1", "s2", "s3"]]
    assert [group["settings"] for group in found["groups"]] == [
        {"optimizer.learning_rate": 1e-4}, {"optimizer.learning_rate": 1e-3},
    ]  # fmt: skip
    assert found["quantiles"] == [None, None, pytest.approx(12.7062, abs=1e-4), pytest.approx(4.30265, abs=1e-5)]
    assert sorted(found["left_out"]) == ["odd", "odder"] and "format 1" in found["left_out"]["odd"]
    assert "optimizer.learning_rate" in found["differing"] and "run.seed" in found["differing"]


def test_the_table_has_columns_of_settings(client: page_client.Client) -> None:
    found = _get(client, "/api/runs", column=["preset", "run.seed", "no.setting"])
    rows = {run["run"]: run["settings"] for run in found["runs"]}
    assert rows["s2"] == {"preset": "catch", "run.seed": 2}
    assert rows["odd"] == {"preset": "x", "no.setting": 1}
    assert "groups" not in found


def test_runs_are_grouped_by_given_settings_alone(client: page_client.Client) -> None:
    found = _get(client, "/api/runs", groups=1, by=["preset", "agent"])
    assert [sorted(group["runs"]) for group in found["groups"]] == [["s1", "s2", "s3", "t1"]]
    assert found["groups"][0]["hidden"] == ["optimizer.learning_rate"]
    assert "no setting lr" in _get(client, "/api/runs", 400, groups=1, by="lr")["error"]


def test_new_settings_of_a_run_are_seen(client: page_client.Client, page: app.Page) -> None:
    _get(client, "/api/runs", groups=1)
    saved_run.make(page.root / "t1x", (0.0, 5.0), run__seed=2, optimizer__learning_rate=1e-4)
    assert [len(group["runs"]) for group in _get(client, "/api/runs", groups=1)["groups"]] == [2, 3]


def test_a_mean_has_its_interval(client: page_client.Client) -> None:
    found = _get(client, "/api/curves", run=["s1", "s2", "s3", "t1", "odd"], metric=METRIC)
    one, three = found["curves"]
    assert (one["label"], one["y"], one["low"]) == ("optimizer.learning_rate=0.0001", [0.0, 5.0], None)
    assert (three["runs"], three["x"], three["y"]) == (["s1", "s2", "s3"], [0.0, 1000.0], [0.0, 2.0])
    half = 4.30265 * 1.0 / 3**0.5  # t(0.975, 2) s / sqrt(3) of 1, 2, 3
    assert three["low"][1] == pytest.approx(2 - half, abs=1e-4) and three["high"][1] == pytest.approx(
        2 + half, abs=1e-4
    )
    assert three["lines"] == [[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]] and list(found["left_out"]) == ["odd"]


def test_two_runs_are_shown_beside_their_mean(client: page_client.Client) -> None:
    (found,) = _get(client, "/api/curves", run=["s1", "s3"], metric=METRIC, x="seconds")["curves"]
    assert (found["x"], found["y"], found["lines"]) == ([0.0, 2.0], [0.0, 2.0], [[0.0, 1.0], [0.0, 3.0]])
    assert found["label"] == ""


def test_a_curve_does_not_end_before_its_only_run(client: page_client.Client, page: app.Page) -> None:
    rows = [
        {**page_runs.row(number, **{METRIC: 1.0}), "env_steps": steps} for number, steps in ((1, 0), (2, 12_345_674))
    ]
    (page.root / "t1" / "metrics.jsonl").write_bytes(page_runs.encode(*rows))
    (found,) = _get(client, "/api/curves", run="t1", metric=METRIC)["curves"]
    assert found["longest"] == found["x"][-1]  # else the page says that the mean ends with its shortest run


def test_curves_are_smoothed_and_cut(client: page_client.Client, page: app.Page) -> None:
    saved_run.make(page.root / "long", (0.0, 2.0, 4.0, 8.0))
    asked = {"run": "long", "metric": METRIC}
    assert _get(client, "/api/curves", **asked, smooth=2)["curves"][0]["y"] == [0.0, 1.0, 3.0, 6.0]
    assert _get(client, "/api/curves", **asked, low=2500, high=2600)["curves"][0]["x"] == [2000.0, 3000.0]


def test_runs_without_a_common_x_are_left_out(client: page_client.Client, page: app.Page) -> None:
    rows = [page_runs.row(number, **{METRIC: 1.0}) for number in (100, 101)]
    (page.root / "s1" / "metrics.jsonl").write_bytes(page_runs.encode(*rows))
    found = _get(client, "/api/curves", run=["s1", "s2"], metric=METRIC)
    assert found["curves"] == [] and "in common" in found["left_out"]["s1"]


@pytest.mark.parametrize(
    "parameters",
    [{"run": []}, {"run": ["s1"] * 65}, {"run": "s1", "smooth": 0}, {"run": "s1", "smooth": 10**9},
     {"run": "s1", "x": "time"}, {"run": "s1", "by": ["a"] * 17}, {"run": "s1", "high": "inf"}],
)  # fmt: skip
def test_requests_without_meaning_are_named(client: page_client.Client, parameters: dict[str, Any]) -> None:
    assert list(parameters)[-1] in _get(client, "/api/curves", 400, metric=METRIC, **parameters)["error"]


@pytest.mark.parametrize("name", ["..", "../outside", "/etc", "s1/../s2"])
def test_no_name_leads_out_of_the_directory(client: page_client.Client, name: str) -> None:
    assert "error" in _get(client, "/api/curves", 404, run=["s1", name], metric=METRIC)


def test_the_oldest_history_is_dropped_first(tmp_path: pathlib.Path) -> None:
    paths = [page_runs.write(tmp_path / name, page_runs.row(1, loss=1.0)) for name in "abc"]
    found = grouping.Library(max_bytes=70)  # two histories of 32 bytes
    histories = [found.of(path) for path in paths[:2]]
    for one in histories:
        one.refresh()
    assert histories[0].num_bytes == 32 and found.of(paths[0]) is histories[0]
    found.of(paths[2]).refresh()
    assert found.of(paths[0]) is histories[0]
    assert found.of(paths[1]) is not histories[1]
