"""Warns if the learning rate decays to 0 before a run ends, because it learns nothing from then on."""

from __future__ import annotations

import math

from seedzero.config import configs
from seedzero.monitoring.metrics import counts

MARGIN = 1.05
"""Updates after the decay, as a share of it, that deserve a warning; padded batches add some unplanned updates."""


class Decay:
    """Warns once if the learning rate is 0, or will be before the run's budget is used. For a single thread."""

    def __init__(self, config: configs.Config) -> None:
        self._config = config
        self._name, self._end = config.agent.decay_end(config)
        self._has_begun = self._is_told = False

    def observe(self, snapshot: counts.Snapshot) -> str:
        """Returns the warning once it is due, else "".

        The first snapshot must be from the start of a run or a resume.
        """
        num_updates, at_start = snapshot.num_updates, not self._has_begun
        self._has_begun = True
        if not self._name or self._is_told:
            return ""
        budget, flag = budget_updates(self._config, snapshot)
        is_zero = num_updates >= self._end * (1.0 if at_start else MARGIN)
        if not is_zero and not (at_start and budget > self._end * MARGIN):
            return ""
        self._is_told = True
        setting = f"--{self._name}={configs.flatten(self._config)[self._name]}"
        if is_zero:
            fact = (
                f"the learning rate is 0 since update {self._end} ({setting}), and this is update {num_updates}: "
                "nothing more is learned"
            )
        else:
            fact = (
                f"the learning rate falls to 0 at update {self._end} ({setting}), and {flag} continues to about "
                f"update {budget}: nothing is learned after that"
            )
        enough = str(budget) if budget > num_updates else "N, the updates of the whole run"
        return f"{fact}; give --{self._name}={enough}, or --{self._name}=0 for a rate that stays"


def budget_updates(config: configs.Config, snapshot: counts.Snapshot) -> tuple[int, str]:
    """Estimates at which update a budget ends the run, and names the budget's flag; (0, "") without one.

    Padded batches, which have fewer steps, make more updates.
    """
    run, ends = config.run, []
    if run.max_updates:
        ends.append((run.max_updates, f"--max_updates={run.max_updates}"))
    if run.max_env_steps:
        num_left = max(0, run.max_env_steps - snapshot.counts.env_steps)
        num_updates = snapshot.num_updates + num_left / steps_of_update(config)
        final = config.replay.final_updates if config.agent.SAMPLES else 0
        ends.append((math.ceil(num_updates) + final, f"--max_env_steps={run.max_env_steps}"))
    return min(ends, default=(0, ""))


def steps_of_update(config: configs.Config) -> float:
    """Returns the environment steps per update: those of a whole batch, or by the ratio of windows to steps."""
    agent = config.agent
    if agent.SAMPLES:
        return config.replay.batch_size / config.replay.samples_per_insert
    return float(math.prod(getattr(agent, name) for name in ("batch_size", "unroll_length")))
