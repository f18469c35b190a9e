"""The line about a league."""

from __future__ import annotations

import pytest

from seedzero.metrics import counts
from seedzero.monitoring import league_line


def _snapshot(num_matches: int, num_frozen: int = 0, win_rate: float | None = None) -> counts.Snapshot:
    matches = {"self_play": num_matches, "past": 0, "void": 3}
    return counts.Snapshot(matches=matches, num_frozen=num_frozen, win_rate=win_rate)


def test_without_a_league_nothing_is_told() -> None:
    line = league_line.LeagueLine()
    assert [line.observe(now, counts.Snapshot()) for now in (0.0, 100.0)] == ["", ""]


def test_it_comes_once_a_minute_and_soon_after_a_new_frozen_player() -> None:
    line = league_line.LeagueLine()
    seen = [
        (0.0, 0, 0),
        (1.0, 5, 0),
        (60.0, 9, 0),
        (61.0, 9, 0),
        (62.0, 9, 1),
        (71.0, 9, 1),
        (75.0, 9, 2),
        (81.0, 9, 2),
    ]
    told = [now for now, matches, frozen in seen if line.observe(now, _snapshot(matches, frozen))]
    assert told == [1.0, 61.0, 71.0, 81.0]


def test_a_league_that_stands_still_is_told_once() -> None:
    line = league_line.LeagueLine()
    assert [bool(line.observe(now, _snapshot(5))) for now in (0.0, 60.0, 120.0)] == [True, False, False]


@pytest.mark.parametrize(("matches", "frozen", "rate"), [(0, 0, None), (1_234, 1, 0.5), (12, 3, 0.714)])
def test_it_has_players_matches_and_win_rate(matches: int, frozen: int, rate: float | None) -> None:
    text = league_line.line_of(_snapshot(matches, frozen, rate))
    assert f"{frozen} frozen player" in text and ("win rate" in text) == (rate is not None)
    told = {None: "none yet", 0.5: "1,234 self_play", 0.714: "12 self_play"}[rate]
    assert f"matches: {told} (3 not counted)" in text and (rate is None or f"win rate {rate:.2f} " in text)
