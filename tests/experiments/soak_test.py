"""Figures of the long run under faults."""

from __future__ import annotations

import os
import subprocess
import sys

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


def test_a_process_that_has_been_killed_is_not_looked_at() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert soak.look(process.pid)["mb"] > 0
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has taken its status
    assert soak.look(process.pid) == {}
    process.communicate()
    assert soak.look(process.pid) == {}
