"""One evaluation: a fixed quota of whole episodes for each environment.

"The first N finished episodes" would count short episodes more often than long ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from seedzero.evaluation import episodes, human_scores


@dataclasses.dataclass(frozen=True)
class Result:
    """Statistics over the episodes of an evaluation; returns are undiscounted sums of rewards."""

    episodes: int
    mean_return: float
    std_return: float
    min_return: float
    max_return: float
    mean_length: float


class Evaluation:
    """Follows the episodes of evaluating environments.

    Args:
      slots: [E] the environments' slots, any distinct numbers.
      num_episodes: episodes altogether; the first environments play the remainder of an uneven division.
    """

    def __init__(self, slots: np.ndarray, num_episodes: int) -> None:
        number = len(slots)
        quotas = num_episodes // number + (np.arange(number) < num_episodes % number)
        self._left = {int(slot): int(quota) for slot, quota in zip(slots, quotas, strict=True)}
        self._running = episodes.Episodes(int(slots.max()) + 1)
        self._finished: list[episodes.Episode] = []

    def record(self, slots: np.ndarray, reward: np.ndarray, first: np.ndarray, final: np.ndarray) -> None:
        """Adds one observation of each given environment; shapes as in `Episodes.record`."""
        for episode in self._running.record(slots, reward, first, final):
            if self._left[episode.slot] > 0:
                self._left[episode.slot] -= 1
                self._finished.append(episode)

    @property
    def done(self) -> bool:
        """Whether every environment has played its quota."""
        return not any(self._left.values())

    def result(self) -> Result:
        """Returns the statistics of the finished episodes, at least one."""
        return summarize([episode.total for episode in self._finished], [episode.length for episode in self._finished])


def summarize(totals: Sequence[float], lengths: Sequence[int]) -> Result:
    """Returns the statistics of at least one episode, from all returns and lengths."""
    returns = np.array(totals)
    return Result(
        episodes=len(returns),
        mean_return=float(returns.mean()),
        std_return=float(returns.std()),
        min_return=float(returns.min()),
        max_return=float(returns.max()),
        mean_length=float(np.mean(lengths)),
    )


def human_normalized(env_id: str, mean_return: float) -> float | None:
    """Returns (score - random) / (human - random) of an Atari game; None for other environments."""
    kind, _, game = env_id.partition(":")
    return human_scores.normalized(game, mean_return) if kind == "atari" else None
