"""The counters of a run, which any thread may read."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seedzero.config import agent_settings, configs

# Counts the updates whose gradient is clipped.
GRAD_CLIPPED = "grad_clipped"
"""Name of the metric: the share of updates whose gradient norm exceeded `clip_norm`."""


def clip_limit(config: configs.Config) -> float:
    """Returns the limit of the gradient's norm; 0 means no limit."""
    return float(agent_settings.value(config, "clip_norm") or 0.0)


def clip_share(largest: float, update: Mapping[str, float]) -> dict[str, float]:
    """Returns the share of clipped gradients as a metric of an update; empty without a limit."""
    return {GRAD_CLIPPED: float(update["grad_norm"] > largest)} if largest else {}


WORKER_LOST = "worker_lost"
WORKER_LEFT = "worker_left"
CHECKPOINT_RESET = "checkpoint_reset"
UNFINISHED_UNROLL = "unfinished_unroll"
"""Reason: these steps of a queue were stored, but a cut follows, so that no update sees them."""
PLAYER_RESET = "player_reset"
"""Reason: as above, because the queue's player took other parameters."""
HOME_CHANGED = "home_changed"
"""Reason: as above, because the queue's environments moved to another player."""
HOME_CHANGED_PENDING = "home_changed_pending"
"""Reason: these steps were pending when their environments moved; the next row belongs to the other player."""
_STORED_ONCE = (UNFINISHED_UNROLL, PLAYER_RESET, HOME_CHANGED)


@dataclasses.dataclass(frozen=True)
class Counts:
    """A consistent snapshot, in which acknowledged = stored + pending + sum(discarded)."""

    acknowledged: int = 0
    stored: int = 0
    pending: int = 0
    discarded: Mapping[str, int] = dataclasses.field(default_factory=dict)
    num_samples: int = 0  # windows or steps that updates learned from; 0 in a ledger

    @property
    def env_steps(self) -> int:
        """Training steps ever stored; `stored` itself falls when waiting steps of a queue are discarded."""
        return self.stored + sum(self.discarded.get(reason, 0) for reason in _STORED_ONCE)


def total(several: Sequence[Counts]) -> Counts:
    discarded = sum((collections.Counter(found.discarded) for found in several), collections.Counter[str]())
    return Counts(
        sum(found.acknowledged for found in several),
        sum(found.stored for found in several),
        sum(found.pending for found in several),
        dict(discarded),
        sum(found.num_samples for found in several),
    )


OTHER_HOSTS, GONE = "other_hosts", "gone"
"""Keys of a checkpoint's counters: counts of the run's other hosts by index, and of hosts that left the run."""


def env_steps_of(saved: Mapping[str, Any]) -> int:
    """Returns the training steps of all hosts from a checkpoint's counters."""
    found = [saved["ledger"], *saved.get(OTHER_HOSTS, {}).values()]
    return sum(Counts(**each).env_steps for each in found)


class PolicyCounts(NamedTuple):
    """The counters of one policy, where agents that share an environment have several."""

    update: int  # done
    env_steps: int


class Snapshot(NamedTuple):
    """A consistent view of the counters for other threads."""

    counts: Counts = Counts()  # of training steps
    num_updates: int = 0  # done
    owed_updates: int = 0  # updates still due after the last training step, before the run ends
    num_samples: int = 0  # windows or steps that updates learned from
    num_reanalysed: int | None = None  # stored rows whose targets were recomputed; None: the agent does not reanalyse
    version: int = 0  # of the acting parameters, in updates
    last_evaluation: Mapping[str, Any] | None = None  # result of the last evaluation
    evaluating: bool = False  # an evaluation is under way
    remaining: str = ""  # what an ending run still waits for
    lacking: str = ""  # what updates wait for while environments are missing
    matches: Mapping[str, int] = {}  # matches of a league by type, and cancelled ones; {}: no league
    num_frozen: int = 0  # frozen players of a league
    win_rate: float | None = None  # recent, against the league's active frozen players; None: there are none
    policies: Mapping[str, PolicyCounts] = {}  # by name; {}: a single policy
    is_compiled: bool = False  # the programs for acting and updating are compiled
    compiling: str = "programs"  # the one that is being compiled, with its number, while they are not
