"""How the budget is spent: sweeps worked by hand, and properties for every budget."""

from __future__ import annotations

import itertools

import hypothesis
import pytest
from hypothesis import strategies

from seedzero.search import gumbel

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
    assert gumbel.sweep_widths(num_considered, num_simulations) == widths


@pytest.mark.parametrize(
    ("num_considered", "num_simulations", "num_rounds", "widths"),
    [
        (16, 16, 1, (16,)),  # one call
        (16, 40, 1, (16, 16, 8)),  # nothing is dropped
        (8, 16, 1, (8, 8)),
        # Two phases of 8: one sweep of 8, then two of 4, and none of 2.
        (8, 16, 2, (8, 4, 4)),
        (8, 16, 3, (8, 4, 2, 2)),  # as without a limit
        (8, 16, 20, (8, 4, 2, 2)),
        (1, 3, 1, (1, 1, 1)),
    ],
)
def test_a_limit_of_rounds_keeps_more_actions_to_the_end(
    num_considered: int, num_simulations: int, num_rounds: int, widths: tuple[int, ...]
) -> None:
    assert gumbel.sweep_widths(num_considered, num_simulations, num_rounds) == widths


def test_a_round_without_halving_fits_the_legal_actions() -> None:
    assert gumbel.width_table(4, 4, 1) == ((1, 1, 1, 1), (1, 1, 1, 1), (2, 2, 0, 0), (3, 1, 0, 0), (4, 0, 0, 0))


@hypothesis.given(*BUDGETS, strategies.integers(1, 6))
def test_a_limit_of_rounds_bounds_the_number_of_widths(considered: int, simulations: int, most: int) -> None:
    widths = gumbel.sweep_widths(considered, simulations, most)
    assert sum(widths) == simulations and len(gumbel.rounds(widths)) <= most + 1  # the last sweep may be shorter


@hypothesis.given(*BUDGETS)
def test_the_whole_budget_is_spent_and_the_race_never_widens(considered: int, simulations: int) -> None:
    widths = gumbel.sweep_widths(considered, simulations)
    assert sum(widths) == simulations
    assert min(widths) >= 1
    assert max(widths) <= considered
    assert all(later <= earlier for earlier, later in itertools.pairwise(widths))


@hypothesis.given(*BUDGETS)
def test_rounds_are_the_sweeps_in_order_and_each_width_has_one(considered: int, simulations: int) -> None:
    widths = gumbel.sweep_widths(considered, simulations)
    rounds = gumbel.rounds(widths)
    assert tuple(turn.width for turn in rounds for _ in range(turn.begin, turn.end)) == widths
    assert [turn.begin for turn in rounds] == [0, *(turn.end for turn in rounds[:-1])]
    assert len({turn.width for turn in rounds}) == len(rounds)


def test_every_number_of_legal_actions_has_its_own_sweeps() -> None:
    assert gumbel.width_table(3, 4) == (
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
    loops = gumbel.loops(num_simulations)
    assert [loop.end for loop in loops] == ends
    assert [i for loop in loops for i in range(loop.begin, loop.end)] == list(range(num_simulations))
