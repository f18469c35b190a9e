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


# Scores of a random player and of a human on 57 Atari games and on the 30 levels of DMLab-30.
#
# Atari, of a professional human: Mnih et al. 2015, "Human-level control through deep reinforcement learning", extended
# data table 2, and Badia et al. 2020, "Agent57", appendix H.4; evaluated with up to 30 no-ops at the start and at most
# 108,000 frames. DMLab-30: Espeholt et al. 2018, "IMPALA", reference scores of the appendix; of the test version where
# a level has two.
_ATARI = """
alien                227.8   7127.7   amidar                 5.8   1719.5   assault              222.4    742.0
asterix              210.0   8503.3   asteroids            719.1  47388.7   atlantis           12850.0  29028.1
bank_heist            14.2    753.1   battle_zone         2360.0  37187.5   beam_rider           363.9  16926.5
berzerk              123.7   2630.4   bowling               23.1    160.7   boxing                 0.1     12.1
breakout               1.7     30.5   centipede           2090.9  12017.0   chopper_command      811.0   7387.8
crazy_climber      10780.5  35829.4   defender            2874.5  18688.9   demon_attack         152.1   1971.0
double_dunk          -18.6    -16.4   enduro                 0.0    860.5   fishing_derby        -91.7    -38.7
freeway                0.0     29.6   frostbite             65.2   4334.7   gopher               257.6   2412.5
gravitar             173.0   3351.4   hero                1027.0  30826.4   ice_hockey           -11.2      0.9
jamesbond             29.0    302.8   kangaroo              52.0   3035.0   krull               1598.0   2665.5
kung_fu_master       258.5  22736.3   montezuma_revenge      0.0   4753.3   ms_pacman            307.3   6951.6
name_this_game      2292.3   8049.0   phoenix              761.4   7242.6   pitfall             -229.4   6463.7
pong                 -20.7     14.6   private_eye           24.9  69571.3   qbert                163.9  13455.0
riverraid           1338.5  17118.0   road_runner           11.5   7845.0   robotank               2.2     11.9
seaquest              68.4  42054.7   skiing            -17098.1  -4336.9   solaris             1236.3  12326.7
space_invaders       148.0   1668.7   star_gunner          664.0  10250.0   surround             -10.0      6.5
tennis               -23.8     -8.3   time_pilot          3568.0   5229.2   tutankham             11.4    167.6
up_n_down            533.4  11693.2   venture                0.0   1187.5   video_pinball      16256.9  17667.9
wizard_of_wor        563.5   4756.5   yars_revenge        3092.9  54576.9   zaxxon                32.5   9173.3
"""
_DMLAB = """
rooms_collect_good_objects_train        0.073      10  rooms_exploit_deferred_effects_train    8.501   85.65
rooms_select_nonmatching_object         0.312    65.9  rooms_watermaze                         4.065      54
rooms_keys_doors_puzzle                 4.135    53.8  language_select_described_object        -0.07   389.5
language_select_located_object          1.929   280.7  language_execute_random_task           -5.913  254.05
language_answer_quantitative_question   -0.33   184.5  lasertag_one_opponent_small            -0.224   12.65
lasertag_three_opponents_small         -0.214   18.55  lasertag_one_opponent_large            -0.083    18.6
lasertag_three_opponents_large         -0.102    31.5  natlab_fixed_large_map                  2.173    36.9
natlab_varying_map_regrowth             2.989   24.45  natlab_varying_map_randomized           7.346   42.35
skymaze_irreversible_path_hard            0.1     100  skymaze_irreversible_path_varied         14.4     100
psychlab_arbitrary_visuomotor_mapping   0.163   58.75  psychlab_continuous_recognition         0.224    58.3
psychlab_sequential_comparison          0.129    39.5  psychlab_visual_search                  0.085    78.5
explore_object_locations_small          3.575   74.45  explore_object_locations_large          4.673   65.65
explore_obstructed_goals_small           6.76     206  explore_obstructed_goals_large           2.61   119.5
explore_goal_locations_small             7.66   267.5  explore_goal_locations_large             3.14   194.5
explore_object_rewards_few              2.073    77.7  explore_object_rewards_many             2.438   106.7
"""


def _read(table: str) -> Mapping[str, tuple[float, float]]:
    rows = np.reshape(table.split(), (-1, 3)).tolist()
    return {name: (float(random), float(human)) for name, random, human in rows}


SCORES = _read(_ATARI)
"""Game -> mean returns of a random player and of a human."""
DMLAB_SCORES = _read(_DMLAB)
"""Level, by the name of its training version -> mean returns of a random player and of a human."""

_BY_KEY = {game.replace("_", ""): scores for game, scores in SCORES.items()}


def normalized(game: str, score: float) -> float | None:
    """Returns the human-normalized score, 0 for a random player and 1 for a human; None for other games.

    Args:
      game: the environment's id, or its name: a game in CamelCase or snake_case, or a level.
      score: mean undiscounted, unclipped return of whole games.
    """
    key = game.removeprefix("atari:").replace("_", "").lower()
    found = _BY_KEY.get(key) or DMLAB_SCORES.get(game.removeprefix("dmlab:"))
    if found is None:
        return None
    random, human = found
    return (score - random) / (human - random)


def human_score_of(env_id: str, result: Scores) -> float | None:
    """Returns the human-normalized score of an evaluation, or None without known human scores.

    For several tasks this is the mean of their scores, each capped at 1 (Espeholt et al. 2018), or None if a level of
    DMLab-30 was not played.
    """
    if not result.task_returns:
        return normalized(env_id, result.mean_return)
    if result.task_returns.keys() != DMLAB_SCORES.keys():
        return None
    scores = [normalized(name, mean_return) for name, mean_return in result.task_returns.items()]
    return float(np.mean([min(score, 1.0) for score in scores if score is not None]))
