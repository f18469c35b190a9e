from __future__ import annotations

import json
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
