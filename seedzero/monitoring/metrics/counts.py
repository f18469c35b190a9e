"""The counters of a run, which any thread may read, and means and totals of metrics between two rows."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seedzero.config import agent_settings, configs

# Means and totals of the metrics between two rows.
RECENT_EPISODES = 100
INFO = "info/"
"""Prefix of the numbers that environments report themselves."""
_MOST_INFOS = 64
_LEFT_OUT = "info_left_out"
"""Counts the values that were dropped because there are too many names."""


class Aggregator:
    """Collects means and totals by name between two rows; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sums: dict[str, float] = {}
        self._counts: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._infos: set[str] = set()
        self._recent: collections.deque[float] = collections.deque(maxlen=RECENT_EPISODES)

    def add_means(self, values: Mapping[str, float], weight: float = 1.0) -> None:
        """Adds values, such as an update's loss, to the row's means.

        weight: the number of values that they are a mean of.
        """
        with self._lock:
            for name, value in values.items():
                self._sums[name] = self._sums.get(name, 0.0) + weight * float(value)
                self._counts[name] = self._counts.get(name, 0.0) + weight

    def add_totals(self, values: Mapping[str, float]) -> None:
        """Adds values, such as seconds of waiting, to the row's totals."""
        with self._lock:
            for name, value in values.items():
                self._totals[name] = self._totals.get(name, 0.0) + value

    def add_batch(self, num_rows: int, batch_size: int, wait_seconds: float) -> None:
        """Adds an acting batch; wait_seconds is the waiting time of its oldest row."""
        fill = num_rows / batch_size
        self.add_means({"batch_rows": num_rows, "batch_fill": fill, "batch_wait_seconds": wait_seconds})

    def add_episode(self, episode_return: float, length: int, *, num_players: int = 1, task: str = "") -> None:
        """Adds an episode with its undiscounted return; in a game of two players the return of the first mover."""
        name = "episode_return" if num_players == 1 else "first_mover_return"
        self.add_means({name: episode_return, "episode_length": length})
        if task:
            self.add_means({f"{name}/{task}": episode_return})
        self.add_totals({"episodes": 1})
        with self._lock:
            self._recent.append(episode_return)

    def add_info(self, values: Mapping[str, float]) -> None:
        """Adds the numbers that an environment reports for an episode.

        Beyond 64 names they count as `info_left_out`.
        """
        with self._lock:
            for name, value in values.items():
                if name in self._infos or len(self._infos) < _MOST_INFOS:
                    self._infos.add(name)
                    self.add_means({f"{INFO}{name}": value})
                else:
                    self.add_totals({_LEFT_OUT: 1})

    def recent_return(self) -> float | None:
        """Returns the mean return of the last training episodes of this process, or None before the first one."""
        with self._lock:
            return sum(self._recent) / len(self._recent) if self._recent else None

    def means(self) -> dict[str, float]:
        """Returns the means since the last `drain`, without resetting them."""
        with self._lock:
            return {name: total / self._counts[name] for name, total in self._sums.items() if self._counts[name] > 0}

    def drain(self) -> dict[str, float]:
        """Returns means and totals since the last call, sorted by name, and resets them."""
        with self._lock:
            values = self.means() | self._totals
            self._sums, self._counts, self._totals = {}, {}, {}
        return dict(sorted(values.items()))


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


CUT_SHORT = "cut_short"
"""In an evaluation's result, as JSON: it is not the return of whole episodes, and ends no run."""


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
    last_evaluation: Mapping[str, Any] | None = None  # result of the last evaluation; see `CUT_SHORT`
    evaluating: bool = False  # an evaluation is under way
    remaining: str = ""  # what an ending run still waits for
    lacking: str = ""  # what updates wait for while environments are missing
    matches: Mapping[str, int] = {}  # matches of a league by type, and cancelled ones; {}: no league
    num_frozen: int = 0  # frozen players of a league
    win_rate: float | None = None  # recent, against the league's active frozen players; None: there are none
    policies: Mapping[str, PolicyCounts] = {}  # by name; {}: a single policy
    is_compiled: bool = False  # the programs for acting and updating are compiled
    compiling: str = "programs"  # the one that is being compiled, with its number, while they are not
