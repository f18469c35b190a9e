from __future__ import annotations

import json
import math
import pathlib
import time
from typing import Any

import numpy as np
import pytest
import saved_run

from seedzero.core import errors
from seedzero.monitoring import rows, series


def _fold(*found: dict[str, Any], wanted: tuple[str, ...] = ("loss",)) -> series.Series:
    return series.fold(rows.RowReader([json.dumps(row).encode() + b"\n" for row in found]), wanted)


def test_rows_with_the_metric_are_read_in_order(tmp_path: pathlib.Path) -> None:
    path = saved_run.make(tmp_path / "run", (-0.5, 1.0))
    found = series.read(path, (series.EVALUATION, "evaluation_episodes", "absent"))
    np.testing.assert_array_equal(found.places, [[0, 0, 0], [10, 1_000, 2]])
    np.testing.assert_array_equal(found.values, [[-0.5, 10, np.nan], [1, 10, np.nan]])
    assert found.last == (10, 1_000, 2) and {"loss", "episode_return", "evaluation_std_return"} <= set(found.names)
    assert "kind" not in found.names


def test_seconds_go_on_after_a_resume_but_not_where_two_threads_cross() -> None:
    times = [(1, 10.0), (2, 20.0), (3, 19.5), (4, 3.0), (5, 8.0)]
    found = _fold(*({"update": n, "env_steps": n, "seconds": s, "loss": 1} for n, s in times))
    # The resume comes behind 19.5 s, the newest row's.
    assert found.places[:, 2].tolist() == [10.0, 20.0, 19.5, 22.5, 27.5]


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        # A process of 12 s, and one that begins 3 s later and has its first row after 25 s.
        ([(10.0, "00:00:10"), (12.0, "00:00:12"), (25.5, "00:00:40"), (35.5, "00:00:50")], [10, 12, 37.5, 47.5]),
        ([(0.9, "00:00:00"), (2.1, "00:00:02"), (3.8, "00:00:03"), (5.2, "00:00:05")], [0.9, 2.1, 3.8, 5.2]),
        # A machine that slept for two hours.
        ([(1_000.0, "00:16:40"), (1_010.0, "02:16:50")], [1_000, 1_010]),
        ([(10.0, "damaged"), (25.0, "00:00:40")], [10, 25]),
    ],
)
def test_a_resumed_process_is_told_by_the_clock_if_its_first_row_is_late(
    times: list[tuple[float, str]], seconds: list[float]
) -> None:
    rows = ({"update": 1, "env_steps": 1, "seconds": s, "time": f"2026-11-30T{t}+00:00", "loss": 1} for s, t in times)
    assert _fold(*rows).places[:, 2].tolist() == seconds


def test_rows_that_a_later_row_repeats_are_left_out() -> None:
    updates = [0, 100, 200, 300, 200, 300]
    found = _fold(*({"update": n, "env_steps": 10 * n, "seconds": i, "loss": i} for i, n in enumerate(updates)))
    assert found.places[:, 0].tolist() == [0, 100, 200, 200, 300]
    assert found.values[:, 0].tolist() == [0, 1, 2, 4, 5]


def test_cut_evaluations_and_numbers_without_a_form_are_left_out() -> None:
    name = series.EVALUATION
    evaluations = [{name: 1.0}, {name: 9.0, "evaluation_unfinished": 3}, {name: "nan"}, {name: None}, {name: 2.0}]
    assert _fold(*evaluations, wanted=(name,)).values[:, 0].tolist() == [1.0, 2.0]


def test_damaged_lines_are_counted_and_an_unfinished_last_one_is_not() -> None:
    lines = [b'{"update": 1, "loss": 2}\n', b"damaged\n", b"[]\n", b'{"update": 2, "lo']
    found = series.fold(rows.RowReader(lines), ("loss",))
    assert (found.num_damaged, found.values.tolist()) == (2, [[2.0]])


def test_a_number_with_hundreds_of_digits_is_damage() -> None:
    lines = [b'{"update": 1, "loss": 2}\n', b'{"update": 2, "loss": 1%s}\n' % (b"0" * 400)]
    found = series.fold(rows.RowReader(lines), ("loss",))
    assert (found.num_damaged, found.values.tolist()) == (1, [[2.0]])


def test_a_run_without_rows_has_an_empty_series(tmp_path: pathlib.Path) -> None:
    found = series.read(tmp_path, ("loss",))
    assert (found.places.shape, found.values.shape, found.names) == ((0, 3), (0, 1), ())


def test_a_file_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(errors.ResumeError, match=r"metrics\.jsonl"):
        series.read(tmp_path, ("loss",))


def test_time_grows_with_the_rows_and_not_their_square() -> None:
    def seconds(number: int) -> float:
        lines = [b'{"update": %d, "env_steps": %d, "seconds": %d, "loss": 1}\n' % (n, n, n) for n in range(number)]
        began = time.process_time()
        series.fold(rows.RowReader(lines), ("loss",))
        return time.process_time() - began

    assert seconds(40_000) < 16 * max(seconds(5_000), 0.01)


def _curve(x: list[float], y: list[float]) -> series.Curve:
    return series.curve(np.array(x, float), np.array(y, float))


def test_the_interval_of_three_seeds_is_students() -> None:
    # mean 3, s = sqrt((4 + 1 + 9) / 2) = sqrt(7); a t table has 4.303 for 2 degrees of freedom: 4.303 sqrt(7 / 3)
    found = series.interval([1.0, 2.0, 6.0])
    half = 4.302653 * math.sqrt(7 / 3)
    assert found == pytest.approx((3.0, 3.0 - half, 3.0 + half), abs=1e-5)
    # Of two seeds: 12.706 times half their distance.
    assert series.interval([0.0, 1.0]).high == pytest.approx(0.5 + 12.7062 / 2, abs=1e-3)
    assert series.interval([4.0]) == (4.0, None, None)


def test_seeds_meet_on_a_common_grid_that_ends_with_the_shortest() -> None:
    found = series.band([_curve([0, 10, 20], [0, 1, 2]), _curve([5, 15], [3, 5]), _curve([0, 30], [0, 6])])
    assert found is not None and found.longest == 30
    # x of any curve from 5 to 15; the first is x / 10, the second 2 + x / 5, the third x / 5
    np.testing.assert_allclose(found.x, [5, 10, 15])
    np.testing.assert_allclose(found.mean, [(0.5 + 3 + 1) / 3, (1 + 4 + 2) / 3, (1.5 + 5 + 3) / 3])
    half = 4.302653 * np.std([1.0, 4.0, 2.0], ddof=1) / math.sqrt(3)
    assert found.low is not None and found.high is not None
    assert (found.low[1], found.high[1]) == pytest.approx((7 / 3 - half, 7 / 3 + half), abs=1e-5)


def test_one_run_is_its_curve_alone() -> None:
    found = series.band([_curve([0, 1, 5], [3, 4, 7])])
    assert found is not None and found.low is None and found.high is None
    assert (found.x.tolist(), found.mean.tolist(), found.longest) == ([0, 1, 5], [3, 4, 7], 5)


def test_runs_without_a_common_place_have_no_band() -> None:
    assert series.band([_curve([0, 1], [0, 1]), _curve([2, 3], [0, 1])]) is None
    touching = series.band([_curve([0, 2], [0, 4]), _curve([2, 3], [6, 1])])
    assert touching is not None and (touching.x.tolist(), touching.mean.tolist()) == ([2], [5])


def test_a_long_curve_is_resampled() -> None:
    x = np.arange(10_000.0)
    found = series.band([series.curve(x, 2 * x), series.curve(x, 4 * x)])
    assert found is not None and len(found.x) == series.MOST_POINTS
    np.testing.assert_allclose(found.mean, 3 * found.x)


def test_of_points_with_one_x_the_last_counts() -> None:
    found = _curve([0, 5, 5, 3], [1, 2, 3, 4])
    assert (found.x.tolist(), found.y.tolist()) == ([0, 3, 5], [1, 4, 3])


def test_a_moving_mean_looks_back() -> None:
    np.testing.assert_allclose(series.moving_mean(np.array([3.0, 5.0, 10.0, 0.0]), 3), [3, 4, 6, 5])
    np.testing.assert_allclose(series.moving_mean(np.array([3.0, 5.0]), 1), [3, 5])
    assert series.moving_mean(np.zeros(0), 3).shape == (0,)


def test_a_spike_changes_the_means_with_it_alone() -> None:
    values = np.array([1.0, 2, 3, 1e20, 5, 6, 7])
    np.testing.assert_array_equal(series.moving_mean(values, 2), [1, 1.5, 2.5, 5e19, 5e19, 5.5, 6.5])
    assert np.isfinite(series.moving_mean(np.array([1.0, np.inf, 3, 4]), 2)).tolist() == [True, False, False, True]
