from __future__ import annotations

import collections
import itertools

import pytest

from seedzero.league import homes


@pytest.mark.parametrize(
    ("before", "learning", "after"),
    [
        ([0, 0, 0, 0], [0], [0, 0, 0, 0]),
        ([0, 0, 0, 0], [0, 1], [0, 1, 0, 1]),  # one of two added groups each: those at equal gaps
        ([0, 0, 0, 0, 0, 0, 0, 0], [0, 1], [0, 1, 0, 1, 0, 1, 0, 1]),
        ([0, 1, 0, 1], [0], [0, 0, 0, 0]),
        ([0, 1, 2, 0], [0, 2], [0, 2, 2, 0]),  # player 1 retired: its group goes to who has fewer
        ([0, 1, 2, 0], [0, 1, 2, 3], [0, 1, 2, 3]),
        ([0, 1, 2, 0, 1], [0, 1, 2, 7], [0, 1, 2, 0, 7]),  # of two players with two groups, the first one keeps them
        ([0, 1, 0], [0, 1, 2, 3], [0, 1, 2]),  # more players than groups: the last one waits
        ([0, 1, 0, 1, 0, 1], [0, 1], [0, 1, 0, 1, 0, 1]),
    ],
)
def test_groups_are_shared_and_most_stay(before: list[int], learning: list[int], after: list[int]) -> None:
    assert homes.deal(before, learning) == after


def test_shares_are_even_and_no_other_even_shares_move_fewer_groups() -> None:
    for num_groups, players in itertools.product(range(1, 6), [(0,), (0, 1), (1, 2), (0, 1, 2), (0, 2, 3)]):
        even = [
            found
            for found in itertools.product(players, repeat=num_groups)
            if max(sizes := [found.count(player) for player in players]) - min(sizes) <= 1
        ]
        for before in itertools.product(range(3), repeat=num_groups):
            moves = [sum(one != other for one, other in zip(before, found, strict=True)) for found in even]
            found = homes.deal(before, players)
            assert tuple(found) in even
            assert sum(one != other for one, other in zip(before, found, strict=True)) == min(moves), before


def test_the_first_groups_are_shared_about_equally_too() -> None:
    found, learning = [0] * 64, [0]
    for change in (1, 2, 3, 4, 5, 6, 7, -5, -6, 8):  # -5: player 5 retires
        learning = [one for one in learning if one != -change] + [change] * (change > 0)
        found = homes.deal(found, learning)
        counts = collections.Counter(found[:32])
        assert max(counts[one] for one in learning) - min(counts[one] for one in learning) <= 4
