from __future__ import annotations

import pathlib

import pytest
import saved_run

from seedzero.api import run_groups, run_places, scores


def _read(path: pathlib.Path) -> run_places.RunRecord:
    return run_places.read(str(path), scores.METRICS)


def test_last_and_best_have_standard_errors(tmp_path: pathlib.Path) -> None:
    run = _read(saved_run.make(tmp_path / "run", (9.0, 2.0, 5.0, 5.0, 1.0)))
    # std 0.3 of 10 episodes: 0.3 / sqrt(9); the first evaluation is a baseline
    assert scores.last(run) == pytest.approx((1.0, 0.1, 10, 40, 4_000))
    assert scores.best(run) == pytest.approx((5.0, 0.1, 10, 20, 2_000))
    found = scores.of_run(run)
    assert (found["env_steps"], found["updates"], found["seconds"]) == (4_000, 40, 8.0)
    assert (found["env_steps_per_second"], found["state"], found["finished"]) == (500.0, "stopped", None)


def test_a_run_without_evaluations_has_no_score(tmp_path: pathlib.Path) -> None:
    found = scores.of_run(_read(saved_run.make(tmp_path / "run", ())))
    assert (found["last"], found["best"], found["env_steps_per_second"]) == (None, None, None)
    first = _read(saved_run.make(tmp_path / "first", (1.0,)))
    assert scores.last(first) is not None and scores.best(first) is None


def test_a_group_has_mean_interval_and_median_over_seeds(tmp_path: pathlib.Path) -> None:
    ends = [(0.0, 1.0), (0.0, 2.0), (0.0, 6.0), ()]
    runs = [_read(saved_run.make(tmp_path / str(seed), end, run__seed=seed)) for seed, end in enumerate(ends)]
    (group,) = run_groups.group(runs)
    found = scores.of_group(group)["last"]
    assert (found["runs"], found["mean"], found["median"]) == (3, 3.0, 2.0)
    assert (found["low"], found["high"]) == pytest.approx((3 - 6.5725, 3 + 6.5725), abs=1e-3)  # as in bands_test.py


def test_differences_are_by_group_and_tell_given_settings(tmp_path: pathlib.Path) -> None:
    runs = [
        _read(saved_run.make(tmp_path / "1", run__seed=1, run__agent="ppo", run__max_updates=5)),
        _read(saved_run.make(tmp_path / "2", run__seed=2, run__agent="ppo", run__max_updates=6)),
        _read(saved_run.make(tmp_path / "3", run__seed=1, run__agent="vtrace")),
    ]
    found = {each.name: each for each in scores.differences(run_groups.group(runs))}
    assert "seed" not in found
    assert found["agent"] == ("agent", ("ppo", "vtrace"), (True, True))
    assert found["max_updates"] == ("max_updates", ("5 | 6", "0"), (True, False))
    assert found["vtrace.max_lag"].values[0] is None
