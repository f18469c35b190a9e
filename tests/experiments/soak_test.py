"""Figures of the long run under faults."""

from __future__ import annotations

import os
import subprocess
import sys

import gymnasium
import pytest
import soak


def _looks(pid: int, start: float, minutes: int, mb: float, mb_a_minute: float) -> list[dict[str, float]]:
    return [
        {"seconds": start + second, "pid": pid, "mb": mb + mb_a_minute * (second // 60), "fds": 30.0, "threads": 9.0}
        for second in range(0, 60 * minutes, 5)
    ]


def test_growth_is_that_within_lives_after_their_first_minute() -> None:
    slopes = soak.growth([*_looks(1, 0.0, 6, 500.0, 2.0), *_looks(2, 360.0, 6, 100.0, 2.0)])
    assert slopes["mb"] == pytest.approx(120.0)
    assert slopes["fds"] == slopes["threads"] == 0.0
    peaks = _looks(1, 0.0, 6, 500.0, 0.0)
    peaks[40]["mb"] = 900.0  # the smallest of a minute count
    assert soak.growth(peaks)["mb"] == pytest.approx(0.0)
    assert soak.growth(_looks(1, 0.0, 1, 500.0, 5.0)) == {"mb": 0.0, "fds": 0.0, "threads": 0.0, "between": 0.0}


def test_growth_between_lives_is_that_of_the_smallest_in_five_minutes() -> None:
    lives = [_looks(pid, 360.0 * pid, 6, 400.0 + 6.0 * pid, 0.0) for pid in range(10)]  # each begins 6 MB higher
    assert 55.0 < soak.growth([look for life in lives for look in life])["between"] < 65.0
    early = [*_looks(1, 0.0, 15, 100.0, 5.0), *_looks(2, 900.0, 46, 300.0, 0.0)]  # the last 45 minutes count
    assert soak.growth(early)["between"] == pytest.approx(0.0)


def test_an_environment_in_real_time_steps_at_its_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(soak.time, "sleep", slept.append)
    monkeypatch.setattr(soak.time, "monotonic", iter([5.0, 5.005, 5.1]).__next__)
    environment = gymnasium.make("RealTimeCartPole-v0")
    environment.reset(seed=1)
    for _ in range(3):
        environment.step(0)
    assert slept == pytest.approx([0.0, 0.015, 0.0])  # late is late: the next tick counts from there


def test_the_rate_is_that_of_the_last_half() -> None:
    rows = [{"seconds": float(second), "update": max(0, second - 5) * 10} for second in range(12)]
    assert soak.rate(rows) == pytest.approx(10.0)


def test_a_process_that_has_been_killed_is_not_looked_at() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert soak.look(process.pid)["mb"] > 0
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has taken its status
    assert soak.look(process.pid) == {}
    process.communicate()
    assert soak.look(process.pid) == {}
