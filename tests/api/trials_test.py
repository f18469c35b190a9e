"""Searches: ranges, trials that are stopped early, and resumes. Nothing is trained: files stand for the runs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import full_disk
import numpy as np
import pytest
import saved_run

from seedzero.api import sweeps, trials
from seedzero.config import sections
from seedzero.core import errors
from seedzero.monitoring import metrics_log

optuna = pytest.importorskip("optuna")

_FLAGS = {"preset": "catch"}
_LR = "optimizer.learning_rate"
_RANGE = {_LR: "log:1e-4:1e-1"}
_SETTINGS = {"run.agent": "ppo", "run.max_env_steps": "1000"}


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out what makes each line of the journal durable: seconds on a busy disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def _plan(
    texts: Mapping[str, str] = _RANGE,
    root: pathlib.Path | str = "d",
    settings: Mapping[str, str] = _SETTINGS,
    **fields: Any,
) -> trials.SearchPlan:
    return trials.plan(texts, _FLAGS, settings, str(root), **{"num_trials": 5, "sampler": "random", **fields})


@contextlib.contextmanager
def _search(root: pathlib.Path, **fields: Any) -> Iterator[trials.Search]:
    with trials.opened(_plan(root=root, **fields)) as search:
        yield search


def _write(run: sweeps.PlannedRun, *returns: float, finished: str = "") -> None:
    """Writes a run with evaluations at 0, 10, 20, ... % of its 1,000 steps."""
    given = {name.replace(".", "__"): value for name, value in run.settings.items()}
    saved_run.make(run.path, returns, finished=finished, every=100, **given)


def test_ranges_follow_the_type_of_their_setting() -> None:
    texts = {**_RANGE, "ppo.num_epochs": "uniform:2:8", "ppo.batch_size": "log:8:64", "ppo.num_minibatches": "2,4"}
    found = _plan({**texts, "ppo.clip_ratio": "0.3", "run.seed": "4"})
    assert found.space == {
        _LR: optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True),
        "ppo.num_epochs": optuna.distributions.IntDistribution(2, 8),
        "ppo.batch_size": optuna.distributions.IntDistribution(8, 64, log=True),
        "ppo.num_minibatches": optuna.distributions.CategoricalDistribution(["2", "4"]),
    }
    run = found.run(7, {_LR: 0.00123456789, "ppo.num_epochs": 3, "ppo.num_minibatches": "4"})
    assert run.settings == {
        **_SETTINGS,
        "ppo.clip_ratio": "0.3",
        "run.seed": "4",
        _LR: "0.00123457",
        "ppo.num_epochs": "3",
        "ppo.num_minibatches": "4",
    }
    assert run.flags == {"preset": "catch", "run_dir": "d/trial-007"} and run.name == "trial-007"


@pytest.mark.parametrize(
    "text",
    ["log:0:1", "log:1e-3:1e-4", "uniform:1:1", "uniform:0:inf", "int:1:2", "log:1e-3", "uniform:1:x", "1:2:3"],
)
def test_wrong_ranges_are_named(text: str) -> None:
    with pytest.raises(errors.UsageError, match=None):
        _plan({_LR: text})


@pytest.mark.parametrize("texts", [{**_RANGE, "run.seed": "1,2"}, {**_RANGE, "run.seed": "uniform:1:9"}, {_LR: "1"}])
def test_a_search_needs_one_seed_and_something_to_choose(texts: Mapping[str, str]) -> None:
    with pytest.raises(errors.UsageError, match=None):
        _plan(texts)


def test_without_optuna_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(errors.UsageError, match=r"--trials.*pip install.*optuna"):
        _plan()


@pytest.mark.parametrize(
    ("texts", "settings"),
    [
        (_RANGE, {"run.agent": "ppo", "run.stop_at_return": "0.9"}),
        (_RANGE, {**_SETTINGS, "evaluation.every_updates": "0", "run.stop_at_return": "inf"}),
        ({_LR: "uniform:-1:1"}, _SETTINGS),
        ({**_RANGE, "network.width": "8,0"}, _SETTINGS),
    ],
)
def test_settings_are_checked_at_the_ends_of_ranges(texts: Mapping[str, str], settings: Mapping[str, str]) -> None:
    with pytest.raises(errors.UsageError, match=None):
        trials.check(_plan(texts, settings=settings))
    trials.check(_plan())


def test_the_budget_used_is_that_of_the_end_which_is_nearest() -> None:
    run = sections.RunConfig(max_updates=200, max_env_steps=1000, max_seconds=0.0)
    assert trials.percent((30, 100, 7.0), run) == 15  # 15 % of the updates, 10 % of the steps
    assert trials.percent((30, 369, 7.0), run) == 36


def test_trials_worse_than_the_best_third_are_stopped(tmp_path: pathlib.Path) -> None:
    # Compared at 20 and 40 %, the first evaluations after 12 and 36 %. Of up to five, the best third is one.
    with _search(tmp_path) as search:
        todo = search.todo()
        first = next(todo)
        assert not search.is_bad(first)  # it has written nothing yet
        _write(first, 9.0, 1.0)
        assert not search.is_bad(first)  # at 10 %
        _write(first, 9.0, 1.0, 5.0)
        assert not search.is_bad(first)  # nobody to compare with
        second = next(todo)
        _write(second, 9.0, 8.0, 3.0)
        assert search.is_bad(second) and not search.is_bad(second)  # once
        assert search.end(second, "") == (trials.EARLY, "3 at 20 % of its budget")
        third = next(todo)
        _write(third, 0.0, 1.0, 5.0, 0.0, 10.0)
        assert not search.is_bad(third)  # as good as the first
        _write(first, 9.0, 1.0, 5.0, 8.0, 4.0)
        assert search.is_bad(first)


def test_a_trial_is_compared_with_the_lines_between_others_evaluations() -> None:
    others = [{0: 9.0, 10: 1.0, 30: 5.0}, {0: 9.0, 20: 8.0}, {0: 9.0, 5: 7.0}]  # 3 at 20 %, 8, and none yet
    assert trials.value_at(others[0], 20) == 3.0
    assert [trials.value_at(others[0], place) for place in (5, 40)] == [None, None]
    assert trials.value_at({0: 9.0}, 0) is None
    assert not trials.is_worse([*others[::2], {0: 0.0, 20: 3.0}], 2)
    assert trials.is_worse([*others, {0: 0.0, 20: 7.9}], 3)
    assert not trials.is_worse([*others, {0: 0.0, 20: 8.0, 25: 0.0}], 3)  # once between the rungs
    often = {step: step / 100 for step in range(0, 101, 10)}
    for steps, is_worse in (([41], True), ([41, 82], True), ([82], False), ([12, 41, 82], False), ([60], False)):
        assert trials.is_worse([often, dict.fromkeys(steps, 0.0)], 1) == is_worse, steps


_INTERVALS = (5, 10, 20, 41)


def _part_stopped(
    course: Callable[[int], float], qualities: tuple[float, ...] = (1.0,)
) -> dict[tuple[float, int], float]:
    """Returns the part of trials that searches stop, by quality and percent of the budget between two evaluations.

    Returns follow a course times the quality, with noise. A search has 20 trials, one after the other.
    """
    generator, stopped = np.random.default_rng(0), dict[tuple[float, int], list[bool]]()
    for _ in range(100):
        curves = list[dict[int, float]]()
        for interval in generator.permutation(5 * _INTERVALS).tolist():
            quality = float(generator.choice(qualities))
            curves.append({0: generator.normal(0.0, 0.05)})
            for step in range(interval, 100, interval):
                curves[-1][step] = quality * course(step) + generator.normal(0.0, 0.05)
                if is_stopped := trials.is_worse(curves, len(curves) - 1):
                    break
            stopped.setdefault((quality, interval), []).append(is_stopped)
    return {key: sum(found) / len(found) for key, found in stopped.items()}


@pytest.mark.parametrize("course", [lambda step: step / 100, lambda step: 1 - math.exp(-step / 15)])
def test_equal_trials_are_stopped_equally_often_however_often_they_are_evaluated(
    course: Callable[[int], float],
) -> None:
    found = _part_stopped(course)
    assert max(found.values()) - min(found.values()) < 0.08, found
    found = _part_stopped(course, qualities=(0.5, 1.0))
    for interval in _INTERVALS:
        assert found[0.5, interval] > 0.85 and found[1.0, interval] < found[0.5, interval] - 0.1, found


def _evaluate(run: sweeps.PlannedRun, values: Mapping[int, float]) -> None:
    """Writes a run with evaluations by percent of its 1,000 steps; the first is at update 1, as every run's."""
    _write(run)
    rows = [
        {"kind": "evaluation", "update": max(1, 10 * index), "env_steps": 10 * share, "evaluation_mean_return": value}
        for index, (share, value) in enumerate(values.items())
    ]
    (run.path / metrics_log.METRICS_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_untrained_play_stops_nobody(tmp_path: pathlib.Path) -> None:
    with _search(tmp_path) as search:
        todo = search.todo()
        for untrained, trained in ((0.0, 5.0), (-4.0, 5.0), (-8.0, 5.0)):
            run = next(todo)
            _evaluate(run, {12: untrained})
            assert not search.is_bad(run)
            _evaluate(run, {12: untrained, 25: trained, 50: trained})
            assert not search.is_bad(run)
        run = next(todo)
        _evaluate(run, {12: 9.0, 25: 4.0})
        assert search.is_bad(run)


def test_with_fewer_than_three_evaluations_none_is_stopped_and_it_is_said_once(tmp_path: pathlib.Path) -> None:
    heard = list[str]()
    with trials.opened(_plan(root=tmp_path), heard.append) as search:
        for value, run in zip((5.0, 1.0, 0.0), search.todo(), strict=False):
            _evaluate(run, {1: 0.0, 50: value, 100: value})
            assert not search.is_bad(run)
    (told,) = heard
    assert "fewer than three evaluations" in told and "of trial 0: evaluate more often" in told


def test_without_halving_none_is_stopped(tmp_path: pathlib.Path) -> None:
    with _search(tmp_path, halves=False) as search:
        for value, run in zip((5.0, 1.0), search.todo(), strict=False):
            _write(run, 0.0, 0.0, value)
            assert not search.is_bad(run)


def test_a_search_resumes_where_it_was_interrupted(tmp_path: pathlib.Path) -> None:
    with _search(tmp_path) as search:
        todo = search.todo()
        done, bad, broken, unknown, open_one = (next(todo) for _ in range(5))
        assert next(todo, None) is None
        _write(done, 0.0, 0.0, 5.0, 0.0, 6.0, finished="--max_env_steps")
        assert search.end(done, "") == (sweeps.FINISHED, "--max_env_steps")
        _write(bad, 0.0, 0.0, 4.0)
        assert search.is_bad(bad)
        assert search.end(broken, "exit code 1") == (sweeps.FAILED, "exit code 1")
        _write(open_one, 0.0)
        assert search.end(open_one, "") == (sweeps.STOPPED, "")
        _write(unknown, 0.0, 0.0, 8.0, finished="--max_env_steps")  # the search was killed before it heard of that end
        drawn = list(search.planned)
    with _search(tmp_path, num_trials=7) as again:
        assert again.planned == drawn
        assert again.states == {done.name: (sweeps.SKIPPED, "--max_env_steps"), bad.name: (trials.EARLY, "")}
        assert [run.name for run in again.todo()] == ["trial-002", "trial-004", "trial-005", "trial-006"]
        assert again.states[unknown.name] == (sweeps.FINISHED, "--max_env_steps")
        assert len({run.settings[_LR] for run in again.planned}) == 7
        assert [(row["trial"], row["value"], row["state"]) for row in again.ranking()] == [
            ("trial-003", 8.0, sweeps.FINISHED),
            ("trial-000", 6.0, sweeps.SKIPPED),
            ("trial-001", 4.0, trials.EARLY),
        ]


def test_a_trial_without_its_settings_is_drawn_anew(tmp_path: pathlib.Path) -> None:
    with _search(tmp_path, num_trials=2) as search:
        first, second = search.todo()
    journal = tmp_path / trials.JOURNAL
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))  # a kill between its two lines
    heard = list[str]()
    for _ in range(2):  # remembered, and told once
        with trials.opened(_plan(root=tmp_path, num_trials=2), heard.append) as search:
            todo = list(search.todo())
            assert [run.name for run in todo] == ["trial-000", "trial-002"] and todo[0] == first
            assert todo[1].settings[_LR] != second.settings[_LR]
            assert all(1e-4 <= float(run.settings[_LR]) <= 1e-1 for run in todo) and not search.ranking()
    (told,) = heard
    assert told.startswith("trial-001 was interrupted ")


def test_a_directory_of_a_lost_draw_is_no_other_trials(tmp_path: pathlib.Path) -> None:
    with _search(tmp_path, num_trials=1) as search:
        _write(*search.todo())
    (tmp_path / trials.JOURNAL).unlink()
    heard = list[str]()
    with trials.opened(_plan(root=tmp_path, num_trials=1), heard.append) as search:
        assert [run.name for run in search.todo()] == ["trial-001"]
    (told,) = heard
    assert told.startswith(f"{tmp_path}/trial-000 is of a trial that search.journal does not have")


def test_a_disk_full_for_a_moment_costs_no_trial(tmp_path: pathlib.Path) -> None:
    with _search(tmp_path) as search:
        todo = search.todo()
        first = next(todo)
        _write(first, 0.0, 0.0, 5.0, finished="--max_env_steps")
        with full_disk.after(tmp_path / trials.JOURNAL, 40):
            assert not search.is_bad(first) and search.end(first, "")[0] == sweeps.FINISHED
            second = next(todo)
        drawn = list(search.planned)
    with _search(tmp_path) as again:
        assert again.planned == drawn and again.ranking()[0]["value"] == 5.0
        assert next(again.todo()) == second


def test_the_next_trials_follow_the_best_ones(tmp_path: pathlib.Path) -> None:
    def distance(run: sweeps.PlannedRun) -> float:
        return abs(math.log10(float(run.settings[_LR])) + 1.5)

    with _search(tmp_path, sampler="tpe", num_trials=30, halves=False) as search:
        for run in search.todo():
            _write(run, 0.0, -distance(run), finished="--max_env_steps")
            assert search.end(run, "")[0] == sweeps.FINISHED
        found = [distance(run) for run in search.planned]
        assert sum(found[20:]) < 0.5 * sum(found[:10])
        assert search.ranking()[0]["value"] == -min(found)


def test_a_run_without_the_objective_fails_and_names_its_metrics(tmp_path: pathlib.Path) -> None:
    with _search(tmp_path, objective="win_rate") as search:
        run = next(search.todo())
        _write(run, 0.0, 0.0, 5.0, finished="--max_env_steps")
        state, reason = search.end(run, "")
        assert state == sweeps.FAILED
        assert "no win_rate, but env_steps, episode_return, " in reason and "another --objective" in reason


def test_another_search_in_the_same_directory_is_refused(tmp_path: pathlib.Path) -> None:
    with _search(tmp_path), pytest.raises(errors.Occupied, match="search"), _search(tmp_path):
        pass
    for other in ({"texts": {_LR: "log:1e-4:1e-2"}}, {"objective": "loss"}):
        with pytest.raises(errors.UsageError, match=None), _search(tmp_path, **other):
            pass
    with _search(tmp_path, sampler="tpe", halves=False):  # may change
        pass


def test_the_default_directory_is_another_for_other_ranges() -> None:
    assert _plan(root="").root == _plan(root="", num_trials=9).root != _plan({_LR: "log:1e-4:1e-2"}, root="").root
    assert str(_plan(root="").root).startswith("runs/search-catch-")
