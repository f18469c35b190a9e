from __future__ import annotations

import hosts
import pytest


def test_speed_is_that_of_the_last_half() -> None:
    rows = [
        {"seconds": float(second), "update": max(0, second - 4) * (1 if second < 8 else 2)} for second in range(13)
    ]
    assert hosts.speed(rows) == pytest.approx(2.0)
    with pytest.raises(SystemExit, match="give more --seconds"):
        hosts.speed(rows[:5])


def test_ratios_are_of_pairs() -> None:
    assert hosts.ratios([(10.0, 9.0), (20.0, 10.0), (10.0, 10.0)]) == {"median": 0.9, "ratios": [0.9, 0.5, 1.0]}
