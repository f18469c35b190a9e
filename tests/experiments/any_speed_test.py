"""The measures of learning at any speed, worked by hand."""

from __future__ import annotations

import any_speed  # see conftest.py
import pytest


def test_an_area_is_the_mean_over_parts_of_the_steps() -> None:
    # Twenty parts of 10 steps. 0 to 9: returns of 1 (three episodes) and 5 (one), so 2; 100 to 109: 12; the last: 30.
    rows = [
        {"env_steps": 4, "episode_return": 1.0, "episodes": 3},
        {"env_steps": 9, "episode_return": 5.0, "episodes": 1},
        {"env_steps": 50, "loss": 1.0},
        {"env_steps": 60, "kind": "evaluation", "episode_return": 99.0},
        {"env_steps": 101, "episode_return": 12.0, "episodes": 2},
        {"env_steps": 204, "episode_return": 30.0, "episodes": 1},  # beyond the last step
    ]
    assert any_speed.area(rows, 200) == pytest.approx((10 * 2 + 9 * 12 + 1 * 30) / 20)


def test_the_permutation_test_tells_what_differs_from_what_does_not() -> None:
    better, worse = [11.0, 12.0, 13.0, 14.0, 15.0], [1.0, 2.0, 3.0, 4.0, 5.0]
    assert any_speed.p_value([(better, worse)]) == pytest.approx(2 / 252, abs=0.004)  # 2 of the 252 ways to part them
    assert any_speed.p_value([(better, worse), (better, worse)]) < 0.001
    assert any_speed.p_value([([1.0, 3.0, 5.0], [2.0, 3.0, 4.0])]) == 1.0
    assert any_speed.p_value([([2.0, 2.0], [2.0, 2.0])]) == 1.0


def test_the_table_compares_each_ground_with_eight_workers() -> None:
    rows = [
        {"task": "catch-muzero", "ground": ground, "seed": seed, "area": area, "seconds": 9.0, "kills": 0}
        | {"samples_per_insert": 7.96, "age_mean": 1.5, "age_max": 3.0}
        for ground, areas in {"eight": (0.5, 0.7), "far": (0.6, 0.9)}.items()
        for seed, area in enumerate(areas, 1)
    ]
    lines = list(any_speed.table(rows))
    assert lines[2] == "| catch-muzero | eight | 2 | 0.6 | 1.00 |  | 1.5, 3 | 7.96 to 7.96 | 9 |"
    assert lines[3].startswith("| catch-muzero | far | 2 | 0.75 | 1.25 | 0.")
