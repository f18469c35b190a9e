"""The numbers that a run's rows leave for a diagnosis."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

import pytest

from seedzero.core import errors
from seedzero.monitoring import learning_curves, rows


def _curve(*rows: dict[str, Any]) -> learning_curves.LearningCurve:
    found = learning_curves.LearningCurve()
    for row in rows:
        found = found.after(row)
    return found


def test_before_the_first_row_there_is_nothing() -> None:
    curve = learning_curves.LearningCurve()
    assert (curve.num_rows, curve.recent, curve.first_return) == (0, (), None)
    assert curve.mean("loss") is None


def test_the_newest_rows_with_updates_are_kept() -> None:
    curve = _curve({"update": 0, "env_steps": 5}, *({"update": n, "env_steps": 9 * n, "loss": n} for n in range(1, 6)))
    assert (curve.num_rows, curve.update, curve.env_steps) == (6, 5, 45)
    assert [row["loss"] for row in curve.recent] == [3, 4, 5]
    assert curve.mean("loss") == 4
    assert curve.after({"update": 6, "loss": 6, "new": 1}).mean("new") is None


def test_returns_are_followed_from_the_first_to_the_best_and_the_newest() -> None:
    rows = [{"update": n, "episode_return": x, "episodes": 10} for n, x in enumerate((-4.0, 0.0, 4.0, 8.0, 0.0))]
    curve = _curve(*rows)
    assert curve.first_return == -4 and curve.returns == (4, 8, 0) and curve.num_episodes == 50
    assert curve.best_return == 4.0, "the mean of 0, 4 and 8, and of 4, 8 and 0"
    assert curve.largest_return == 8 and not curve.same_return
    assert _curve(*rows[:1], *rows[:1]).same_return


def test_the_largest_values_and_losses_and_the_least_entropy_are_kept() -> None:
    curve = _curve(
        {"loss": 9, "loss_value": 2, "value_target_mean": -3, "policy_entropy": 0.5},
        {"loss": 4, "loss_value": 1, "q_target_mean": 2.0, "policy_entropy": "nan"},
    )
    assert (curve.largest_target, curve.largest_loss, curve.least_entropy) == (3, 2, 0.5)
    assert _curve({"loss": 9}, {"loss": 8}).largest_loss == 9, "of agents with values alone, it is the loss"


@pytest.mark.parametrize(("first", "every_updates", "baseline"), [(1, 40, 10), (39, 40, 390), (40, 40, None)])
def test_an_evaluation_before_the_first_period_is_the_baseline(
    first: int, every_updates: int, baseline: float | None
) -> None:
    evaluations = [{"update": n, "kind": "evaluation", "evaluation_mean_return": 10 * n} for n in (first, 50, 80)]
    curve = _curve({"update": 1, "loss": 1}, *evaluations)
    assert (curve.baseline(every_updates), curve.evaluation) == (baseline, (80, 800))
    assert (curve.num_rows, curve.update) == (1, 1)


def test_an_evaluation_that_was_cut_short_has_successes_but_no_score() -> None:
    cut = {"update": 90, "evaluation_mean_return": 9.0, "evaluation_unfinished": 3, "evaluation_info/is_success": 0.5}
    curve = _curve({"update": 80, "evaluation_mean_return": 1.0}, cut)
    assert (curve.evaluation, curve.evaluations, curve.largest_success) == ((80, 1.0), (), 0.5)
    assert _curve(cut).first_evaluation is None and _curve(cut).num_rows == 0


def test_numbers_that_json_has_no_form_for_are_numbers() -> None:
    (row,) = _curve({"update": 1, "loss": "nan", "grad_norm": "inf", "time": "2026", "stalled": None}).recent
    assert math.isnan(row["loss"]) and row["grad_norm"] == math.inf and row.keys() == {"update", "loss", "grad_norm"}
    assert _curve({"loss": 1, "q_target_mean": "inf"}).largest_target == 0


def test_a_half_written_last_line_is_none_and_a_damaged_one_is_counted(tmp_path: pathlib.Path) -> None:
    lines = [json.dumps({"update": n, "loss": n}) for n in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([lines[0], "{broken", "[1]", lines[1], lines[0][:9]]))
    curve, num_damaged = learning_curves.read(tmp_path)
    assert [row["loss"] for row in curve.recent] == [1, 2] and num_damaged == 2


@pytest.mark.parametrize("number", ['"inf"', "1e400", "1" + 400 * "0", "1" + 5_000 * "0"])
def test_a_line_with_an_impossible_number_is_damaged(number: str) -> None:
    curve, num_damaged = learning_curves.fold(
        rows.RowReader([b'{"update": %s}\n' % number.encode(), b'{"update": 2, "loss": 1}\n'])
    )
    assert curve.update == 2 and num_damaged == 1


def test_a_run_without_the_file_has_no_rows_and_a_file_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    assert learning_curves.read(tmp_path) == (learning_curves.LearningCurve(), 0)
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(errors.ResumeError, match=r"metrics\.jsonl"):
        learning_curves.read(tmp_path)
