"""How the exceptions of environments are told; the promises of the interface are tested in conformance_test.py."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from seedzero.core import errors
from seedzero.envs import base as env_base
from seedzero.envs import catch


def _raise_from_itself() -> None:
    try:
        raise ValueError("no wheels")
    except ValueError as error:
        raise error from error


def _raise_in_a_circle() -> None:
    first, second = ValueError("no wheels"), KeyError("cart")
    first.__cause__, second.__cause__ = second, first
    raise first


class _WithoutText(Exception):
    def __str__(self) -> str:
        raise KeyError("text")


def _raise_without_text() -> None:
    raise _WithoutText


def _raise_within_python() -> None:
    _ = os.environ["NO_SUCH_NAME"]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (
            _raise_within_python,
            r"^it raised: KeyError: 'NO_SUCH_NAME' \(envs/base_test\.py, line \d+, in _raise_within_python\)$",
        ),
        (
            _raise_from_itself,
            r"^it raised: ValueError: no wheels \(envs/base_test\.py, line \d+, in _raise_from_itself\)",
        ),
        (
            _raise_in_a_circle,
            r"^it raised: ValueError: no wheels \(envs/base_test\.py, line \d+, in _raise_in_a_circle\)$",
        ),
        (_raise_without_text, r"^it raised: _WithoutText \(envs/base_test\.py, line \d+, in _raise_without_text\)$"),
    ],
)
def test_exceptions_of_every_kind_are_told(function: Any, told: str) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=told), env_base.failures_of("it raised"):
        function()


class _Stuck(catch.Catch):
    def close(self) -> None:
        raise OSError("no simulator")


def test_an_error_of_close_is_told_where_none_came_before_it() -> None:
    told = r"^the environment raised in close: OSError: no simulator \(envs/base_test\.py, line \d+, in close\)$"
    with pytest.raises(errors.EnvironmentFailure, match=told), env_base.closing(_Stuck(1)):
        pass
    with pytest.raises(errors.EnvironmentFailure, match=r"^no reset$"), env_base.closing(_Stuck(1)):
        raise errors.EnvironmentFailure("no reset")


DEADLINE_SECONDS = 60.0


class _Closing:
    """Calls a function in `close`, and keeps the thread."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self.thread: int | None = None

    def close(self) -> None:
        self.thread = threading.get_ident()
        self._function()


def test_objects_whose_close_takes_time_are_closed_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_base, "PATIENCE_SECONDS", 0.01)
    together = threading.Barrier(3)  # broken after its time if one waits for another
    things = [_Closing(lambda: together.wait(DEADLINE_SECONDS)) for _ in range(3)]
    env_base.close_all(things)
    assert things[0].thread == threading.get_ident() and len({thing.thread for thing in things}) == 3


def test_objects_that_close_quickly_are_closed_by_the_thread_that_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_base, "PATIENCE_SECONDS", DEADLINE_SECONDS)
    things = [_Closing(lambda: None) for _ in range(3)]
    env_base.close_all(things)
    assert {thing.thread for thing in things} == {threading.get_ident()}


@pytest.mark.parametrize("patience_seconds", [0.01, DEADLINE_SECONDS])
def test_every_object_is_closed_and_the_first_exception_raised(
    monkeypatch: pytest.MonkeyPatch, patience_seconds: float
) -> None:
    monkeypatch.setattr(env_base, "PATIENCE_SECONDS", patience_seconds)
    closed, last = [], threading.Event()

    def fail(name: str) -> None:
        closed.append(name)
        raise OSError(name)

    def hold() -> None:
        if patience_seconds < 1:  # until the helper has come
            assert last.wait(DEADLINE_SECONDS)

    things = [hold, lambda: fail("b"), lambda: closed.append("c"), lambda: fail("d"), last.set]
    with pytest.raises(OSError, match=r"^b$"):
        env_base.close_all([_Closing(function) for function in things])
    assert sorted(closed) == ["b", "c", "d"]
