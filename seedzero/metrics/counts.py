"""The counters of a run, for any thread."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

WORKER_LOST = "worker_lost"
WORKER_LEFT = "worker_left"
CHECKPOINT_RESET = "checkpoint_reset"
UNFINISHED_UNROLL = "unfinished_unroll"
"""Steps of a queue before a cut: stored, but no update sees them."""
PLAYER_RESET = "player_reset"
"""Steps of a queue before its player took other parameters, likewise."""
HOME_CHANGED = "home_changed"
"""Steps of a queue before their environments came to another player, likewise."""
HOME_CHANGED_PENDING = "home_changed_pending"
"""Steps that were pending then: the next row is the other player's."""
_STORED_ONCE = (UNFINISHED_UNROLL, PLAYER_RESET, HOME_CHANGED)


@dataclasses.dataclass(frozen=True)
class Counts:
    """A consistent snapshot: acknowledged = stored + pending + sum(discarded)."""

    acknowledged: int = 0
    stored: int = 0
    pending: int = 0
    discarded: Mapping[str, int] = dataclasses.field(default_factory=dict)
    num_samples: int = 0  # windows or steps that updates learned from; a ledger leaves them out

    @property
    def env_steps(self) -> int:
        """Training steps that were ever stored: `stored` falls when a queue's waiting steps are discarded."""
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
"""In a checkpoint's counters: counts of a run's other hosts, by their index, and of those that have left the run."""


def env_steps_of(saved: Mapping[str, Any]) -> int:
    """Returns the training steps of all hosts in a checkpoint's counters."""
    found = [saved["ledger"], *saved.get(OTHER_HOSTS, {}).values()]
    return sum(Counts(**each).env_steps for each in found)


class PolicyCounts(NamedTuple):
    """The counters of one of the policies of agents that share an environment."""

    update: int  # done
    env_steps: int


class Snapshot(NamedTuple):
    """A consistent view of the counters for other threads."""

    counts: Counts = Counts()  # of training steps
    num_updates: int = 0  # done
    owed_updates: int = 0  # that are done before the last training step ends the run; 0: that step ends it
    num_samples: int = 0  # windows or steps that these learned from
    num_reanalysed: int | None = (
        None  # stored rows whose targets were computed again; None: the agent does not reanalyse
    )
    version: int = 0  # updates that the acting parameters have seen
    last_evaluation: Mapping[str, Any] | None = None  # its result
    evaluating: bool = False  # an evaluation is under way
    remaining: str = ""  # what a run that ends still waits for
    lacking: str = ""  # what updates wait for, where more environments have to join
    matches: Mapping[str, int] = {}  # finished ones of a league by type, and cancelled ones; {}: there is no league
    num_frozen: int = 0  # frozen players of a league
    win_rate: float | None = None  # lately against the league's active frozen players; None: there are none
    policies: Mapping[str, PolicyCounts] = {}  # by name; {}: one policy plays for all
    is_compiled: bool = False  # acting and updating have their programs
