"""Counters of earlier versions."""

from __future__ import annotations

import pytest

from seedzero.checkpoints import migrations


@pytest.mark.parametrize(
    ("saved", "name", "expected"),
    [
        ({}, "num_reanalyses", 0),
        ({"num_reanalyses": 3}, "num_reanalyses", 3),
        ({}, "num_assigned", 0),
        ({}, "waiting_steps", 0),
        ({}, "pace", {"since": (0, 0), "samples_per_insert": None}),
        ({}, "highest_return", None),
        ({}, "left_out", (0, 0)),
        ({}, "in_last_evaluation", False),
        ({"num_updates": 7}, "num_updates", 7),
    ],
)
def test_counters_that_a_version_did_not_have_are_filled_in(
    saved: dict[str, object], name: str, expected: object
) -> None:
    before = dict(saved)
    assert migrations.counters(saved)[name] == expected
    assert saved == before
