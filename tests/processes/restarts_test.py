"""The pauses between a program's lives, and their end."""

from __future__ import annotations

from seedzero.processes import restarts


def test_pauses_double_up_to_a_limit() -> None:
    rule = restarts.Restarts()
    delays = [rule.delay_seconds(100.0 * i, lived_seconds=1.0, killed=False) for i in range(7)]
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_long_life_brings_back_the_first_pause() -> None:
    rule = restarts.Restarts()
    lives = (1.0, 1.0, 10.5, 1.0)
    delays = [rule.delay_seconds(100.0 * i, lived_seconds=life, killed=False) for i, life in enumerate(lives)]
    assert delays == [0.25, 0.5, 0.25, 0.5]


def test_five_failures_within_a_minute_are_the_end() -> None:
    rule = restarts.Restarts()
    times = (0.0, 10.0, 30.0, 45.0, 60.0)
    delays = [rule.delay_seconds(now, lived_seconds=10.5, killed=False) for now in times]
    assert delays == [0.25, 0.25, 0.25, 0.25, None]


def test_five_failures_in_more_than_a_minute_are_not() -> None:
    rule = restarts.Restarts()
    times = (0.0, 10.0, 30.0, 45.0, 60.1)
    assert None not in [rule.delay_seconds(now, lived_seconds=1.0, killed=False) for now in times]


def test_a_second_refusal_within_a_minute_is_the_end() -> None:
    for later, goes_on in ((60.0, False), (60.1, True)):
        rule = restarts.Restarts()
        assert rule.delay_seconds(0.0, lived_seconds=10.5, killed=False, refused=True) == 0.25
        assert (rule.delay_seconds(later, lived_seconds=10.5, killed=False, refused=True) is not None) == goes_on


def test_being_killed_from_outside_waits_like_a_failure_but_is_none() -> None:
    rule = restarts.Restarts()
    delays = [rule.delay_seconds(float(i), lived_seconds=1.0, killed=True) for i in range(20)]
    assert delays[:3] == [0.25, 0.5, 1.0] and None not in delays
    assert rule.delay_seconds(20.0, lived_seconds=1.0, killed=False) is not None
