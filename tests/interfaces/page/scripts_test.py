"""The browser's part without a browser: rows of the table of runs, and ends of plots."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from seedzero.interfaces.page import app
from seedzero.monitoring import series

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")
RUNS = """
const run = (run, last, more = {}) => ({
  run, name: run, environment: "catch", agent: "ppo", env_steps: 10, last_evaluation: last, best_evaluation: last,
  state: "ended", reason: "", eta_seconds: null, time: "t", settings: { seed: 1 }, ...more,
});
const two = rows.runRows([run("a", 1), run("b", 2, { agent: "dqn" })]);
const three = [run("r10", 2, { settings: { lr: 3 } }), run("r9", null), run("r1", -1, { settings: { lr: 0.5 } })];
const four = [run("a", 1), run("b", 3, { state: "trains", eta_seconds: 5 }), run("c", null), run("d", 4)];
const groups = [
  { settings: { lr: 1, agent: "ppo" }, runs: ["a", "b", "gone"] },
  { settings: { lr: 2, agent: "ppo" }, runs: ["c"] },
  { settings: { lr: 3, agent: "dqn" }, runs: ["hidden"] },
];
const told = (one) => [one.title, one.last_evaluation, one.half.last_evaluation, one.state, one.eta_seconds];
"""


def _value(expression: str, **environment: str) -> Any:
    imports = 'import * as rows from "./rows.js"; import * as format from "./format.js";'
    imports += 'import * as runtime from "./runtime.js"; import * as game from "./game.js";'
    script = f"{imports}{RUNS} console.log(JSON.stringify({expression}));"
    assert NODE is not None
    command = [NODE, "--input-type=module"]
    more: dict[str, Any] = {"cwd": app.STATIC, "env": {**os.environ, **environment}}
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=True, **more)
    return json.loads(done.stdout)


def test_rows_are_found_by_words_names_and_settings() -> None:
    texts = ["", "DQN b", "seed=1", "b", "seed=2", "mine dqn"]
    found = f"{texts}.map((text) => two.filter((one) => rows.matches(one, text)).map((one) => one.run))"
    assert _value(found) == [["a", "b"], ["b"], ["a", "b"], ["b"], [], []]


def test_rows_are_sorted_with_missing_values_last() -> None:
    asked = '[["", false], ["last_evaluation", false], ["last_evaluation", true], ["run", true], ["lr", false]]'
    assert _value(f"{asked}.map(([name, down]) => rows.sorted(three, name, down).map((one) => one.run).join())") == [
        "r10,r9,r1",
        "r1,r10,r9",
        "r10,r1,r9",
        "r10,r9,r1",
        "r1,r10,r9",
    ]


def test_groups_have_the_mean_of_the_rows_that_are_shown() -> None:
    shown = "rows.runRows(four)"
    found = _value(f"rows.groupRows({shown}, {{ groups, quantiles: [null, null, 12.706] }}).map(told)")
    assert found == [
        ["lr=1", 2, pytest.approx(12.706), "several", 5],
        ["c", None, None, "ended", None],  # the only run of its group
        ["d", 4, None, "ended", None],
    ]


def test_the_interval_of_the_table_is_that_of_plot() -> None:
    values = [1.0, 2.5, -3.0, 4.0]
    found = _value(f"rows.interval({values}, {json.dumps([None, None, *map(series.quantile, range(2, 5))])})")
    expected = series.interval(values)
    assert expected.high is not None
    assert found == {"mean": expected.mean, "half": pytest.approx(expected.high - expected.mean)}


def test_a_plot_has_means_and_at_most_half_their_height_beyond() -> None:
    curve = "{ y: [0, 10], low: [-1, -50], high: [1, 60] }"
    assert _value(f"format.limits([{curve}])") == pytest.approx([-5.6, 15.6])
    assert _value("format.limits([{ y: [0, 10], low: [-1, 9], high: [1, 11] }])") == pytest.approx([-1.6, 11.6])
    assert _value(f"format.limits([{{ ...{curve}, isWhole: true }}])") == pytest.approx([-50.6, 60.6])
    pair = "{ y: [1, 1], lines: [[0, 0], [2, 2]], low: [-9, -9], high: [9, 9] }"
    assert _value(f"format.limits([{pair}])") == [-0.12, 2.12]
    assert _value("format.limits([{ y: [] }])") == [0, 1]


def test_ticks_of_a_zoomed_axis_differ() -> None:
    written = "format.ticks(format.short)(null, {}, 0, 0, {})"
    assert _value(written.format([5_000_000, 5_000_500, 5_001_000], 500)) == ["5M", "5.0005M", "5.001M"]
    assert _value(written.format([-0.25, 0, 0.25, 0.5], 0.25)) == ["-0.25", "0", "0.25", "0.5"]
    assert _value(written.format([1e-4, 1.02e-4], 2e-6)) == ["1.00e-4", "1.02e-4"]
    assert _value("format.ticks(format.clock)(null, [60, 120], 0, 0, 60)") == ["1:00", "2:00"]


def test_zero_has_no_sign() -> None:
    assert _value("[-0, 0, -3, 1234].map((value) => format.number(value))") == ["0", "0", "-3", "1,234"]


def test_of_many_actions_the_likeliest_are_shown() -> None:
    asked = "game.choicesOf({ policy: Array.from({ length: SIZE }, (_, place) => place / 9), action: 44 }, {})"
    told = ".map((one) => [one.name, one.is_taken])"
    found = _value(asked.replace("SIZE", "45") + told)
    assert found[0] == ["44", True] and [name for name, _ in found] == [str(place) for place in range(44, 4, -1)]
    assert [name for name, _ in _value(asked.replace("SIZE", "3") + told)] == ["0", "1", "2"]


def test_success_is_the_first_of_the_environments_own_numbers() -> None:
    names = ["info/bumps", "info/is_success", "evaluation_info/is_success", "loss", "episode_return", "loss_value"]
    shown = "({ title, group, metrics }) => [title, group, metrics.map(format.word).join()]"
    assert _value(f"format.charts({names}).map({shown})") == [
        ["Return", "", "training"],
        ["success", "Environment", "training,evaluation"],
        ["bumps", "Environment", "training"],
        ["Loss", "Learning", "loss,value"],
    ]


def test_times_are_those_of_the_reader() -> None:
    times = '["2026-11-30T23:30:00+00:00", Date.UTC(2026, 10, 30, 23, 30), "", null, "soon"]'
    assert _value(f"{times}.map(format.localTime)", TZ="Asia/Tokyo") == ["2026-12-01 08:30"] * 2 + [""] * 3


def test_calls_have_the_device_as_long_one_by_one_as_together() -> None:
    calls = [
        [number, "update", max(0, number - 2), max(0, number - 2), number, 0, 0, None, ""] for number in (1, 2, 3)
    ]
    starts = "runtime.calledOf(calls, free).map((one) => one.start)"
    assert _value(f"(({{ calls, free }}) => {starts})({json.dumps({'calls': calls, 'free': 0})})") == [0, 1, 2]
    assert _value(f"(({{ calls, free }}) => {starts})({json.dumps({'calls': calls[2:], 'free': 2})})") == [2]
