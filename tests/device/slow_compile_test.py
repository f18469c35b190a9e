"""XLA's log while something is compiled for long."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading

import pytest

from seedzero.device import slow_compile

TIMEOUT_SECONDS = 600.0


class Log:
    """The levels that were set, and when errors were hidden."""

    def __init__(self) -> None:
        self.levels: list[int] = []
        self.hidden = threading.Event()

    def set_level(self, level: int) -> None:
        self.levels.append(level)
        if level > 2:
            self.hidden.set()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(slow_compile, "_set_level", log.set_level)
    monkeypatch.setenv(slow_compile.LEVEL, slow_compile.USUAL_LEVEL)
    return log


def test_errors_are_hidden_while_a_slow_compilation_lasts(log: Log) -> None:
    with slow_compile.without_alarm(0.0):
        assert log.hidden.wait(TIMEOUT_SECONDS)
    assert log.levels == [3, 1]


def test_the_last_of_several_slow_compilations_shows_them_again(log: Log) -> None:
    with slow_compile.without_alarm(0.0):
        assert log.hidden.wait(TIMEOUT_SECONDS)
        log.hidden.clear()
        with slow_compile.without_alarm(0.0):
            assert log.hidden.wait(TIMEOUT_SECONDS)
        assert log.levels[-1] == 3
    assert log.levels == [3, 3, 3, 1]


def test_a_quick_compilation_hides_nothing(log: Log) -> None:
    with slow_compile.without_alarm(TIMEOUT_SECONDS):
        pass
    assert log.levels == []


@pytest.mark.parametrize("level", ["0", "2"])
def test_a_level_that_the_user_set_stays(log: Log, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setenv(slow_compile.LEVEL, level)
    with slow_compile.without_alarm(0.0):
        pass
    assert log.levels == []


FOLDS_FOR_SECONDS = """
import sys, threading
import jax, jax.numpy as jnp
from seedzero.device import slow_compile

def fold(x):  # a constant of which XLA computes the result by its own, slowly
    zeros = jnp.zeros((64, 64, 64)).at[3, 4, 5].set(1.0)
    return x + jax.lax.reduce_window(zeros, -jnp.inf, jax.lax.max, (5, 5, 5), (1, 1, 1), "SAME").sum()

hidden, add = threading.Event(), slow_compile._add
slow_compile._add = lambda number: (add(number), hidden.set())
with slow_compile.without_alarm(float(sys.argv[1])):
    if sys.argv[1] == "0":
        hidden.wait()
    jax.jit(fold).lower(1.0).compile()
"""
"""XLA's alarm about the folding of a constant comes after one second; it is the same as that of a compilation."""


@pytest.mark.slow
@pytest.mark.parametrize(("hide_seconds", "is_shown"), [("1000", True), ("0", False)])
def test_the_real_alarm_is_not_shown(hide_seconds: str, is_shown: bool, tmp_path: pathlib.Path) -> None:
    usual = {name: value for name, value in os.environ.items() if name not in (slow_compile.LEVEL, "XLA_FLAGS")}
    environment = {**usual, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", FOLDS_FOR_SECONDS, hide_seconds]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True)
    assert ("slow_operation_alarm" in ended.stderr) == is_shown, ended.stderr
