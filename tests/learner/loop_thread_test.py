"""The loop's thread reports how the loop ended, and stops it when it is left."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from seedzero.core import errors
from seedzero.learner import device_loop, loop_thread


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


def _thread(loop: FakeLoop, ended: list[bool]) -> loop_thread.LoopThread:
    return loop_thread.LoopThread(cast(device_loop.DeviceLoop, cast(Any, loop)), lambda: ended.append(True))


def test_leaving_stops_the_loop_and_closes_its_programs() -> None:
    loop, ended = FakeLoop(), []  # type: ignore[var-annotated]
    with _thread(loop, ended) as thread:
        assert thread.is_alive
        loop.stop("--max_updates=3 reached")
        thread.join()
    assert (thread.reason, thread.failure, loop.is_closed, ended) == ("--max_updates=3 reached", None, True, [True])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.TrainingFailure("not finite"), "not finite"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
    ],
)
def test_whatever_ends_the_loop_is_reported_by_name(error: Exception, message: str) -> None:
    ended: list[bool] = []
    with _thread(FakeLoop(error), ended) as thread:
        thread.join()
    assert thread.reason is None and ended == [True]
    assert isinstance(thread.failure, errors.Error) and message in str(thread.failure)
