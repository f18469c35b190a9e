"""How the exceptions of environments are told; the promises of the interface are tested in conformance_test.py."""

from __future__ import annotations

import os
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
