"""The counters of a run, as every thread may read them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

WORKER_LOST = "worker_lost"
CHECKPOINT_RESET = "checkpoint_reset"


@dataclasses.dataclass(frozen=True)
class Counts:
    """A consistent snapshot: acknowledged = stored + pending + sum(discarded)."""

    acknowledged: int = 0
    stored: int = 0
    pending: int = 0
    discarded: Mapping[str, int] = dataclasses.field(default_factory=dict)


class Snapshot(NamedTuple):
    """A consistent view of the counters for other threads."""

    counts: Counts
    num_updates: int
    num_reanalysed: int
    version: int
    last_evaluation: Mapping[str, Any] | None
    evaluating: bool
    is_compiled: bool
