"""Accounts for a player's training steps: ledger, pace, episodes, and the steps of each device."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.core import types
from seedzero.device import batches
from seedzero.learner.loop import rate_limiting
from seedzero.monitoring.metrics import counts, episodes


# Accounts for training steps: every step acknowledged to a worker is stored, pending or discarded.
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


STORED_PER_SLOT = "stored_per_slot"
"""In a checkpoint's counters, if homes change."""


@dataclasses.dataclass(eq=False)
class StepAccounting:
    """Accounts for the rows of groups that are at home with a player. For the loop's thread."""

    layout: batches.Layout
    rate_limiter: rate_limiting.RateLimiter
    gathered: counts.Aggregator
    spec: types.EnvSpec
    homes_change: bool = False  # groups may come and go

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.layout.num_slots)
        self._episodes = episodes.Episodes(self.layout.num_slots, self.spec.num_players)
        self._stored_per_shard = np.zeros(self.layout.num_shards, np.int64)
        self._stored_per_slot = np.zeros(self.layout.num_slots, np.int64)  # if homes change
        self._is_partial = np.zeros(self.layout.num_slots, bool)  # another player began this slot's episode

    @property
    def num_kept(self) -> int:
        """Steps in this replay; fewer than are stored after a resume without the saved replay."""
        return int(self._stored_per_shard.sum())

    @property
    def can_sample(self) -> bool:
        """Whether every shard holds a step."""
        return bool(self._stored_per_shard.all())

    def lacking(self, slots: Sequence[np.ndarray]) -> str:
        """Any thread: names the devices without steps and environments, for which updates wait.

        slots: those of each session. Returns "" if there is no such device.
        """
        has_any = self._stored_per_shard > 0
        for shard, _ in map(self.layout.place, slots):
            has_any[shard] = True
        without = np.flatnonzero(~has_any).tolist()
        if not without or not slots:
            return ""
        names = f"device{'s' * (len(without) > 1)} {', '.join(map(str, without))} of 0 to {len(has_any) - 1}"
        return (
            f"no updates yet: {names} had no environment; have {len(without)} more join, or begin a run with fewer "
            "devices (--training.num_devices)"
        )

    def record(self, joined: batches.Batch, now: float, cut: np.ndarray | None = None) -> None:
        """Books an acting tick's rows of groups at home here.

        cut: slots whose row is a first one only because their group has changed its home, or None.
        """
        slots, first = joined.slot, joined.first
        self.ledger.record(slots, first, joined.final)
        num_lost = self.rate_limiter.record(slots, joined.group, first, now)
        self.ledger.discard_stored(num_lost, counts.PLAYER_RESET)
        shard, _ = self.layout.place(slots)
        self._stored_per_shard += np.bincount(shard[~first], minlength=self.layout.num_shards)
        ended = self._episodes.record(slots, joined.reward, first, joined.final, joined.task, joined.mover)
        if self.homes_change:
            self._stored_per_slot[slots] += ~first
            self._is_partial[slots] &= ~first
            if cut is not None:
                self._is_partial[cut] = True
            ended = [episode for episode in ended if not self._is_partial[episode.slot]]
        spec = self.spec
        for episode in ended:
            name = spec.tasks[episode.task] if spec.tasks else ""
            self.gathered.add_episode(episode.total, episode.length, num_players=spec.num_players, task=name)

    def cut(self, slots: np.ndarray, reason: str) -> None:
        """Ends the histories of slots without environments."""
        self.ledger.discard(slots, reason)
        self.ledger.discard_stored(self.rate_limiter.cut(slots), counts.UNFINISHED_UNROLL)

    def leave(self, slots: np.ndarray) -> None:
        """Ends the histories of slots [B] that another player takes, and forgets their steps."""
        self.ledger.discard(slots, counts.HOME_CHANGED_PENDING)
        self.ledger.discard_stored(self.rate_limiter.leave(slots), counts.HOME_CHANGED)
        shard, _ = self.layout.place(slots)
        np.subtract.at(self._stored_per_shard, shard, self._stored_per_slot[slots])
        self._stored_per_slot[slots] = 0

    def take(self, slots: np.ndarray, before: StepAccounting) -> None:
        """Begins the histories of slots [B] that another player left."""
        self.rate_limiter.take(slots, before.rate_limiter)

    def restrict(self, own: np.ndarray) -> np.ndarray:
        """Counts only the steps in own slots, [S] bool, if homes change; returns those that have none, [S] bool."""
        self._stored_per_slot[~own] = 0
        slots = np.flatnonzero(self._stored_per_slot)
        self._stored_per_shard[:] = 0
        np.add.at(self._stored_per_shard, self.layout.place(slots)[0], self._stored_per_slot[slots])
        without: np.ndarray = own & (self._stored_per_slot == 0)
        return without

    def drop(self, reason: str) -> None:
        """Counts the stored steps that wait for an update as discarded."""
        self.ledger.discard_stored(self.rate_limiter.drop(), reason)

    def restart(self, num_updates: int) -> None:
        """Counts no step so far, and restarts the pace; a queue also drops pending steps, a replay keeps them.

        num_updates: the player's so far.
        """
        self._stored_per_shard[:] = self._stored_per_slot[:] = 0
        num_lost = self.rate_limiter.restart(num_updates, self.ledger.counts.stored)
        self.ledger.discard_stored(num_lost, counts.PLAYER_RESET)

    def to_json(self) -> dict[str, Any]:
        """Returns the part of a checkpoint's counters."""
        return {
            "ledger": self.ledger.to_json(),
            "stored_per_shard": self._stored_per_shard.tolist(),
            **({STORED_PER_SLOT: self._stored_per_slot.tolist()} if self.homes_change else {}),
            "waiting_steps": self.rate_limiter.num_waiting,
        }

    def restore(self, saved: Mapping[str, Any], *, has_replay: bool) -> None:
        """Restores a checkpoint's counters; steps that wait for an update are lost with their rings.

        mine: [S] bool, slots at home here; None: all are.
        """
        self.ledger.restore(saved["ledger"])
        self.ledger.discard_stored(saved["waiting_steps"], counts.UNFINISHED_UNROLL)
        if has_replay:
            before = np.array(saved["stored_per_shard"], np.int64)
            # With more or fewer devices than before, shards are equal blocks of slots, and steps are spread evenly
            # over them.
            parts = math.lcm(len(before), self.layout.num_shards) // len(before)
            self._stored_per_shard = np.repeat(before // parts, parts).reshape(self.layout.num_shards, -1).sum(axis=1)
            if self.homes_change:
                self._stored_per_slot = np.array(saved[STORED_PER_SLOT], np.int64)
