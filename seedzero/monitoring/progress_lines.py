"""Reads a run's counters, computes their rates over the last seconds, and explains why a run makes no progress."""

from __future__ import annotations

import collections
from collections.abc import Callable

from seedzero.core import types
from seedzero.monitoring.metrics import counts

_WINDOW_SECONDS = 10.0
_STALL_SECONDS = 30.0


class RunProgress:
    """The counters of a run. Any thread may ask."""

    def __init__(self, clock: Callable[[], float], silent: Callable[[], str] = str) -> None:
        """silent: names the workers that send only heartbeats, or returns ""."""
        self.spec: types.EnvSpec | None = None  # None until it is known
        # Returns the device loop's counters; None until the loop exists.
        self.read: Callable[[], counts.Snapshot] | None = None
        self._ending = ""
        self.silent, self._clock = silent, clock
        self._started = self._last_change = clock()
        self._readings: collections.deque[tuple[float, counts.Snapshot]] = collections.deque(maxlen=64)

    def show(self, spec: types.EnvSpec) -> None:
        """Sets the spec of the environments."""
        self.spec = spec

    def follow(self, read: Callable[[], counts.Snapshot]) -> None:
        """Sets the function that reads the device loop's counters."""
        self.read = read

    def end(self, work: str) -> None:
        """Says what an ending run still has to do; "" once nothing is left, which freezes the counters."""
        self._ending = work
        if not work and self.read is not None:
            last = self.snapshot()
            self.read = lambda: last

    def snapshot(self) -> counts.Snapshot:
        """Returns the counters, zeros until the loop exists."""
        return self.read() if self.read else counts.Snapshot()

    def seconds(self) -> float:
        """Returns the time since the run began."""
        return self._clock() - self._started

    def observe(self, now: float) -> None:
        """Takes a reading of the counters; `now` in seconds."""
        new = self.snapshot()
        old = self._readings[-1][1] if self._readings else counts.Snapshot()
        if (new.counts.stored, new.num_updates) != (old.counts.stored, old.num_updates):
            self._last_change = now
        self._readings.append((now, new))
        while len(self._readings) > 2 and now - self._readings[1][0] > _WINDOW_SECONDS:
            self._readings.popleft()

    def per_second(self, counter: Callable[[counts.Snapshot], float]) -> float:
        """Returns the rate of a counter, 0 until there are two readings."""
        if len(self._readings) < 2:
            return 0.0
        (start, before), (end, after) = self._readings[0], self._readings[-1]
        return (counter(after) - counter(before)) / max(end - start, 1e-9)

    def preparing(self, num_workers: int) -> str:
        """Returns what is being built or compiled before a run can make progress, or ""."""
        if self._ending:
            return ""
        if self.read is None:
            return "building the networks (1 of 3)" if self.spec else ""
        snapshot = self.read()
        return f"compiling {snapshot.compiling}" if num_workers and not snapshot.is_compiled else ""

    def stalled(self, num_workers: int) -> str | None:
        """Returns why the run or a worker makes no progress, or None."""
        if known := self._ending or self.preparing(num_workers):
            return known
        if self.read is None:
            return self.silent() or "waiting for the first worker"
        snapshot = self.read()
        if known := self.silent() or snapshot.remaining:
            return known
        if not num_workers:
            return "no training worker is connected" if snapshot.counts.stored else "waiting for the first worker"
        if snapshot.lacking:
            return snapshot.lacking
        still = self._clock() - self._last_change
        if still <= _STALL_SECONDS:
            return None
        meanwhile = "; an evaluation is under way" if snapshot.evaluating else ""
        return f"no step or update for {still:.0f} s{meanwhile}"
