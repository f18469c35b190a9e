"""The pauses between a program's lives, and their end."""

from __future__ import annotations

import signal

from seedzero.core import exit_codes
from seedzero.processes import program as programs


class Rule:
    """The delays of one program at given times."""

    def __init__(self) -> None:
        self._now = 0.0
        self._program = programs.Program(lambda line: None, programs.System(clock=lambda: self._now))

    def delay_seconds(self, now: float, *, lived_seconds: float, status: int = exit_codes.FAILED) -> float | None:
        self._now = now
        return self._program.delay_seconds(programs.Death(status, lived_seconds, ""))


def test_pauses_double_up_to_a_limit() -> None:
    rule = Rule()
    delays = [rule.delay_seconds(100.0 * i, lived_seconds=1.0) for i in range(7)]
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_long_life_brings_back_the_first_pause() -> None:
    rule = Rule()
    lives = (1.0, 1.0, 10.5, 1.0)
    delays = [rule.delay_seconds(100.0 * i, lived_seconds=life) for i, life in enumerate(lives)]
    assert delays == [0.25, 0.5, 0.25, 0.5]


def test_five_failures_within_a_minute_are_the_end() -> None:
    rule = Rule()
    delays = [rule.delay_seconds(now, lived_seconds=10.5) for now in (0.0, 10.0, 30.0, 45.0, 60.0)]
    assert delays == [0.25, 0.25, 0.25, 0.25, None]


def test_five_failures_in_more_than_a_minute_are_not() -> None:
    rule = Rule()
    assert None not in [rule.delay_seconds(now, lived_seconds=1.0) for now in (0.0, 10.0, 30.0, 45.0, 60.1)]


def test_a_second_refusal_within_a_minute_is_the_end() -> None:
    for later, goes_on in ((60.0, False), (60.1, True)):
        rule = Rule()
        assert rule.delay_seconds(0.0, lived_seconds=10.5, status=exit_codes.REFUSED) == 0.25
        found = rule.delay_seconds(later, lived_seconds=10.5, status=exit_codes.REFUSED)
        assert (found is not None) == goes_on


def test_being_killed_from_outside_waits_like_a_failure_but_is_none() -> None:
    rule = Rule()
    delays = [rule.delay_seconds(float(i), lived_seconds=1.0, status=-signal.SIGKILL) for i in range(20)]
    assert delays[:3] == [0.25, 0.5, 1.0] and None not in delays
    assert rule.delay_seconds(20.0, lived_seconds=1.0) is not None
