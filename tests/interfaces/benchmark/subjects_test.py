from __future__ import annotations

import pytest

from seedzero.interfaces.benchmark import subjects


class _Clock:
    """A clock that only programs move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def program(self, name: str, seconds: float) -> subjects.Program:
        def call() -> float:
            self.now += seconds
            self.calls.append(name)
            return 0.0

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(subjects.time, "perf_counter", lambda: clock.now)
    return clock


def test_programs_share_the_time_and_take_turns(clock: _Clock) -> None:
    rounds = subjects.NUM_ROUNDS
    programs = {"slow": clock.program("slow", 2.0), "fast": clock.program("fast", 0.5)}
    slices = subjects.interleave(programs, seconds=2 * rounds * 4.0)
    assert slices == {"slow": [2.0] * rounds, "fast": [0.5] * rounds}
    turns = clock.calls[8:]  # behind a call to compile, one that shows that it is not slow, and two to count, of both
    assert turns[:20] == ["fast"] * 8 + ["slow"] * 2 + ["slow"] * 2 + ["fast"] * 8
    assert len(turns) == rounds * (8 + 2)


def test_programs_that_are_too_slow_take_fewer_rounds(clock: _Clock) -> None:
    slices = subjects.interleave({"slow": clock.program("slow", 5.0)}, seconds=1.0)
    assert slices == {"slow": [5.0] * subjects.MIN_ROUNDS}


def test_ratios_are_shares_of_the_peers_speed_in_the_same_round() -> None:
    slices = {"ours": [2.0, 4.0, 1.0], "peer": [1.0, 1.0, 1.0]}
    assert subjects.ratio(slices, "ours", "peer") == 0.5
    assert subjects.milliseconds(slices, "ours") == 2000.0
