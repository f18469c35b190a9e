"""Functions of a caller, on a thread of their own."""

from __future__ import annotations

import pathlib
import threading
from concurrent import futures
from typing import Any

import pytest

from seedzero.core import errors
from seedzero.learner import callbacks, endings


class _Called:
    """Started callbacks."""

    def __init__(self, **functions: Any) -> None:
        self.ending = endings.Ending()
        self.callbacks = callbacks.Callbacks(functions, self.ending)
        self.callbacks.start()


def test_calls_come_in_order_on_one_other_thread_with_copies() -> None:
    got: list[Any] = []

    def take(values: dict[str, Any]) -> None:
        got.append((threading.current_thread().name, dict(values)))
        values.clear()

    called, row = _Called(on_row=take, on_evaluation=take), {"update": 1}
    for number in range(3):
        called.callbacks.note("on_row", row | {"update": number})
    called.callbacks.note("on_evaluation", row)
    called.callbacks.note("on_nothing", row)
    assert called.callbacks.finish() == "" and called.callbacks.reason == ""
    assert got == [("callbacks", {"update": number}) for number in (0, 1, 2, 1)] and row == {"update": 1}


def test_a_call_waits_for_what_its_function_is_to_find_and_later_calls_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[str] = []

    def wait(awaited: list[futures.Future[None]]) -> None:
        for one in awaited:
            one.set_result(None)

    monkeypatch.setattr(callbacks.futures, "wait", wait)  # the checkpoint is written while it is awaited
    called = _Called(on_row=lambda row: got.append("row"), on_evaluation=lambda row: got.append("evaluation"))
    written = futures.Future[None]()
    called.callbacks.note("on_row", {})
    called.callbacks.note("on_evaluation", {}, written)
    called.callbacks.note("on_row", {})
    written.add_done_callback(lambda _: got.append("written"))
    assert called.callbacks.finish() == "" and got == ["row", "written", "evaluation", "row"]


def test_the_first_returned_text_is_the_reason() -> None:
    called = _Called(on_row=lambda row: row["text"])
    for text in (None, "good\n enough", "later"):
        called.callbacks.note("on_row", {"text": text})
    assert called.callbacks.finish() == ""
    assert called.callbacks.reason == "good enough"


def test_what_a_function_raises_ends_training_with_its_line() -> None:
    def fail(row: dict[str, Any]) -> None:
        raise KeyError("lost")

    told = ("KeyError: 'lost'", "SystemExit: 3", "TypeError: it returned 7; expected None, or a string")
    for cause, function in zip(told, (fail, lambda row: exit(3), lambda row: 7), strict=True):
        called = _Called(on_row=function)
        called.callbacks.note("on_row", {})
        called.callbacks.note("on_row", {})
        with pytest.raises(
            errors.CallbackError, match=rf"^on_row raised {cause}.*{pathlib.Path(__file__).name}:\d+"
        ) as raised:
            called.callbacks.finish()
        assert called.ending.failure is raised.value


def test_a_hanging_function_is_left_behind_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "CLOSE_SECONDS", 0.05)
    release, began = threading.Event(), threading.Event()

    def hang(row: dict[str, Any]) -> None:
        began.set()
        release.wait()

    called = _Called(on_evaluation=hang)
    for _ in range(3):
        called.callbacks.note("on_evaluation", {})
    assert began.wait(60)
    text = called.callbacks.finish()
    release.set()
    assert text.startswith("on_evaluation has not returned") and f"{__file__}:" in text and "2 later calls" in text


def test_calls_beyond_a_number_that_wait_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "MOST_WAITING", 2)
    release, began, got = threading.Event(), threading.Event(), list[int]()

    def take(row: dict[str, Any]) -> None:
        began.set()
        release.wait(60)
        got.append(row["number"])

    called = _Called(on_row=take)
    called.callbacks.note("on_row", {"number": 0})
    assert began.wait(60)
    for number in range(1, 6):
        called.callbacks.note("on_row", {"number": number})
    release.set()
    assert called.callbacks.finish().startswith("3 calls were left out") and got == [0, 1, 2]


def test_without_functions_there_is_no_thread() -> None:
    called = _Called()
    called.callbacks.note("on_row", {})
    assert called.callbacks.finish() == "" and called.callbacks._thread.ident is None
