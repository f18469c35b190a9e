"""The thread that writes checkpoints: waiting for it ends."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import pytest

from seedzero.checkpoints import save_thread
from seedzero.core import errors


class Stuck:
    """A thread whose disk does not answer until `answers` is set, at a time that the test sets."""

    def __init__(self) -> None:
        self.seconds, self.answers, self.begun = 0.0, threading.Event(), threading.Event()
        self.lock = threading.RLock()
        self.thread = save_thread.SaveThread(lambda: self.seconds, look_seconds=0.001)

    def write(self) -> None:
        with self.lock, self.thread.writing():
            self.begun.set()
            assert self.answers.wait(60)

    def upload(self) -> None:
        self.begun.set()
        assert self.answers.wait(60)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    made = Stuck()
    yield made
    made.answers.set()
    made.thread.shutdown()


def test_waiting_ends_if_the_disk_does_not_answer_and_sooner_after_an_interrupt(stuck: Stuck) -> None:
    pending = stuck.thread.submit(stuck.write)
    assert stuck.begun.wait(60)
    stuck.seconds = save_thread.HURRIED_SECONDS + 1
    stuck.thread.check()  # a slow disk is no reason
    stuck.thread.hurry()
    for wait in (stuck.thread.check, lambda: stuck.thread.wait(None, pending)):
        with pytest.raises(errors.CheckpointError, match="has waited 31 s for the disk"):
            wait()
    with pytest.raises(errors.CheckpointError, match="31 s"), stuck.thread.holding(stuck.lock):
        pass
    stuck.answers.set()
    stuck.thread.wait(pending)
    stuck.thread.check()
    with stuck.thread.holding(stuck.lock):
        pass


def test_an_upload_has_limits_of_its_own_and_an_error_reaches_who_waits(stuck: Stuck) -> None:
    pending = stuck.thread.submit(stuck.upload)
    assert stuck.begun.wait(60)
    stuck.seconds = 1e9
    stuck.thread.check()
    stuck.answers.set()
    stuck.thread.wait(pending)
    with pytest.raises(ZeroDivisionError):
        stuck.thread.wait(stuck.thread.submit(lambda: 1 // 0))


def test_the_heap_is_trimmed_by_the_c_library_and_another_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        trimmed = 0

        def malloc_trim(self, pad: int) -> int:
            self.trimmed += 1
            return pad

    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    save_thread.trim_heap()
    assert library.trimmed == 1
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    save_thread.trim_heap()
