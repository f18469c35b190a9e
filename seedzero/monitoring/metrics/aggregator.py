"""Means and totals of the metrics between two rows."""

from __future__ import annotations

import collections
import threading
from collections.abc import Mapping

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
