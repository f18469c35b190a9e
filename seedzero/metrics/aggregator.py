"""Means and totals between two rows of metrics."""

from __future__ import annotations

import collections
import threading
from collections.abc import Mapping

RECENT_EPISODES = 100
INFO = "info/"
"""Begins the names of environments' own numbers."""
_MOST_INFOS = 64
_LEFT_OUT = "info_left_out"
"""Total of the values whose names are too many."""


class Aggregator:
    """Collects means and totals between two rows, as one sum for each name; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sums: dict[str, float] = {}
        self._counts: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._infos: set[str] = set()
        self._recent: collections.deque[float] = collections.deque(maxlen=RECENT_EPISODES)

    def add_means(self, values: Mapping[str, float], weight: float = 1.0) -> None:
        """Adds to the means of the row: an update's loss, a policy's age. weight: number of values."""
        with self._lock:
            for name, value in values.items():
                self._sums[name] = self._sums.get(name, 0.0) + weight * float(value)
                self._counts[name] = self._counts.get(name, 0.0) + weight

    def add_totals(self, values: Mapping[str, float]) -> None:
        """Adds to the sums of the row: seconds of waiting, episodes."""
        with self._lock:
            for name, value in values.items():
                self._totals[name] = self._totals.get(name, 0.0) + value

    def add_batch(self, num_rows: int, batch_size: int, wait_seconds: float) -> None:
        """Adds an acting batch: rows, padded size, the waiting time of the oldest row."""
        fill = num_rows / batch_size
        self.add_means({"batch_rows": num_rows, "batch_fill": fill, "batch_wait_seconds": wait_seconds})

    def add_episode(self, episode_return: float, length: int, *, num_players: int = 1, task: str = "") -> None:
        """Adds an episode: undiscounted return (of two players: the first mover's), steps, the task's name."""
        name = "episode_return" if num_players == 1 else "first_mover_return"
        self.add_means({name: episode_return, "episode_length": length})
        if task:
            self.add_means({f"{name}/{task}": episode_return})
        self.add_totals({"episodes": 1})
        with self._lock:
            self._recent.append(episode_return)

    def add_info(self, values: Mapping[str, float]) -> None:
        """Adds an episode's numbers of the environment's own; names beyond 64 are counted in `info_left_out`."""
        with self._lock:
            for name, value in values.items():
                if name in self._infos or len(self._infos) < _MOST_INFOS:
                    self._infos.add(name)
                    self.add_means({f"{INFO}{name}": value})
                else:
                    self.add_totals({_LEFT_OUT: 1})

    def recent_return(self) -> float | None:
        """Returns the mean return of this process's last training episodes, across rows; None before the first."""
        with self._lock:
            return sum(self._recent) / len(self._recent) if self._recent else None

    def means(self) -> dict[str, float]:
        """Returns the means since the last `drain`, without a new beginning."""
        with self._lock:
            return {name: total / self._counts[name] for name, total in self._sums.items() if self._counts[name] > 0}

    def drain(self) -> dict[str, float]:
        """Returns means and totals since the last call, in the order of their names, and starts again."""
        with self._lock:
            values = self.means() | self._totals
            self._sums, self._counts, self._totals = {}, {}, {}
        return dict(sorted(values.items()))
