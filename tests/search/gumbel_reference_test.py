"""Gumbel search equals the plain reference, row by row, on random models.

Every row is compared. 32 bits may decide otherwise than 64 where two scores are nearly equal: a row that differs must
have had such a decision, and at most one row in a hundred may differ.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import reference  # beside this file: see conftest.py

from seedzero import search as mcts

CLOSE = 1e-5
"""Scores that 32 bits cannot tell apart: they are sums of numbers up to about 30, whose last bit is 2e-6."""


case = functools.partial(reference.case, "gumbel")
_NARROW = {"max_depth": 3, "gumbel_scale": 0.5, "value_scale": 1.0, "max_visit_init": 5.0}

CASES = [
    case(4, 40, 20, max_depth=2, min_value_range=0.5, num_considered=16),
    case(5, 33, 30, masked=True, value_scale=1.0, num_considered=1),
    case(8, 30, 24, masked=True, num_considered=8, **_NARROW),
    case(18, 50, 24, masked=True, num_considered=16),
    case(64, 4, 16, masked=True, num_considered=5),
]


@functools.cache
def differing_margins(of: reference.Case) -> list[float]:
    """Returns the closest decisions of those rows on which the reference found anything else."""
    result = reference.engine(of)
    margins = []
    for row in range(of.batch_size):
        found = reference.reference_of(of, row)
        if not agrees(found, result, row):
            margins.append(found.margin)
    return margins


def agrees(found: reference.Found, result: mcts.Result, row: int) -> bool:
    return bool(
        np.array_equal(found.visit_counts, result.visit_counts[row])
        and found.action == result.action[row]
        and found.max_depth == result.max_depth[row]
        and np.isclose(found.mean_depth, result.mean_depth[row], rtol=1e-5)
        and np.isclose(found.root_value, result.root_value[row], rtol=1e-4, atol=1e-4)
        and np.allclose(found.q_values, result.q_values[row], rtol=1e-4, atol=1e-4)
        and np.allclose(found.action_weights, result.action_weights[row], atol=2e-5)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("of", CASES, ids=str)
def test_rows_equal_the_reference_but_where_a_decision_was_close(of: reference.Case) -> None:
    margins = differing_margins(of)
    assert max(margins, default=0.0) < CLOSE
    assert len(margins) <= -(-of.batch_size // 100)


@pytest.mark.thorough
def test_hardly_any_row_was_so_close_that_32_bits_decided_otherwise() -> None:
    differing = sum(len(differing_margins(of)) for of in CASES)
    assert differing <= sum(of.batch_size for of in CASES) / 100


@pytest.mark.parametrize(
    ("num_considered", "num_simulations", "widths"),
    [
        (1, 3, [1, 1, 1]),
        (2, 5, [2, 2, 1]),
        (3, 12, [3, 3, 2, 2, 2]),
        (8, 5, [5]),
        (8, 16, [8, 4, 2, 2]),
        (16, 50, [16, 8, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2]),
    ],
)
def test_the_reference_halves_as_worked_by_hand(num_considered: int, num_simulations: int, widths: list[int]) -> None:
    assert reference.sweep_widths(num_considered, num_simulations) == widths


def test_the_reference_finds_what_is_worked_by_hand() -> None:
    """Two actions to ends with rewards 1 and 0, the root's value 0.5, an even prior, two simulations."""

    def model(state: int, action: int) -> tuple[mcts.Prediction, int]:
        zeros = np.zeros(2)
        return mcts.Prediction(1.0 - action, 0.0, zeros, 9.0), state  # type: ignore[arg-type]

    found = reference.gumbel(
        model,
        reference.Node(0, np.zeros(2), 0.5),
        np.array([0.0, 0.25]),
        config=mcts.SearchConfig(num_simulations=2, value_scale=0.1, max_visit_init=9.0),
        legal=np.ones(2, bool),
    )
    assert found.visit_counts.tolist() == [1, 1]
    assert found.q_values.tolist() == [1.0, 0.0]
    assert found.root_value == pytest.approx(0.5)
    assert (found.max_depth, found.mean_depth) == (1, 1.0)
    # sigma is (9 + 1) * 0.1 = 1 for the better action; 1 beats the other's noise by 0.75.
    assert found.action == 0
    assert found.margin == pytest.approx(0.75)
    np.testing.assert_allclose(found.action_weights, [0.7310586, 0.2689414], rtol=1e-6)
