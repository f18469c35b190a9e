"""How the budget is spent: sweeps worked by hand, and properties for every budget."""

from __future__ import annotations

import itertools

import hypothesis
import pytest
from hypothesis import strategies

from seedzero.search import schedule

BUDGETS = (strategies.integers(1, 40), strategies.integers(1, 300))


@pytest.mark.parametrize(
    ("num_considered", "num_simulations", "widths"),
    [
        (1, 4, (1, 1, 1, 1)),
        (2, 5, (2, 2, 1)),
        # Two phases of 8: two sweeps of 4, then four of 2.
        (4, 16, (4, 4, 2, 2, 2, 2)),
        # Three phases of 16/3: one sweep of 8, one of 4, two of 2, and as 4 are not spent, the last phase repeats.
        (8, 16, (8, 4, 2, 2)),
        (16, 16, (16,)),
        (16, 10, (10,)),
        # Half of 3 is less than 2, which is the fewest that can be compared.
        (3, 16, (3, 3, 2, 2, 2, 2, 2)),
        (16, 50, (16, 8, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2)),
    ],
)
def test_sweeps_worked_by_hand(num_considered: int, num_simulations: int, widths: tuple[int, ...]) -> None:
    assert schedule.sweep_widths(num_considered, num_simulations) == widths


@hypothesis.given(*BUDGETS)
def test_the_whole_budget_is_spent_and_the_race_never_widens(considered: int, simulations: int) -> None:
    widths = schedule.sweep_widths(considered, simulations)
    assert sum(widths) == simulations
    assert min(widths) >= 1
    assert max(widths) <= considered
    assert all(later <= earlier for earlier, later in itertools.pairwise(widths))


@hypothesis.given(*BUDGETS)
def test_rounds_are_the_sweeps_in_order_and_each_width_has_one(considered: int, simulations: int) -> None:
    widths = schedule.sweep_widths(considered, simulations)
    rounds = schedule.rounds(widths)
    assert tuple(turn.width for turn in rounds for _ in range(turn.begin, turn.end)) == widths
    assert [turn.begin for turn in rounds] == [0, *(turn.end for turn in rounds[:-1])]
    assert len({turn.width for turn in rounds}) == len(rounds)


def test_every_number_of_legal_actions_has_its_own_sweeps() -> None:
    assert schedule.width_table(3, 4) == (
        (1, 1, 1, 1),  # nothing is legal: one action is visited all the same
        (1, 1, 1, 1),
        (2, 2, 0, 0),
        (3, 1, 0, 0),
    )


@pytest.mark.parametrize(
    ("num_simulations", "ends"),
    [(1, [1]), (25, [25]), (26, [13, 26]), (50, [25, 50]), (200, [25, 50, 100, 200])],
)
def test_loops_make_every_node_once_in_tables_that_double(num_simulations: int, ends: list[int]) -> None:
    loops = schedule.loops(num_simulations)
    assert [loop.end for loop in loops] == ends
    assert [i for loop in loops for i in range(loop.begin, loop.end)] == list(range(num_simulations))
