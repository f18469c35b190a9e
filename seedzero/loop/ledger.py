"""Accounts for training steps: every step acknowledged to a worker is stored, pending or discarded.

A step is a transition. It is acknowledged when the action that begins it goes out, pending until the next observation
completes it, then stored; a step whose environment is lost is discarded, by reason.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from seedzero.metrics import counts


class Ledger:
    """Counts the training steps of all slots. The device loop owns it."""

    def __init__(self, num_slots: int) -> None:
        self._pending = np.zeros(num_slots, bool)
        self.counts = counts.Counts()

    def record(self, slots: np.ndarray, first: np.ndarray, final: np.ndarray) -> int:
        """Records one observation for each of several slots; returns the number of stored steps.

        Args:
          slots: [B] int, distinct training slots.
          first: [B] bool, true: the first observation of an episode or run.
          final: [B] bool, true: the last observation of an episode; its action begins no step.
        """
        was_pending = self._pending[slots]
        num_stored = int(np.count_nonzero(was_pending & ~first))
        num_lost = int(np.count_nonzero(was_pending & first))
        num_begun = int(np.count_nonzero(~final))
        self._pending[slots] = ~final
        self._change(
            counts.WORKER_LOST,
            num_lost,
            acknowledged=self.counts.acknowledged + num_begun,
            stored=self.counts.stored + num_stored,
            pending=self.counts.pending - num_stored - num_lost + num_begun,
        )
        return num_stored

    def discard(self, slots: np.ndarray, reason: str) -> None:
        """Counts the pending steps of slots without environments as discarded."""
        num_lost = int(np.count_nonzero(self._pending[slots]))
        self._pending[slots] = False
        self._change(reason, num_lost, pending=self.counts.pending - num_lost)

    def discard_stored(self, number: int, reason: str) -> None:
        """Counts stored steps unseen by any update as discarded."""
        self._change(reason, number, stored=self.counts.stored - number)

    def to_json(self) -> dict[str, Any]:
        """Returns the content for a checkpoint."""
        found = dataclasses.asdict(self.counts)
        del found["num_samples"]
        return found

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restores a checkpoint; its environments are gone, and with them their pending steps."""
        self._pending[:] = False
        self.counts = counts.Counts(**saved)
        self._change(counts.WORKER_LOST, self.counts.pending, pending=0)

    def _change(self, reason: str, num_lost: int, **values: int) -> None:
        """Discards steps and sets counters, in one step for other threads."""
        discarded = collections.Counter(self.counts.discarded)
        discarded[reason] += num_lost
        self.counts = dataclasses.replace(self.counts, discarded=dict(+discarded), **values)
