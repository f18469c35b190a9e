"""Rows become columns of numbers, whatever else a line holds."""

from __future__ import annotations

import json

import numpy as np
import page_runs
import pytest

from seedzero.interfaces.page import columns


def _columns(*rows: dict[str, object]) -> columns.Columns:
    found = columns.Columns()
    found.append(page_runs.encode(*rows))
    return found


def test_metrics_are_series_over_each_x() -> None:
    found = _columns(
        page_runs.row(1, loss=2.5, kind="x"), page_runs.row(2, evaluation_mean_return=1), page_runs.row(3, loss=1.5)
    )
    assert found.names == ["evaluation_mean_return", "loss"] and len(found) == 3
    assert found.series("loss", "seconds", 10) == {"x": [5.0, 15.0], "y": [2.5, 1.5]}
    assert found.series("loss", "env_steps", 10, low=30.0) == {"x": [20.0, 60.0], "y": [2.5, 1.5]}
    assert found.series("evaluation_mean_return", "update", 10) == {"x": [20.0], "y": [1.0]}
    assert found.series("nothing", "update", 10) == {"x": [], "y": []}


def test_numbers_that_are_not_finite_are_gaps() -> None:
    found = _columns(page_runs.row(1, loss="nan"), page_runs.row(2, loss="inf"), page_runs.row(3, loss=4))
    assert found.series("loss", "update", 10) == {"x": [10.0, 20.0, 30.0], "y": [None, None, 4.0]}


def test_damaged_lines_are_counted_and_left_out() -> None:
    found = columns.Columns()
    good = [json.dumps(page_runs.row(number, loss=1 + number)).encode() for number in (0, 2)]
    damaged = [b'{"update": 1', b"[]", b'{"loss": 2}', b"{}, {}", b"[" * 9999]
    found.append(b"".join(line + b"\n" for line in (good[0], *damaged, good[1])))
    assert found.num_damaged == 5
    assert found.series("loss", "update", 10) == {"x": [0.0, 20.0], "y": [1.0, 3.0]}


def test_values_of_another_hand_do_no_harm() -> None:
    odd = [[1, 2], {"a": 1}, None, "text", 10**400, True]
    found = _columns(*(page_runs.row(number, loss=value) for number, value in enumerate(odd)))
    assert found.series("loss", "update", 10) == {"x": [40.0, 50.0], "y": [None, 1.0]}
    found = _columns(
        page_runs.row(1, **{"x" * 300: 1.0}), {"update": "a", "env_steps": [], "seconds": None, "loss": 1}
    )
    assert found.names == ["loss"] and found.series("loss", "seconds", 10) == {"x": [5.0], "y": [1.0]}


def test_seconds_go_on_after_a_resume() -> None:
    rows = [{**page_runs.row(n, loss=n), "seconds": s} for n, s in enumerate([5.0, 10.0, 9.9, 3.0, 8.0])]
    assert _columns(*rows).series("loss", "seconds", 10)["x"] == [5.0, 10.0, 10.0, 12.9, 17.9]


def test_a_resumed_process_is_told_by_the_clock_if_its_first_row_is_late() -> None:
    times = [(10.0, "00:00:10"), (12.0, "00:00:12"), (25.5, "00:00:40"), (35.5, "00:00:50")]
    rows = [
        {**page_runs.row(n, loss=n), "seconds": s, "time": f"2026-11-30T{t}+00:00"} for n, (s, t) in enumerate(times)
    ]
    found = columns.Columns()
    for row in rows:  # in pieces, as a running learner writes them
        found.append(page_runs.encode(row))
    assert found.series("loss", "seconds", 10)["x"] == [10.0, 12.0, 37.5, 47.5]


def test_an_evaluation_stands_where_it_began_though_training_has_gone_on() -> None:
    late = {**page_runs.row(1, evaluation_mean_return=0.5), "seconds": 16.0}
    found = _columns(page_runs.row(2, loss=2.0), page_runs.row(3, loss=3.0), late, page_runs.row(4, loss=4.0))
    name = "evaluation_mean_return"
    assert [found.series(name, x, 10)["x"] for x in ("update", "env_steps", "seconds")] == [[10.0], [20.0], [16.0]]
    assert found.series("loss", "env_steps", 10)["x"] == [40.0, 60.0, 80.0]


def test_an_evaluation_that_was_cut_short_has_no_point() -> None:
    cut = {"evaluation_mean_return": 9.0, "evaluation_info/is_success": 1.0, "evaluation_unfinished": 3}
    found = _columns(page_runs.row(1, evaluation_mean_return=0.5), page_runs.row(2, **cut))
    assert found.names == ["evaluation_mean_return"]
    assert found.series("evaluation_mean_return", "update", 10) == {"x": [10.0], "y": [0.5]}


def test_rows_of_different_keys_keep_their_order() -> None:
    rows = [page_runs.row(n, loss=float(n), **({"return": -1.5} if n % 3 else {})) for n in range(5000)]
    rows[70]["loss"] = "nan"
    found = _columns(*rows)
    everything = found.series("loss", "update", 10_000)
    assert everything["x"] == [10.0 * n for n in range(5000)] and len(found) == 5000
    assert everything["y"] == [None if n == 70 else n for n in range(5000)]
    assert found.series("return", "update", 10_000)["x"] == [10.0 * n for n in range(5000) if n % 3]


def test_the_number_of_metrics_is_limited() -> None:
    found = _columns(page_runs.row(1, **{f"m{n}": n for n in range(columns.MAX_NAMES + 10)}))
    assert len(found.names) == columns.MAX_NAMES


def test_new_rows_tell_their_places() -> None:
    found = _columns(page_runs.row(1, loss=1.0), page_runs.row(2, loss=2.0), page_runs.row(3, other=3.0))
    assert found.since(1) == {
        "x": {"update": [20.0, 30.0], "env_steps": [40.0, 60.0], "seconds": [10.0, 15.0]},
        "metrics": {"loss": {"rows": [0], "values": [2.0]}, "other": {"rows": [1], "values": [3.0]}},
    }


def test_a_thinned_series_has_the_means_of_all_rows() -> None:
    values = np.random.default_rng(0).exponential(size=10_001) ** 2  # whose extremes lie far above the mean
    found = _columns(*(page_runs.row(number, loss=float(value)) for number, value in enumerate(values)))
    series = found.series("loss", "update", 100)
    means = series["means"]
    assert sum(means["rows"]) == 10_001 and means["rows"][0] == 101 and means["x"][-1] == series["x"][-1] == 100_000
    np.testing.assert_allclose(means["y"][:2], [values[:101].mean(), values[101:202].mean()], rtol=1e-5)
    np.testing.assert_allclose(np.average(means["y"], weights=means["rows"]), values.mean(), rtol=1e-5)
    assert np.mean(series["y"]) > 3 * values.mean()  # of the extremes
    assert "means" not in found.series("loss", "update", 5000)


def test_means_leave_out_numbers_that_are_not_finite() -> None:
    rows = [page_runs.row(number, loss="nan" if number < 4 or number == 5 else number) for number in range(16)]
    assert _columns(*rows).series("loss", "update", 4)["means"]["y"] == [None, 5.666667, 9.5, 13.5]


def test_the_first_rows_stand_for_few_episodes() -> None:
    rows = [page_runs.row(number, **({"episodes": 6} if number > 2 else {})) for number in range(10)]
    assert _columns(*rows).few_until("update") == 60.0  # 6 in each of the rows 3 to 6
    assert _columns(*rows[:6]).few_until("env_steps") == 100.0
    assert _columns(page_runs.row(1, episodes=20), *rows[2:]).few_until("update") is None
    assert _columns(page_runs.row(1)).few_until("update") is None


NAN = float("nan")


def test_each_bucket_keeps_its_smallest_and_largest_value() -> None:
    y = np.array([0.0, 5, 1, 2, 2, -7, 3, 3, 4, 9, 8, 1])  # three buckets of four
    assert columns.thin(y, 3).tolist() == [0, 1, 5, 6, 9, 11]


def test_few_values_stay_whole() -> None:
    assert columns.thin(np.arange(8.0), 3).tolist() == list(range(8))
    assert columns.thin(np.zeros(0), 3).tolist() == []


def test_nan_hides_no_peak() -> None:
    y = np.array([NAN, NAN, 1, 2, NAN, -3, NAN, 7, NAN, NAN, NAN, NAN])
    assert columns.thin(y, 3).tolist() == [0, 2, 3, 5, 7, 8, 11]


@pytest.mark.parametrize("number", [9, 100, 1001])
def test_a_million_rows_would_become_few(number: int) -> None:
    y = np.random.default_rng(number).normal(size=number)
    kept = columns.thin(y, 4)
    assert len(kept) <= 2 * 4 + 2 and kept[0] == 0 and kept[-1] == number - 1
    assert y[kept].min() == y.min() and y[kept].max() == y.max() and (np.diff(kept) > 0).all()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(None, None, (0, 5)), (2.0, 3.0, (0, 5)), (2.5, 2.6, (2, 4)), (9.0, None, (4, 5)), (None, 0.0, (0, 1))],
)
def test_a_window_has_a_point_beyond_each_side(
    low: float | None, high: float | None, expected: tuple[int, int]
) -> None:
    found = columns.window(np.array([1.0, 2, 2, 3, 5]), low, high)
    assert (found.start, found.stop) == expected


def test_numbers_are_short_and_finite() -> None:
    assert columns.shown(np.array([1 / 3, NAN, np.inf, -0.5])) == [0.3333333, None, None, -0.5]
