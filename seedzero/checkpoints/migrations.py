"""Migrations of a run's files: earlier versions lacked some of their entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COUNTERS: Mapping[str, Any] = {
    "num_reanalyses": 0,  # before there was reanalysis
    "num_assigned": 0,
    "waiting_steps": 0,  # before there were queues
    "pace": {"since": (0, 0), "samples_per_insert": None},  # None: that of the run's settings
    "highest_return": None,
    "left_out": (0, 0),
    "in_last_evaluation": False,
}


def counters(host: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a checkpoint's counters, completed by defaults for its version."""
    return {**_COUNTERS, **host}
