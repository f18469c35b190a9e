"""Shows the links of workers: in the status, in rows of metrics, and as messages on the console."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from seedzero.core import types
from seedzero.transport import links, messages

HIDING = "link_environments_needed"
"""Metric: environments that would hide the links that are the limit, of all workers behind such a link; 0 for none."""
ROUND_TRIP = "round_trip_seconds"
"""Metric: the longest round trip of a training worker."""
REMEDY = (
    "start the worker with room for them (--num_envs) if its machine and the free slots (--replay.num_slots of a new "
    "run) have it, or nearer to the learner; images take less of a slow link with --transport.compression=auto"
)
_EVERY_SECONDS = 60.0
_MAX_NAMED = 3


def _training(present: Sequence[messages.Presence]) -> Iterator[tuple[str, links.WorkerLink]]:
    for one in present:
        if one.link is not None and one.role is types.Role.TRAIN:
            yield one.worker_id, one.link


def row(present: Sequence[messages.Presence]) -> Mapping[str, float]:
    """Returns the metrics of all training workers, {} while nothing is known."""
    found = [link for _, link in _training(present)]
    if not found:
        return {}
    return {
        ROUND_TRIP: max(link.round_trip_seconds for link in found),
        "link_bytes_per_second": sum(link.bytes_per_second for link in found),
        HIDING: sum(link.num_hiding for link in found if link.is_limit),
    }


class LinkLine:
    """Reports once for each worker that its link is the limit."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._told_at = -math.inf

    def observe(self, now: float, present: Sequence[messages.Presence]) -> str:
        """Returns a message for the user, or "". now: in seconds."""
        limited = {name: link for name, link in _training(present) if link.is_limit}
        self._told &= {one.worker_id for one in present}
        new = sorted(limited.keys() - self._told)
        if not new or now - self._told_at < _EVERY_SECONDS:
            return ""
        self._told |= limited.keys()
        self._told_at = now
        first = limited[new[0]]
        more = f", {len(new) - _MAX_NAMED} more" if len(new) > _MAX_NAMED else ""
        return (
            f"the link is the limit of {', '.join(new[:_MAX_NAMED])}{more}: {first.num_envs} environments with a "
            f"round trip of {1000 * first.round_trip_seconds:.0f} ms make at most {first.bound:.0f} steps/s, and "
            f"{first.num_hiding} would hide it: {REMEDY}"
        )
