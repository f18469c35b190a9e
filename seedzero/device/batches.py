"""Packs workers' messages into padded batches for acting.

`assemble` fills new arrays, because the device may still be reading the last ones, and pads each shard's rows to one
of a few compiled sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from seedzero.config import configs
from seedzero.core import types
from seedzero.transport import messages


class Layout(NamedTuple):
    """How slots are divided between the devices of a place; every shard has equally many of both kinds.

    Global slots are numbered over the whole run: training slots first, then those of evaluation.
    """

    num_shards: int  # number of devices that share the slots
    num_train: int  # training slots over all shards
    num_evaluate: int  # evaluation slots over all shards
    numbers: np.ndarray | None = None
    """[S] the number in this place of each global training slot, or -1 if it is in another place. None: the numbers
    are equal, because the run has one place."""

    @property
    def num_slots(self) -> int:
        """Training slots of the run in all its places."""
        return self.num_train if self.numbers is None else len(self.numbers)

    @property
    def is_here(self) -> np.ndarray:
        """[S] bool, true if the training slot is in this place."""
        return np.ones(self.num_train, bool) if self.numbers is None else self.numbers >= 0

    def own(self, chosen: np.ndarray) -> np.ndarray:
        """Selects from values [S] of all training slots those of this place's rings, [num_train]."""
        if self.numbers is None:
            return chosen
        found = np.empty(self.num_train, chosen.dtype)
        found[self.numbers[self.is_here]] = chosen[self.is_here]
        return found

    def ring(self, slots: np.ndarray) -> np.ndarray:
        """Returns this place's numbers [B] of global slots [B]; a training slot's is that of its ring."""
        if self.numbers is None:
            return slots
        behind = slots - len(self.numbers)
        return np.where(behind >= 0, self.num_train + behind, self.numbers[np.minimum(slots, len(self.numbers) - 1)])

    @property
    def train_per_shard(self) -> int:
        """Number of rings in a shard."""
        return self.num_train // self.num_shards

    @property
    def slots_per_shard(self) -> int:
        """Number of memory rows in a shard; as a slot, it marks padding rows, because it is out of range."""
        return (self.num_train + self.num_evaluate) // self.num_shards

    def place(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns shard [B] and local slot [B] of global slots [B], all int; evaluation slots follow the rings."""
        slots = self.ring(slots)
        evaluate_per_shard = max(1, self.num_evaluate // self.num_shards)
        train = slots < self.num_train
        shard = np.where(train, slots // self.train_per_shard, (slots - self.num_train) // evaluate_per_shard)
        evaluate = self.train_per_shard + (slots - self.num_train) % evaluate_per_shard
        return shard, np.where(train, slots % self.train_per_shard, evaluate)

    def number(self, local: jax.Array, shard: jax.Array) -> jax.Array:
        """Returns the numbers [B] of a shard's local slots [B]: they alternate between shards, evaluation slots last.

        The roster fills slots in this order, so the first N environments have the numbers 0 .. N - 1 on any devices.
        """
        return local * self.num_shards + shard


def plan(config: configs.Config, num_shards: int, *, has_seats: bool = False) -> tuple[Layout, tuple[int, ...]]:
    """Returns the layout of slots, and the sizes of compiled acting batches, ascending, in rows of a shard.

    Automatic values of the configuration must be resolved. In a league each mover has its own call with a part of a
    group's rows, and of seats only those with a turn are shown. Half a group padded to a whole one would cost as much,
    so sizes go down to a quarter of a group.
    """
    max_rows = -(-config.batcher.max_batch // num_shards)
    min_rows = -(-config.worker.envs_per_group // (num_shards * (4 if config.league.on or has_seats else 1)))
    evaluation = config.evaluation
    num_evaluate = min(evaluation.num_envs, evaluation.episodes, max_rows * num_shards)
    num_evaluate = -(-num_evaluate // num_shards) * num_shards if evaluation.every_updates else 0
    deterministic = config.run.deterministic
    if deterministic:  # all environments act together, and fill one shard after the other
        max_rows = max(max_rows, min(config.replay.num_slots // num_shards, config.worker.num_envs))
    sizes = (max_rows,) if deterministic else batch_sizes(max_rows, min_rows, num_evaluate // num_shards)
    return Layout(num_shards, config.replay.num_slots, num_evaluate), sizes


class Message(NamedTuple):
    """A group's newest observations, which wait for actions; if rows are seats, only of those with a turn."""

    request: messages.StepRequest  # as the server has checked it
    slots: np.ndarray  # [E] int32 global slots of the environments
    arrived: float  # reading of the clock in seconds
    seating: Seats | None = None  # None unless rows are seats

    @property
    def first_slot(self) -> int:
        """The group's first slot, which identifies the group."""
        return int(self.slots[0] if self.seating is None else self.seating.first_slot)

    @property
    def num_envs(self) -> int:
        """Number of rows in the group, shown or not."""
        return len(self.slots if self.seating is None else self.seating.shown)

    @property
    def games(self) -> np.ndarray:
        """[E] int32, the slot of the first row in each row's game, which identifies the game."""
        return self.slots if self.seating is None else self.seating.games

    def answer(self, actions: np.ndarray) -> tuple[messages.StepRequest, np.ndarray]:
        """Returns the worker's request and actions for all its rows, with 0 for those that the message lacks."""
        if self.seating is None:
            return self.request, actions
        found = np.zeros((self.num_envs, *actions.shape[1:]), actions.dtype)
        found[self.seating.shown] = actions
        return self.seating.request, found


class Seats(NamedTuple):
    """Which rows of a group a message shows, if rows are seats."""

    shown: np.ndarray  # [rows of the group] bool, true if the message shows the row
    games: np.ndarray  # as `Message.games`
    first_slot: int
    request: messages.StepRequest  # the worker's request with all rows of the group


def seated(request: messages.StepRequest, slots: np.ndarray, arrived: float, num_seats: int) -> Message:
    """Returns the message for a group's slots [rows], which are seats. num_seats: rows of each game."""
    shown, step = request.step.shown, request.step
    if shown is None:
        shown = np.ones(len(slots), bool)
    else:
        step = step.those(shown)
    games = np.repeat(slots[::num_seats], num_seats)
    seating = Seats(shown, games[shown], int(slots[0]), request)
    return Message(request._replace(step=step, first=request.first[shown]), slots[shown], arrived, seating)


class Batch(NamedTuple):
    """Rows of environments for acting: the R rows of one call, or before it the N rows of several messages (`join`).

    A training call has D shards with n rows each (R = D * n), including padding; a saved agent's call has exactly its
    environments. Fields that a call does not need are None.
    """

    slot: Any  # [R] int32, local, out of range for padding; before a call [N], global
    reward: Any  # [R] float32
    first: Any  # [R] bool, true at the first observation of an episode or run, and for padding
    # [R, *observation_shape] of the spec's dtype; None before a call, because the messages have them
    observation: Any = None
    action_mask: Any = None  # [R, A] bool, true means legal, and for padding; before a call None without masks
    action_mode: Any = None  # [R] int8: EXPLORE in training, `EvaluationConfig.mode` in evaluations
    terminated: Any = None  # [R] bool; None in evaluations, because nobody learns from their steps
    truncated: Any = None  # [R] bool
    task: Any = None  # [R] int32, index in `EnvSpec.tasks`; None: 0 everywhere
    ring: Any = None  # [R] int32, local; out of range for rows that are not stored: padding, and evaluations
    group: Any = None  # [N] int32, first slot of each row's group
    game: Any = None  # [N] int32, slot of the first row in each row's game; without seats, its own slot
    mover: Any = None  # [N] the player to move, 0 or 1; None: players alternate
    num_updates: Any = None  # scalar, updates of the acting parameters; None: 0
    own: Any = None  # scalar bool, as in `base.Inputs`; None: true
    # [R] int32, the action that led to the row if no call of this run chose it, else -1; None: -1 everywhere
    played: Any = None

    @property
    def final(self) -> np.ndarray:
        """[N] bool, true at the last observation of an episode."""
        final: np.ndarray = self.terminated | self.truncated
        return final

    def those(self, chosen: np.ndarray) -> Batch:
        """Returns the rows where `chosen`, [N] bool, is true."""
        return Batch(*(None if array is None else array[chosen] for array in self))


def join(messages: Sequence[Message], spec: types.EnvSpec | None = None) -> Batch:
    """Joins the rows of one or more messages, without their observations.

    spec: the environments'; None if they are known to have one player, or two who alternate.
    """
    steps = [message.request.step for message in messages]
    masks = [step.action_mask for step in steps if step.action_mask is not None]
    played = None
    if any(step.played is not None for step in steps):
        nothing = [np.full(len(step.reward), -1, np.int32) if step.played is None else step.played for step in steps]
        played = np.concatenate(nothing)
    return Batch(
        slot=np.concatenate([message.slots for message in messages]),
        reward=np.concatenate([step.reward for step in steps]),
        first=np.concatenate([message.request.first for message in messages]),
        action_mask=np.concatenate(masks) if masks else None,
        terminated=np.concatenate([step.terminated for step in steps]),
        truncated=np.concatenate([step.truncated for step in steps]),
        task=np.concatenate([step.tasks for step in steps]),
        group=np.repeat([message.first_slot for message in messages], [len(message.slots) for message in messages]),
        game=np.concatenate([message.games for message in messages]),
        mover=np.concatenate([spec.movers(step.observation) for step in steps]) if spec and spec.moves_again else None,
        played=played,
    )


def assemble(
    messages: Sequence[Message],
    joined: Batch,
    mine: np.ndarray | None,
    spec: types.EnvSpec,
    layout: Layout,
    sizes: Sequence[int],
    action_mode: np.int8,
    *,
    stored: bool = True,
    amends: bool = False,
) -> tuple[Batch, np.ndarray]:
    """Packs rows of messages into the smallest compiled size that is sufficient.

    Args:
      joined: the rows of these messages.
      mine: [N] bool, true if the row belongs to the call; None: all do.
      action_mode: mode of all rows, as in `Batch`.
      stored: whether training rows go into rings.
      amends: as in `padding`.

    Returns the call's batch, and the place of each row in it, [B] int64, in the order of the messages.
    """
    chosen: slice | np.ndarray = slice(None) if mine is None else mine
    shard, local = layout.place(joined.slot[chosen])
    rank = np.zeros(len(shard), np.int64)  # number of earlier rows on the same shard
    for index in range(layout.num_shards):
        here = shard == index
        rank[here] = np.arange(np.count_nonzero(here))
    num_rows = next(size for size in sizes if size > rank.max())
    rows, batch = shard * num_rows + rank, padding(spec, layout, num_rows, amends=amends)

    batch.slot[rows] = local
    if stored:
        batch.ring[rows] = np.minimum(local, layout.train_per_shard)
    batch.reward[rows] = joined.reward[chosen]
    batch.terminated[rows] = joined.terminated[chosen]
    batch.truncated[rows] = joined.truncated[chosen]
    batch.first[rows] = joined.first[chosen]
    batch.task[rows] = joined.task[chosen]
    if amends and joined.played is not None:
        batch.played[rows] = joined.played[chosen]
    batch.action_mode[:] = action_mode
    if spec.has_action_mask:
        batch.action_mask[rows] = joined.action_mask[chosen]
    start = end = 0
    # frames are not joined first, because they are large
    for frames in (message.request.step.observation for message in messages):
        kept = frames if mine is None else frames[mine[end : end + len(frames)]]
        batch.observation[rows[start : start + len(kept)]] = kept
        start, end = start + len(kept), end + len(frames)
    return batch, rows


def batch_sizes(max_rows: int, min_rows: int, evaluation_rows: int) -> tuple[int, ...]:
    """Returns the compiled sizes in rows of a shard, ascending: the maximum and its halves down to `min_rows`.

    `evaluation_rows`, if there are any, is added as the smallest if evaluations would otherwise be more than half
    padding.
    """
    sizes = [max_rows]
    while sizes[-1] // 2 >= max(1, min_rows):
        sizes.append(sizes[-1] // 2)
    if 0 < evaluation_rows < sizes[-1] / 2:
        sizes.append(evaluation_rows)
    return tuple(reversed(sizes))


def padding(spec: types.EnvSpec, layout: Layout, num_rows: int, *, amends: bool = False) -> Batch:
    """Returns a batch that is only padding, for compilation. num_rows: of each shard. amends: as in `setups.Setup`."""
    total = layout.num_shards * num_rows
    return Batch(
        slot=np.full(total, layout.slots_per_shard, np.int32),
        ring=np.full(total, layout.train_per_shard, np.int32),
        observation=np.zeros((total, *spec.observation_shape), spec.observation_dtype),
        reward=np.zeros(total, np.float32),
        terminated=np.zeros(total, bool),
        truncated=np.zeros(total, bool),
        first=np.ones(total, bool),
        action_mask=np.ones((total, spec.num_actions), bool),
        action_mode=np.full(total, types.GREEDY),
        task=np.zeros(total, np.int32),
        played=np.full(total, -1, np.int32) if amends else None,
    )
