"""The pauses between a program's lives, and their end."""

from __future__ import annotations

import signal
import sys

import pytest

from seedzero.core import errors
from seedzero.learner.processes import programs


class Rule:
    """The delays of one program at given times."""

    def __init__(self) -> None:
        self._now = 0.0
        self._program = programs.Program(lambda line: None, programs.System(clock=lambda: self._now))

    def delay_seconds(self, now: float, *, lived_seconds: float, status: int = errors.FAILED) -> float | None:
        self._now = now
        return self._program.delay_seconds(programs.Death(status, lived_seconds, ""))


@pytest.mark.parametrize(
    ("lives", "delays"),
    [
        ([(100.0 * i, 1.0) for i in range(7)], [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]),  # they double up to a limit
        ([(0.0, 1.0), (100.0, 1.0), (200.0, 10.5), (300.0, 1.0)], [0.25, 0.5, 0.25, 0.5]),  # a long life
        ([(now, 10.5) for now in (0.0, 10.0, 30.0, 45.0, 60.0)], [0.25, 0.25, 0.25, 0.25, None]),  # five in a minute
        ([(now, 10.5) for now in (0.0, 10.0, 30.0, 45.0, 60.1)], [0.25] * 5),  # and in more than a minute
    ],
)
def test_pauses_follow_from_the_lives_before(lives: list[tuple[float, float]], delays: list[float | None]) -> None:
    rule = Rule()
    assert [rule.delay_seconds(now, lived_seconds=lived) for now, lived in lives] == delays


def test_a_second_refusal_within_a_minute_is_the_end() -> None:
    for later, goes_on in ((60.0, False), (60.1, True)):
        rule = Rule()
        assert rule.delay_seconds(0.0, lived_seconds=10.5, status=errors.REFUSED) == 0.25
        found = rule.delay_seconds(later, lived_seconds=10.5, status=errors.REFUSED)
        assert (found is not None) == goes_on


def test_failures_of_a_worker_that_completes_episodes_never_add_up() -> None:
    rule, status = Rule(), errors.FAILED_LATER
    assert [rule.delay_seconds(float(now), lived_seconds=1.0, status=status) for now in range(9)] == [0.25] * 9
    delays = [rule.delay_seconds(9.0, lived_seconds=1.0) for _ in range(4)]
    assert delays == [0.5, 1.0, 2.0, None]  # with the last one of before, five without an episode in between


@pytest.mark.parametrize(
    ("output", "last"),
    [
        (b"one\n\ntwo\n\n", "two"),
        (
            b"one\nFatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n"
            b'  File "/x/envs.py", line 5 in step\n  File "/x/seedzero.py", line 9 in main\n\nExtension modules: a\n',
            'Fatal Python error: Aborted (File "/x/envs.py", line 5 in step)',
        ),
    ],
)
def test_the_last_line_of_a_crash_is_the_frame_that_crashed(output: bytes, last: str) -> None:
    script = f"import sys; sys.stdout.buffer.write({output!r})"
    lines: list[bytes] = []
    death = programs.Program(lines.append).live([sys.executable, "-c", script])
    assert death == programs.Death(0, death.lived_seconds if death else 0.0, last) and b"".join(lines) == output


def test_being_killed_from_outside_waits_like_a_failure_but_is_none() -> None:
    rule = Rule()
    delays = [rule.delay_seconds(float(i), lived_seconds=1.0, status=-signal.SIGKILL) for i in range(20)]
    assert delays[:3] == [0.25, 0.5, 1.0] and None not in delays
    assert rule.delay_seconds(20.0, lived_seconds=1.0) is not None
