"""Episodes of concurrent environments, and evaluations in which every environment plays a fixed number of episodes.

Taking the first N finished episodes instead would favour short ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from seedzero.core import infos, types

Progress: TypeAlias = Callable[[int, int], object]
"""Called with the numbers of finished and of expected episodes."""

_ROUNDING = 1e-5
"""Sums of float32 rewards differ by less than this share."""


class Episode(NamedTuple):
    """A finished episode.

    `total` is the undiscounted sum of rewards; in games of two players, that of the first mover (after a random
    opening, if there is one).
    """

    slot: int  # of its environment
    total: float
    length: int  # in steps
    task: int = 0  # index into `EnvSpec.tasks`
    info: Mapping[str, float] = {}  # numbers that the environment reports, by name


class Episodes:
    """Sums rewards of the environments 0 .. num_slots - 1.

    With two players each reward belongs to the mover, and the other player loses as much. `length` is [num_slots]
    int64, the steps so far of the episodes in progress.
    """

    def __init__(self, num_slots: int, num_players: int = 1) -> None:
        self._next_sign = 1 if num_players == 1 else -1
        self._sign = np.ones(num_slots)
        self._first_mover = np.zeros(num_slots)
        self._total = np.zeros(num_slots)
        self.length = np.zeros(num_slots, np.int64)

    def record(
        self,
        slots: np.ndarray,
        reward: np.ndarray,
        first: np.ndarray,
        final: np.ndarray,
        tasks: np.ndarray | None = None,
        movers: np.ndarray | None = None,
    ) -> list[Episode]:
        """Adds one observation of each given environment and returns the finished episodes.

        Args:
          slots: [B] int, distinct environments.
          reward: [B] of the step that led to the observation.
          first: [B] bool, true: first observation of an episode or session.
          final: [B] bool, true: last observation of an episode.
          tasks: [B] int, indices into `EnvSpec.tasks`; None means 0.
          movers: [B] the players to move; None: players alternate.
        """
        self._total[slots] = np.where(first, 0.0, self._total[slots] + self._sign[slots] * reward)
        self._sign[slots] = np.where(first, 1, self._next_sign * self._sign[slots])
        if movers is not None:
            self._first_mover[slots] = np.where(first, movers, self._first_mover[slots])
            self._sign[slots] = np.where(movers == self._first_mover[slots], 1, -1)
        self.length[slots] = np.where(first, 0, self.length[slots] + 1)
        ended = np.zeros(np.count_nonzero(final), int) if tasks is None else tasks[final]
        return [self.so_far(int(slot), int(task)) for slot, task in zip(slots[final], ended, strict=True)]

    def so_far(self, slot: int, task: int = 0) -> Episode:
        """Returns the episode in progress as if it ended now."""
        return Episode(slot, float(self._total[slot]), int(self.length[slot]), task)


@dataclasses.dataclass(frozen=True)
class Scores:
    """Statistics of an evaluation's episodes; returns are undiscounted sums of rewards."""

    episodes: int
    mean_return: float
    std_return: float
    min_return: float
    max_return: float
    mean_length: float
    # mean return of each task that was played, by its name; {} for a single task
    task_returns: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # means of the numbers that environments report, over the episodes that have them, by name
    info: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # episodes stopped by the limit of steps, which count with their rewards so far; their environments play no
    # further episodes
    cut_off: int = 0
    # unfinished episodes, which do not count, so that the short ones weigh too much
    unfinished: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the statistics by name; optional ones only if they are not empty or zero."""
        optional = {"task_returns", "info", "cut_off", "unfinished"}
        return {name: value for name, value in dataclasses.asdict(self).items() if value or name not in optional}

    def flat(self) -> dict[str, float]:
        """Returns the statistics as single numbers, with a `mean_return/TASK` for each task and an `info/NAME`."""
        nested = {f"mean_return/{name}": value for name, value in self.task_returns.items()}
        nested |= {f"info/{name}": value for name, value in self.info.items()}
        return {name: value for name, value in self.to_json().items() if name not in ("task_returns", "info")} | nested


class Played:
    """Follows the episodes of evaluating environments.

    Args:
      slots: [E] distinct slots of the environments.
      tasks: of the environments, as `EnvSpec.tasks`.
      num_episodes: total; if it does not divide evenly, the first environments play one more.
      num_seats: rows of a game, if rows are seats: episodes are then rounded up to whole games, one per seat.
      max_steps: an episode of this length counts as finished, and its environment plays no more.

    Attributes:
      tasks: as given.
      finished: episodes so far.
      num_finished: their number.
      num_expected: total, without the episodes that environments skip after a stopped one, and those of seats that
        a game leaves without a turn.
      num_steps: of all environments.
    """

    def __init__(
        self, slots: np.ndarray, num_episodes: int, tasks: Sequence[str] = (), *, max_steps: int, num_seats: int = 0
    ) -> None:
        self.tasks, self._max_steps, self._cut_off = tasks, max_steps, 0
        number, size = len(slots), max(1, num_seats)
        num_episodes = -(-num_episodes // size) * size
        quotas = num_episodes // number + (np.arange(number) < num_episodes % number)
        self._left = {int(slot): int(quota) for slot, quota in zip(slots, quotas, strict=True)}
        self._games = {int(slot): place // size for place, slot in enumerate(slots)} if num_seats else {}
        self._seen: set[int] = set()  # slots of seats with a row in their running game
        self._running = Episodes(int(slots.max()) + 1)
        self.finished: list[Episode] = []
        self.num_expected = num_episodes
        self.num_steps = 0

    def record(self, slots: np.ndarray, step: types.EnvStep, first: np.ndarray) -> None:
        """Adds one observation of each given environment; ignores rows that are not shown. See `Episodes.record`."""
        if step.shown is not None:
            slots, first, step = slots[step.shown], first[step.shown], step.those(step.shown)
        self.num_steps += int(np.count_nonzero(~first))
        rows = {int(slot): row for row, slot in enumerate(slots)} if step.info else {}
        for episode in self._running.record(slots, step.reward, first, step.final, step.tasks):
            if self._left[episode.slot] > 0:
                self._left[episode.slot] -= 1
                info = infos.of(step.info, rows[episode.slot]) if rows else {}
                self.finished.append(episode._replace(info=info))
        if self._games:
            self._skip(slots.tolist(), slots[~step.final].tolist())
        for row in np.flatnonzero((self._running.length[slots] >= self._max_steps) & ~step.final):
            slot = int(slots[row])
            if self._left[slot] > 0:
                self.num_expected -= self._left[slot] - 1
                self._left[slot] = 0
                self._cut_off += 1
                task = 0 if step.tasks is None else int(step.tasks[row])
                self.finished.append(self._running.so_far(slot, task))

    def _skip(self, shown: Sequence[int], moving: Sequence[int]) -> None:
        """Takes a game that is over from the quota of each seat without a row in it, because it has no episode."""
        self._seen.update(shown)
        over = {self._games[slot] for slot in shown} - {self._games[slot] for slot in moving}
        for slot in (slot for slot, game in self._games.items() if game in over):
            if slot not in self._seen and self._left[slot]:
                self._left[slot] -= 1
                self.num_expected -= 1
            self._seen.discard(slot)

    def hurry(self) -> None:
        """Lowers the limit of steps to the longest finished episode's.

        Without one, episodes end at their next step.
        """
        self._max_steps = min(self._max_steps, max((episode.length for episode in self.finished), default=1))

    @property
    def num_finished(self) -> int:
        return len(self.finished)

    @property
    def state(self) -> str:
        """The progress for the user: episodes so far, and the steps of the longest one in progress.

        Any thread may ask.
        """
        longest = max((int(self._running.length[slot]) for slot, left in self._left.items() if left), default=0)
        steps = f", {longest:,} steps into the longest" if longest else ""
        return f"{self.num_finished} of {self.num_expected} episodes{steps}"

    @property
    def done(self) -> bool:
        """Whether every environment has played its quota."""
        return not any(self._left.values())

    def result(self) -> Scores:
        """Returns the statistics of the finished episodes. There must be at least one."""
        played = [(name, [x.total for x in self.finished if x.task == task]) for task, name in enumerate(self.tasks)]
        means = {name: float(np.mean(returns)) for name, returns in played if returns}
        unfinished = sum(self._left.values())
        names = sorted({name for episode in self.finished for name in episode.info})
        of_name = {name: [x.info[name] for x in self.finished if name in x.info] for name in names[: infos.MAX_INFOS]}
        info = {name: float(np.mean(values)) for name, values in of_name.items()}
        found = summarize(self.finished)
        return dataclasses.replace(found, task_returns=means, info=info, cut_off=self._cut_off, unfinished=unfinished)


def with_error(found: Mapping[str, Any], num_seats: int = 0) -> dict[str, Any]:
    """Adds `stderr_return`, the standard error of the mean return, to statistics of more than one episode.

    Episodes count as independent samples. In a game with `num_seats` rows all rows count as one sample, as if its
    agents always had the same return.
    """
    number = found["episodes"] // max(1, num_seats)
    return {**found, **({"stderr_return": found["std_return"] / math.sqrt(number - 1)} if number > 1 else {})}


def cancel_out(finished: Sequence[Episode], slots: np.ndarray, policies: Sequence[str]) -> bool:
    """Returns whether returns sum to zero in every game of several agents, so that their mean tells nothing.

    slots: [E] of whole games. policies: [S] the policy of each agent of a game; of two policies the means are summed.
    """
    totals: dict[int, list[float]] = {int(slot): [] for slot in slots}
    for episode in finished:
        totals[episode.slot].append(episode.total)
    games = np.array_split(slots, len(slots) // len(policies))
    rows = np.array([row for game in games for row in zip(*(totals[int(slot)] for slot in game), strict=False)])
    names = sorted(set(policies))
    if len(rows) and len(names) == 2:
        rows = np.stack([rows[:, np.array(policies) == name].mean(axis=1) for name in names], axis=1)
    return len(rows) > 0 and bool(np.all(np.abs(rows.sum(axis=1)) <= _ROUNDING * np.abs(rows).sum(axis=1)))


def summarize(episodes: Sequence[Any]) -> Scores:
    """Returns the statistics of at least one episode or game, from its `total` and `length`."""
    returns = np.array([episode.total for episode in episodes])
    return Scores(
        episodes=len(returns),
        mean_return=float(returns.mean()),
        std_return=float(returns.std()),
        min_return=float(returns.min()),
        max_return=float(returns.max()),
        mean_length=float(np.mean([episode.length for episode in episodes])),
    )
