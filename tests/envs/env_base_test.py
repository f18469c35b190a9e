"""How the exceptions of environments are told; the promises of the interface are tested in conformance_test.py."""

from __future__ import annotations

import importlib
import math
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from seedzero.core import errors
from seedzero.envs import catch, env_base


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


def _exit() -> None:
    sys.exit()


def _raise_within_python() -> None:
    _ = os.environ["NO_SUCH_NAME"]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (
            _raise_within_python,
            r"^it raised: KeyError: 'NO_SUCH_NAME' \(envs/env_base_test\.py, line \d+, in _raise_within_python\)$",
        ),
        (
            _raise_from_itself,
            r"^it raised: ValueError: no wheels \(envs/env_base_test\.py, line \d+, in _raise_from_itself\)",
        ),
        (
            _raise_in_a_circle,
            r"^it raised: ValueError: no wheels \(envs/env_base_test\.py, line \d+, in _raise_in_a_circle\)$",
        ),
        (
            _exit,
            r"^it raised: SystemExit \(envs/env_base_test\.py, line \d+, in _exit\)$",
        ),
        (
            _raise_without_text,
            r"^it raised: _WithoutText \(envs/env_base_test\.py, line \d+, in _raise_without_text\)$",
        ),
    ],
)
def test_exceptions_of_every_kind_are_told(function: Any, told: str) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=told), env_base.failures_of("it raised"):
        function()


def test_a_traceback_has_a_user_s_frames_and_folds_those_of_seedzero() -> None:
    class Raises:
        def close(self) -> None:
            raise KeyError("no seat") from ValueError("no game")

    try:
        with env_base.failures_of("it raised"):
            env_base.close_all([Raises(), Raises()])
    except errors.EnvironmentFailure as error:
        lines = env_base.trace(error).splitlines()
        assert env_base.trace(errors.EnvironmentFailure("of seedzero itself")) == ""
    assert lines[0] == "ValueError: no game" and lines[-2:] == ["KeyError: 'no seat'", lines[-1]]
    assert lines.count("  ... frames of seedzero") == 2  # around this test
    assert [line for line in lines if line.endswith(", in close")] and "/env_base.py" not in "".join(lines)


class _Stuck(catch.Catch):
    def close(self) -> None:
        raise OSError("no simulator")


def test_an_error_of_close_is_told_where_none_came_before_it() -> None:
    told = r"^the environment raised in close: OSError: no simulator \(envs/env_base_test\.py, line \d+, in close\)$"
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


def test_objects_whose_close_takes_half_of_the_time_are_closed_side_by_side() -> None:
    together = threading.Barrier(3)  # broken after its time if one waits for another
    things = [_Closing(lambda: together.wait(DEADLINE_SECONDS)) for _ in range(3)]
    env_base.close_all(things, max_seconds=0.02)
    assert things[0].thread == threading.get_ident() and len({thing.thread for thing in things}) == 3


def test_environments_of_groups_have_the_time_of_all_groups() -> None:
    together = threading.Barrier(4)
    things = [_Closing(lambda: together.wait(DEADLINE_SECONDS)) for _ in range(4)]
    groups = [_Closing(lambda part=part: env_base.close_all(part)) for part in (things[:2], things[2:])]  # type: ignore[misc]
    env_base.close_all(groups, max_seconds=0.02)
    assert len({thing.thread for thing in things}) == 4


@pytest.mark.parametrize("max_seconds", [math.inf, 2 * DEADLINE_SECONDS])
def test_objects_are_closed_by_the_thread_that_made_them_where_time_allows(max_seconds: float) -> None:
    things = [_Closing(lambda: None) for _ in range(3)]
    env_base.close_all(things, max_seconds)
    assert {thing.thread for thing in things} == {threading.get_ident()}


@pytest.mark.parametrize(("max_seconds", "help_after"), [(math.inf, None), (10.0, 5.0)])
def test_help_comes_at_half_of_the_time_and_without_a_limit_never(
    monkeypatch: pytest.MonkeyPatch, max_seconds: float, help_after: float | None
) -> None:
    """Objects may be bound to their thread: sqlite3's, OpenGL's, Qt's."""
    after: list[float] = []

    class Timer(threading.Timer):
        def __init__(self, interval: float, *words: Any) -> None:
            after.append(interval)
            super().__init__(DEADLINE_SECONDS, *words)

    monkeypatch.setattr(threading, "Timer", Timer)
    env_base.close_all([_Closing(int), _Closing(int)], max_seconds)
    assert after == ([] if help_after is None else [pytest.approx(help_after, abs=1.0)])


@pytest.mark.parametrize("max_seconds", [0.02, 2 * DEADLINE_SECONDS])
def test_every_object_is_closed_and_the_first_exception_notes_the_others(max_seconds: float) -> None:
    closed, last = [], threading.Event()

    def fail(name: str) -> None:
        closed.append(name)
        raise OSError(name)

    def hold() -> None:
        if max_seconds < 1:  # until the helper has come
            assert last.wait(DEADLINE_SECONDS)

    things = [hold, lambda: fail("b"), lambda: closed.append("c"), lambda: fail("d"), last.set]
    with pytest.raises(OSError, match=r"^b") as caught:
        env_base.close_all([_Closing(function) for function in things], max_seconds)
    assert sorted(closed) == ["b", "c", "d"]
    (note,) = caught.value.__notes__
    assert "OSError: d (" in note


def test_an_interrupt_goes_before_exceptions_and_keeps_no_object_open() -> None:
    def fail(error: BaseException) -> None:
        raise error

    things = [_Closing(lambda: fail(OSError("a"))), _Closing(lambda: fail(KeyboardInterrupt())), _Closing(int)]
    with pytest.raises(KeyboardInterrupt) as caught:
        env_base.close_all(things)
    assert things[2].thread is not None and "OSError: a" in caught.value.__notes__[0]


def test_after_an_interrupt_between_two_objects_no_thread_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(env_base, "_close", interrupted)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        env_base.close_all([_Closing(int), _Closing(int)], 2 * DEADLINE_SECONDS)
    for thread in set(threading.enumerate()) - before:
        thread.join(DEADLINE_SECONDS / 2)
        assert not thread.is_alive()


def test_a_hidden_module_cannot_be_imported_until_the_end():
    sys.modules.pop("this", None)
    with env_base.imports_without("this"), pytest.raises(ImportError):
        importlib.import_module("this")
    assert "this" not in sys.modules
    assert importlib.util.find_spec("this") is not None


def test_what_is_imported_already_stays():
    with env_base.imports_without("importlib"):
        assert importlib.import_module("importlib") is importlib
    assert sys.modules["importlib"] is importlib


def test_a_cell_has_the_colour_of_its_last_plane_that_is_not_0() -> None:
    planes = np.zeros((2, 3, 12), np.float32)
    planes[0, 1, [0, 4]] = 0.5
    planes[1, 2, 4] = planes[0, 0, 0] = -1
    planes[1, 0, 10] = 1  # colours come again after ten planes
    picture = env_base.paint(planes)
    assert (picture.shape, picture.dtype) == ((64, 96, 3), np.uint8)
    cells = picture.reshape(2, 32, 3, 32, 3)
    assert (cells == cells[:, :1, :, :1]).all()
    colours = cells[:, 0, :, 0].tolist()
    black = [0, 0, 0]
    assert colours[0][1] == colours[1][2] not in (black, colours[0][0])
    assert colours[1][0] == colours[0][0] != black
    assert colours[0][2] == colours[1][1] == black


RED_AND_GRAY = np.array([[[255, 0, 0], [128, 128, 128]]], np.uint8)


@pytest.mark.parametrize(
    "value",
    [
        RED_AND_GRAY,
        RED_AND_GRAY / 255,
        (RED_AND_GRAY / 255).astype(np.float16),
        RED_AND_GRAY.astype(np.float64),
        RED_AND_GRAY.astype(np.uint16),
        RED_AND_GRAY.astype(np.int64),
        RED_AND_GRAY.tolist(),
        [np.zeros_like(RED_AND_GRAY), RED_AND_GRAY],
    ],
    ids=["uint8", "float64", "float16", "whole floats", "uint16", "int64", "nested list", "list of pictures"],
)
def test_a_picture_keeps_its_colours_in_every_form(value: object) -> None:
    picture = env_base.converted(value)
    assert picture.dtype == np.uint8
    np.testing.assert_array_equal(picture, RED_AND_GRAY)


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float32])
def test_zeros_and_ones_are_black_and_white(dtype: type) -> None:
    picture = env_base.converted(np.array([[[0, 1, 1]]], dtype))
    assert picture.tolist() == [[[0, 255, 255]]]


def test_bytes_of_0_and_1_are_nearly_black() -> None:
    assert env_base.converted(np.ones((1, 1, 3), np.uint8)).tolist() == [[[1, 1, 1]]]


@pytest.mark.parametrize("shape", [(1, 2), (1, 2, 1)])
def test_gray_pictures_get_three_channels(shape: tuple[int, ...]) -> None:
    picture = env_base.converted(np.array([7, 200], np.uint8).reshape(shape))
    assert picture.tolist() == [[[7, 7, 7], [200, 200, 200]]]


def test_opacity_shows_a_picture_on_white() -> None:
    values = np.array([[[10, 20, 30, 255], [10, 20, 30, 0], [0, 100, 200, 51]]], np.uint8)
    expected = [[[10, 20, 30], [255, 255, 255], [204, 224, 244]]]  # a fifth of the colour, four fifths of white
    assert env_base.converted(values).tolist() == expected
    assert env_base.converted(values / 255).tolist() == expected


@pytest.mark.parametrize(
    ("value", "description"),
    [
        (np.full((4, 4, 3), np.nan), "float64 from nan to nan"),
        (np.where(np.eye(4) > 0, np.inf, 0.0), "float64 from 0.0 to inf"),
        (np.linspace(-1, 1, 16).reshape(4, 4), "float64 from -1.0 to 1.0"),
        (np.linspace(0, 2, 16).reshape(4, 4), r"float64 from 0.0 to 2.0"),
        (np.full((4, 4, 3), 256, np.uint16), "uint16 from 256 to 256"),
        (np.zeros((3, 8, 8), np.uint8), r"shape \[3, 8, 8\]"),
        (np.zeros((2, 8, 8, 3), np.uint8), r"shape \[2, 8, 8, 3\]"),
        (np.zeros((0, 8, 3), np.uint8), r"shape \[0, 8, 3\]"),
        (np.zeros(8), r"shape \[8\]"),
        (np.zeros((8, 8, 3), complex), "ndarray, not an array .* of numbers"),
        ([[1], [2, 3]], "list, not an array"),
        ([], r"shape \[0\]"),
        (None, "NoneType, not an array"),
        ("a board in letters", "str, not an array"),
    ],
)
def test_a_picture_of_unknown_shape_or_scale_is_described(value: object, description: str) -> None:
    with pytest.raises(ValueError, match=description):
        env_base.converted(value)
