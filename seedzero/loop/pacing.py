"""The pacer of an agent's data: its pace, an update's input, slots on hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seedzero.agents import base
from seedzero.config import config as configs
from seedzero.config import sections
from seedzero.device import setup as setups
from seedzero.device import steps
from seedzero.loop import limiter, queue_pacing
from seedzero.replay import data as sources


class ReplayPacer(limiter.Pacer):
    """The pace of a replay: the samples-per-insert band, and in lock step exactly the updates that are owed."""

    def __init__(self, band: limiter.Limiter, replay: sections.ReplayConfig) -> None:
        self._band, self._replay = band, replay

    def pace(self) -> limiter.Limiter:
        return self._band

    def feed(self, num_inserts: int, now: float) -> steps.Feed:
        return steps.wrapped(num_inserts)

    def num_samples(self, num_updates: int, num_stored: int) -> int:
        return num_updates * self._band.batch_size

    def owed_updates(self, num_env_steps: int) -> int:
        return limiter.owed_updates(self._replay, num_env_steps, self._band.start)

    def restart(self, num_updates: int, num_inserts: int) -> int:
        self._band = self._band._replace(start=(num_updates, num_inserts))
        return 0

    def to_json(self) -> dict[str, Any]:
        return {"pace": {"samples_per_insert": self._replay.samples_per_insert, "since": self._band.start}}

    def restore(self, host: Mapping[str, Any]) -> None:
        self._band = self._band._replace(start=limiter.start_of(self._replay, host))


def make(config: configs.Config, setup: setups.Setup) -> limiter.Pacer:
    """Returns the pace of the agent's data."""
    agent: base.Agent = setup.agent
    if isinstance(agent.data, sources.Queue):
        return queue_pacing.QueuePacer(agent.data, setup.layout, setup.slot_length, lock_step=config.run.deterministic)
    band = limiter.make(config.replay, agent.refresh, setup.max_rows, lock_step=config.run.deterministic)
    return ReplayPacer(band, config.replay)
