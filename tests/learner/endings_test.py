"""Any thread may end a run; the main thread wakes."""

from __future__ import annotations

import threading

import pytest

from seedzero.core import errors
from seedzero.learner import endings


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
