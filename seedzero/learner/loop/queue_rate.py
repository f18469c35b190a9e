"""Paces a queue, where every step is learned from at most once, in the order of acting and soon after it.

The rings are the queue. This file knows which rows of each slot begin an unroll that no update has seen yet. An update
takes the oldest complete unrolls; a slot with `max_lag` of them is held, so nothing is overwritten unseen. Unrolls
cross episodes but never a cut, where the slot's environment is gone; a cut drops the open unroll. Checkpoints save no
rings of a queue, so a resume drops all waiting steps. Dropped steps count as discarded. This is pure bookkeeping
without threads; clocks are passed in.

Shape letters: S slots, B rows of one acting call.
"""

from __future__ import annotations

import collections
import math
from typing import NamedTuple

import numpy as np

from seedzero.device import batches, steps
from seedzero.learner.loop import rate_limiting
from seedzero.replay import sources


class Backlog(NamedTuple):
    """The unrolls that wait for an update at one moment."""

    num_batches: float  # full batches; the shard with the fewest unrolls decides
    none_can_come: bool  # acting waits for an update, in lock step for all slots, else for all live slots' messages
    until: float  # time at which a batch that is not full has waited long enough; infinity if there are no unrolls
    lock_step: bool

    def choose(self, progress: rate_limiting.Progress, now: float) -> rate_limiting.Work:
        """Returns the next call: a full batch first, then acting, or a padded batch if nothing else will come."""
        if self.lock_step and progress.evaluating:
            return rate_limiting.Work.EVALUATE if progress.can_evaluate else rate_limiting.Work.WAIT
        is_full = self.num_batches >= 1
        may_update = progress.can_update and is_full
        may_act = progress.can_act and not (self.lock_step and is_full)
        if progress.can_evaluate and not ((may_act or may_update) and progress.evaluated_last):
            return rate_limiting.Work.EVALUATE
        if may_update:
            return rate_limiting.Work.UPDATE
        if may_act:
            return rate_limiting.Work.ACT
        may_pad = not progress.waits_to_act
        if self.lock_step:  # a held slot may be a seat that the next messages do not show
            is_late = self.none_can_come and may_pad and progress.all_wait
        else:
            is_late = self.none_can_come or (may_pad and now >= self.until)
        return rate_limiting.Work.UPDATE if progress.can_update and is_late else rate_limiting.Work.WAIT

    def debt(self, progress: rate_limiting.Progress) -> float:
        """Returns how many full batches wait for an update."""
        return self.num_batches

    def num_due(self, progress: rate_limiting.Progress) -> int:
        """Returns the same."""
        return int(self.num_batches)


class QueueRateLimiter(rate_limiting.RateLimiter):
    """Follows the rows of all training slots, and saves none. slot_length: of a ring.

    lock_step: only counters decide.
    """

    def __init__(self, data: sources.Queue, layout: batches.Layout, slot_length: int, *, lock_step: bool) -> None:
        self._data = data
        self._layout = layout
        self._slot_length = slot_length
        self._lock_step = lock_step
        self._row = np.zeros(layout.num_slots, np.int64)  # number of a slot's next row
        self._begin = np.zeros(layout.num_slots, np.int64)  # first row of its open unroll
        self._num_open = np.zeros(layout.num_slots, np.int64)  # number of steps in that unroll
        self._num_ready = np.zeros(layout.num_slots, np.int64)  # its complete unrolls
        self._is_live = np.zeros(layout.num_slots, bool)
        self._group = np.zeros(layout.num_slots, np.int64)  # first slot of the message that the slot was in
        self._shard, self._local = layout.place(np.arange(layout.num_slots))
        # Complete unrolls of each shard in the order of acting: slot, first row, number of steps.
        self._ready: list[collections.deque[tuple[int, int, int]]] = [
            collections.deque() for _ in range(layout.num_shards)
        ]
        self._num_waiting = 0  # steps in open and complete unrolls; read by other threads
        self._waiting_since: float | None = None
        self._pace: Backlog | None = None  # None: it has changed

    def rate(self) -> Backlog:
        if self._pace is None:
            until = math.inf if self._waiting_since is None else self._waiting_since + self._data.wait_seconds
            num_batches = min(len(ready) for ready in self._ready) / self._per_shard
            self._pace = Backlog(num_batches, self._none_can_come, until, self._lock_step)
        return self._pace

    @property
    def _per_shard(self) -> int:
        return self._data.batch_size // self._layout.num_shards

    @property
    def _none_can_come(self) -> bool:
        """As in `Backlog`."""
        held = self._is_held(slice(None))
        with_held = np.isin(self._group, self._group[held & self._is_live])
        return bool(held.any()) and (self._lock_step or not np.any(self._is_live & ~with_held))

    def feed(self, num_inserts: int, now: float) -> steps.Unrolls:
        """Takes the oldest unrolls of each shard and pads the remaining batch with weight 0."""
        self._pace = None
        slot = np.zeros((self._layout.num_shards, self._per_shard), np.int32)
        time, weight = np.zeros_like(slot), np.zeros(slot.shape, np.float32)
        for shard, ready in enumerate(self._ready):
            for index in range(min(self._per_shard, len(ready))):
                taken, row, num_steps = ready.popleft()
                self._num_ready[taken] -= 1
                self._num_waiting -= num_steps
                slot[shard, index] = self._local[taken]
                time[shard, index] = row % self._slot_length
                weight[shard, index] = 1.0
        self._waiting_since = now if any(self._ready) else None
        return steps.Unrolls(slot.reshape(-1), time.reshape(-1), weight.reshape(-1))

    def holds(self, slots: np.ndarray) -> bool:
        return bool(np.any(self._is_held(slots)))

    def _is_held(self, slots: np.ndarray | slice) -> np.ndarray:
        """Returns [S] bool, true: the slot has the most complete unrolls allowed to wait.

        After a cut no unroll may wait, because the open ones of many short sessions would overwrite its rows.
        """
        held: np.ndarray = self._num_ready[slots] >= np.where(self._is_live[slots], self._data.max_lag, 1)
        return held

    def record(self, slots: np.ndarray, group: np.ndarray, first: np.ndarray, now: float) -> int:
        """Records a new row in each of the slots. Row L completes an unroll of L steps.

        The transition from an episode's last row to the next one's first is not a step, but takes a place there.
        The step to the very first row belongs to no unroll; the number of such steps is returned.
        """
        self._pace = None
        self._is_live[slots] = True
        self._group[slots] = group
        row = self._row[slots]
        self._row[slots] += 1
        is_inside = ~first & (row > self._begin[slots])
        self._num_open[slots] += is_inside
        self._num_waiting += int(np.count_nonzero(is_inside))
        for slot in slots[row == self._begin[slots] + self._data.length].tolist():
            self._ready[self._shard[slot]].append((slot, int(self._begin[slot]), int(self._num_open[slot])))
            self._begin[slot] += self._data.length
            self._num_open[slot] = 0
            self._num_ready[slot] += 1
            if self._waiting_since is None:
                self._waiting_since = now
        return int(np.count_nonzero(~first & ~is_inside))

    def cut(self, slots: np.ndarray) -> int:
        self._pace = None
        num_dropped = int(self._num_open[slots].sum())
        self._num_waiting -= num_dropped
        self._is_live[slots] = False
        self._num_open[slots] = 0
        self._begin[slots] = self._row[slots]
        return num_dropped

    def leave(self, slots: np.ndarray) -> int:
        left, num_open, num_complete = set(slots.tolist()), self.cut(slots), 0
        for shard, ready in enumerate(self._ready):
            num_complete += sum(num_steps for slot, _, num_steps in ready if slot in left)
            self._ready[shard] = collections.deque(unroll for unroll in ready if unroll[0] not in left)
        self._num_waiting -= num_complete
        self._num_ready[slots] = 0
        self._waiting_since = self._waiting_since if any(self._ready) else None
        return num_open + num_complete

    def take(self, slots: np.ndarray, before: rate_limiting.RateLimiter | np.ndarray) -> None:
        assert isinstance(before, (QueueRateLimiter, np.ndarray))
        rows = before if isinstance(before, np.ndarray) else before._row[slots]
        self._row[slots] = self._begin[slots] = rows  # the rings' cursors, which continue

    def drop(self) -> int:
        num_dropped = self._forget()
        self._is_live[:] = False
        return num_dropped

    def restart(self, num_updates: int, num_inserts: int) -> int:
        return self._forget()

    def _forget(self) -> int:
        """Begins each slot's unroll again with its next row; returns the number of steps that waited."""
        num_dropped, self._num_waiting, self._waiting_since, self._pace = self._num_waiting, 0, None, None
        for ready in self._ready:
            ready.clear()
        self._num_ready[:] = 0
        self._num_open[:] = 0
        self._begin[:] = self._row
        return num_dropped

    @property
    def num_waiting(self) -> int:
        return self._num_waiting

    def num_samples(self, num_updates: int, num_stored: int) -> int:
        """Returns the steps learned from, each at most once."""
        return num_stored - self.num_waiting
