"""Lines about a call that takes long."""

from __future__ import annotations

import threading

import pytest

from seedzero.device import patience


def test_a_long_call_is_told_again_and_again_until_its_end() -> None:
    said: list[str] = []
    enough, times = threading.Event(), iter(range(100, 10_000, 10))

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            enough.set()

    with patience.telling(lambda: "compiling", say, every_seconds=1e-3, clock=lambda: float(next(times))):
        assert enough.wait(60)
    assert said[:2] == ["compiling, 10 s so far", "compiling, 20 s so far"]
    assert "patience" not in {thread.name for thread in threading.enumerate()}


def test_a_short_call_and_one_without_news_say_nothing() -> None:
    asked = threading.Event()

    def state() -> str:
        asked.set()
        return ""

    with patience.telling(lambda: pytest.fail("asked"), pytest.fail):
        pass
    with patience.telling(state, pytest.fail, every_seconds=1e-3):
        assert asked.wait(60)


def test_a_closed_stream_ends_nothing() -> None:
    tried = threading.Event()

    def say(text: str) -> None:
        tried.set()
        raise BrokenPipeError

    with patience.telling(lambda: "compiling", say, every_seconds=1e-3):
        assert tried.wait(60)
