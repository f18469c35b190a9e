"""Any thread may end a run; the main thread wakes."""

from __future__ import annotations

import pathlib
import re
import threading

import pytest

from seedzero.config import configs
from seedzero.core import errors
from seedzero.learner import endings
from seedzero.storage.checkpoints import manifest, saved_files


def test_news_that_came_before_the_wait_ends_it_at_once() -> None:
    for tell in ("interrupt", "notify"):
        ending = endings.Ending()
        getattr(ending, tell)()
        ending.wait(float("inf"))
        assert ending.is_interrupted == (tell == "interrupt")
        ending.check()


def test_a_failure_wakes_and_is_raised_with_its_reason() -> None:
    ending = endings.Ending()
    ending.fail("worker 0 failed five times")
    ending.wait(float("inf"))
    with pytest.raises(errors.TrainingFailure, match="worker 0 failed five times"):
        ending.check()


class Learner:
    """A budget of 100 s, and a call on the device."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pulse: object | None = 0
        self.left_at: list[float] = []
        self.deadline = endings.Deadline(
            lambda: 100.0 - self.now, lambda: self.pulse, lambda: self.left_at.append(self.now)
        )

    def advance(self, seconds: float) -> None:
        for _ in range(int(2 * seconds)):
            self.now += 0.5
            self.deadline.look()


def test_a_call_that_does_not_return_ends_the_process_ten_seconds_past_the_budget() -> None:
    learner = Learner()
    learner.advance(109.5)
    assert learner.left_at == []
    learner.advance(0.5)
    assert learner.left_at == [110.0]


def test_calls_that_return_may_follow_each_other() -> None:
    learner = Learner()
    learner.advance(99.0)
    for learner.pulse in range(1, 20):
        learner.advance(9.0)
    assert learner.left_at == []
    learner.advance(1.5)
    assert len(learner.left_at) == 1


def test_saving_and_waiting_for_environments_end_nothing() -> None:
    learner = Learner()
    learner.advance(105.0)
    learner.pulse = None
    learner.advance(500.0)
    learner.pulse = 0  # a call that began later
    learner.advance(10.0)
    assert learner.left_at == []
    learner.advance(0.5)
    assert len(learner.left_at) == 1


def test_a_thread_looks_while_it_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "_LOOK_SECONDS", 0.0)
    left = threading.Event()
    late = endings.Deadline(iter(range(0, -1_000_000, -1)).__next__, lambda: "a call", left.set)
    with late.watched():
        assert left.wait(60.0)


def _write(directory: pathlib.Path, step: int, best: float | None, last: float | None, **more: float) -> None:
    path = saved_files.step_directory(directory, step)
    path.mkdir(parents=True)
    counters = {
        "num_updates": step,
        "ledger": {"stored": 10 * step},
        "best_return": best,
        **{f"{name}_return": value for name, value in more.items()},
        "last_evaluation": None if last is None else {"update": step, "mean_return": last},
    }
    manifest.write(path, manifest.Manifest(step, 0.0, 1, counters=counters))


def test_counters_are_those_of_the_newest_checkpoint(tmp_path: pathlib.Path) -> None:
    _write(tmp_path, 20, 1.5, 0.5)
    _write(tmp_path, 30, 1.5, 1.0)
    found = endings.read_result(tmp_path, "gs://runs/one", finished="--max_updates=30 reached")
    assert found == endings.Result("gs://runs/one", True, "--max_updates=30 reached", 300, 30, 1.5, 1.0)


def test_the_best_return_is_that_of_the_page_a_first_evaluation_counts_too(tmp_path: pathlib.Path) -> None:
    _write(tmp_path, 20, None, 150.4, highest=150.4)
    assert endings.read_result(tmp_path, "r", finished="").best_return == 150.4
    _write(tmp_path, 30, 9.0, 9.0, highest=150.4)
    assert endings.read_result(tmp_path, "r", finished="").best_return == 150.4


def test_a_training_that_was_stopped_is_not_finished(tmp_path: pathlib.Path) -> None:
    (tmp_path / saved_files.STEPS).mkdir()
    assert endings.read_result(tmp_path, "r", finished="") == endings.Result("r", False, "stopped")
    _write(tmp_path, 20, None, None)
    assert endings.read_result(tmp_path, "r", finished="") == endings.Result("r", False, "stopped", 200, 20)


@pytest.mark.parametrize(
    ("agent", "num_hosts", "budget", "told"),
    [
        ("muzero", 1, 99, "--max_env_steps=99 is less than --replay.min_steps=100, which"),
        ("muzero", 1, 100, "compilation and a first batch"),
        ("muzero", 1, 0, "compilation and a first batch"),
        ("muzero", 2, 198, "--max_env_steps=198, shared by 2 hosts, is less than --replay.min_steps=100 of each"),
        ("muzero", 2, 199, "compilation and a first batch"),  # a share of 100
        ("ppo", 1, 99, "compilation and a first batch"),  # it has no replay
    ],
)
def test_a_training_without_updates_says_why(agent: str, num_hosts: int, budget: int, told: str) -> None:
    changes = {"run.agent": agent, "run.max_env_steps": budget, "replay.min_steps": 100}
    changes["cluster.num_hosts"] = num_hosts
    found = endings.without_updates(configs.override(configs.Config(), changes))
    assert re.match(told, found)
