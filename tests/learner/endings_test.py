"""Any thread may end a run; the main thread wakes."""

from __future__ import annotations

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
