"""A worker on a thread of the learner's process."""

from __future__ import annotations

import os
import threading

import pytest

from seedzero.core import errors
from seedzero.learner.processes import in_process


@pytest.mark.parametrize(("code", "num_failures"), [(errors.DONE, 0), (errors.FAILED, 1)])
def test_it_works_once_until_it_is_told_to_stop_and_reports_a_failure(
    code: int, num_failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDZERO_TESTED", "")
    seen, told = list[object](), list[str]()

    def work(server: str, stop: threading.Event) -> int:
        seen.append((server, os.environ["SEEDZERO_TESTED"], threading.current_thread().name))
        stop.wait()
        return code

    worker = in_process.InProcess(work, "unix:here", told.append, {"SEEDZERO_TESTED": "key"})
    worker.start()
    worker.restart("local-0")
    worker.finish()
    worker.stop(60.0)
    assert seen == [("unix:here", "key", "environments")] and len(told) == num_failures
    worker.kill()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_exception_is_a_failure_too() -> None:
    told = list[str]()

    def work(server: str, stop: threading.Event) -> int:
        raise KeyboardInterrupt  # as an environment may, whose window was closed

    worker = in_process.InProcess(work, "unix:here", told.append, {})
    worker.start()
    worker.stop(60.0)
    assert told == ["the environments of --debug failed"]


def test_one_that_was_never_started_or_waits_at_a_breakpoint_is_left_behind() -> None:
    is_over = threading.Event()

    def work(server: str, stop: threading.Event) -> int:
        is_over.wait()
        return errors.DONE

    worker = in_process.InProcess(work, "unix:here", lambda reason: None, {})
    worker.stop(0.0)
    worker.start()
    worker.stop(0.0)
    is_over.set()
