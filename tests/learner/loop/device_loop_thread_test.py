"""The loop's thread reports how the loop ended, and stops it when it is left."""

from __future__ import annotations

import contextlib
import threading
from concurrent import futures
from typing import Any, cast

import pytest

from seedzero.core import errors
from seedzero.learner.loop import device_loop


class FakeLoop:
    """Runs until it is stopped, or fails at once."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self._stopped = threading.Event()
        self._reason = ""
        self.is_closed = False

    def run(self) -> str:
        if self._error is not None:
            raise self._error
        self._stopped.wait()
        return self._reason

    def stop(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._stopped.set()

    def close(self) -> None:
        self.is_closed = True


def _running(loop: FakeLoop, ended: list[bool]) -> contextlib.AbstractContextManager[futures.Future[str]]:
    return device_loop.running(cast(device_loop.DeviceLoop, cast(Any, loop)), lambda: ended.append(True))


def test_leaving_stops_the_loop_and_closes_its_programs() -> None:
    loop, ended = FakeLoop(), []  # type: ignore[var-annotated]
    with _running(loop, ended) as over:
        assert not over.done() and not loop.is_closed
    assert (over.result(), loop.is_closed, ended) == ("stopped", True, [True])


def test_the_loops_own_reason_counts() -> None:
    loop, ended = FakeLoop(), []  # type: ignore[var-annotated]
    with _running(loop, ended) as over:
        loop.stop("--max_updates=3 reached")
        assert over.result(timeout=600) == "--max_updates=3 reached"
    assert loop.is_closed and ended == [True]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.TrainingFailure("not finite"), "not finite"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
    ],
)
def test_whatever_ends_the_loop_is_reported_by_name(error: Exception, message: str) -> None:
    ended: list[bool] = []
    with _running(FakeLoop(error), ended) as over:
        failure = over.exception(timeout=600)
    assert ended == [True] and isinstance(failure, errors.Error) and message in str(failure)
