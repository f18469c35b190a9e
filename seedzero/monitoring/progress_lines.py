"""Computes rates from a run's counters, explains why it makes no progress, and forecasts how long it takes."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable

from seedzero.config import configs
from seedzero.core import printable, types
from seedzero.monitoring.metrics import counts

# Forecasts how long a run on a CPU takes from its first measured updates, and suggests how to shorten it.
MEASURED_SECONDS = 30.0
"""Shortest time to measure, starting with the first update."""
MEASURED_UPDATES = 3
LONG_HOURS = 2.0
"""Remaining time that deserves a message."""
SLOW_UPDATES_PER_SECOND = 1.0
"""Speed below which advice is given if no budget limits the run."""


class Forecast:
    """Measures a run and forecasts its duration once. For a single thread."""

    def __init__(self, config: configs.Config) -> None:
        self._config = config
        self._before: int | None = None  # updates before a resume
        self._start: tuple[float, int, int] | None = None  # seconds, steps and updates where the measurement began
        self._is_told = False

    def observe(self, now: float, snapshot: counts.Snapshot, spec: types.EnvSpec) -> str:
        """Returns the message once it is due, else "". now: in seconds."""
        steps, updates = snapshot.counts.env_steps, snapshot.num_updates
        if self._before is None:
            self._before = updates
        if self._is_told or updates == self._before:
            return ""
        # The first updates may be made up for earlier steps in a burst, so their speed tells nothing about a step
        # budget.
        if self._start is None or (self._config.run.max_env_steps and steps == self._start[1]):
            self._start = now, steps, updates
        began, first_steps, first_updates = self._start
        seconds, num_updates = now - began, updates - first_updates
        if seconds < MEASURED_SECONDS or num_updates < MEASURED_UPDATES:
            return ""
        self._is_told = True
        return forecast_sentence(self._config, spec, snapshot, (steps - first_steps) / seconds, num_updates / seconds)


def forecast_sentence(
    config: configs.Config,
    spec: types.EnvSpec,
    snapshot: counts.Snapshot,
    steps_per_second: float,
    updates_per_second: float,
) -> str:
    """Describes how long a run takes at a speed, and ways to shorten it; "" for a short run.

    The hours are those until a budget of steps or updates ends the run, if --max_seconds does not end it before.
    Without such a budget nobody knows how much a run needs, so only a slow one gets advice.
    """
    budgets = (
        (config.run.max_env_steps, snapshot.counts.env_steps, steps_per_second, "steps"),
        (config.run.max_updates, snapshot.num_updates, updates_per_second, "updates"),
    )
    times = [
        ((most - done) / rate / 3600, f"the rest of {most:,} {unit}")
        for most, done, rate, unit in budgets
        if most and rate
    ]
    acting = f"{steps_per_second:.3g} steps/s and " if steps_per_second else ""
    speed = f"at {acting}{updates_per_second:.3g} updates/s"
    hours, goal = min(times, default=(math.inf, ""))
    if 0 < config.run.max_seconds < 3600 * hours:
        return ""
    if not times:
        advice = _advice(config, spec) if updates_per_second < SLOW_UPDATES_PER_SECOND else ""
        return f"{speed}{advice}" if advice else ""
    if hours < LONG_HOURS:
        return ""
    return f"{speed} this CPU needs about {printable.lasting(3600 * hours)} for {goal}{_advice(config, spec)}"


def _advice(config: configs.Config, spec: types.EnvSpec) -> str:
    """Returns ways to shorten the run."""
    shown = types.shown(spec.arrays)
    if shown == "images":
        return (
            "; images want an accelerator. Quicker on two cores: --preset=catch and --preset=cartpole, in a minute, "
            "and --env=gym:MinAtar/Breakout-v1, in ten"
        )
    if config.run.agent != "muzero":
        return ""
    network, target = config.network, config.muzero.target_network_updates
    is_grid = shown == "small grids"
    size = ("channels", network.channels or network.width // 2) if is_grid else ("width", network.width)
    changes = [
        *(["--muzero.target_network_updates=0"] if target else []),
        f"a smaller --network.{size[0]}={size[1]}",
        f"a smaller --replay.batch_size={config.replay.batch_size}",
        "--agent=ppo",
    ]
    return f"; quicker in a new run: {', '.join(changes[:-1])} or {changes[-1]}"


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

    def first_update(self, config: configs.Config) -> str:
        """Returns when the first update will come; "" if nothing is to be said."""
        snapshot, num_steps = self.snapshot(), config.agent.first_update(config) * config.cluster.num_hosts
        left = num_steps - snapshot.counts.env_steps
        if self._ending or snapshot.num_updates or not snapshot.is_compiled or left <= 0:
            return ""
        rate = self.per_second(lambda snapshot: snapshot.counts.env_steps)
        return f"first update at {num_steps:,} steps" + (
            f", in about {printable.lasting(left / rate)}" if rate else ""
        )

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
