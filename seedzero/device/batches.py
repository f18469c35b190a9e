"""A padded acting batch from workers' messages.

`assemble` packs messages into fresh arrays (the device may still read a buffer that it was handed), each shard's rows
padded to one of a few compiled sizes.
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
    """Slots on the devices of a place; every shard holds equal parts of both kinds.

    Global slots are numbered in the whole run: first those of training, behind them those of evaluation.
    """

    num_shards: int  # devices that share the slots
    num_train: int  # training slots over all shards
    num_evaluate: int  # evaluation slots over all shards
    numbers: np.ndarray | None = None
    """[S] of a run with several places: number here of each global training slot, -1: it is elsewhere. None: the same
    numbers."""

    @property
    def num_slots(self) -> int:
        """Training slots of the run, in all its places."""
        return self.num_train if self.numbers is None else len(self.numbers)

    @property
    def is_here(self) -> np.ndarray:
        """[S] bool, true: the training slot lies in this place."""
        return np.ones(self.num_train, bool) if self.numbers is None else self.numbers >= 0

    def own(self, chosen: np.ndarray) -> np.ndarray:
        """Returns a property [S] of global training slots for the rings of this place, [num_train]."""
        if self.numbers is None:
            return chosen
        found = np.empty(self.num_train, chosen.dtype)
        found[self.numbers[self.is_here]] = chosen[self.is_here]
        return found

    def ring(self, slots: np.ndarray) -> np.ndarray:
        """Returns the numbers [B] here of global slots [B] of this place: a training slot's is that of its ring."""
        if self.numbers is None:
            return slots
        behind = slots - len(self.numbers)
        return np.where(behind >= 0, self.num_train + behind, self.numbers[np.minimum(slots, len(self.numbers) - 1)])

    @property
    def train_per_shard(self) -> int:
        """Rings of a shard."""
        return self.num_train // self.num_shards

    @property
    def slots_per_shard(self) -> int:
        """Memory rows of a shard; also the local slot of padding rows, out of range everywhere."""
        return (self.num_train + self.num_evaluate) // self.num_shards

    def place(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns shard [B] and local slot [B] of global slots [B], all int; evaluation slots lie behind the rings."""
        slots = self.ring(slots)
        evaluate_per_shard = max(1, self.num_evaluate // self.num_shards)
        train = slots < self.num_train
        shard = np.where(train, slots // self.train_per_shard, (slots - self.num_train) // evaluate_per_shard)
        evaluate = self.train_per_shard + (slots - self.num_train) % evaluate_per_shard
        return shard, np.where(train, slots % self.train_per_shard, evaluate)

    def number(self, local: jax.Array, shard: jax.Array) -> jax.Array:
        """Returns the numbers [B] of local slots [B] on a shard: one of each shard in turn, evaluation slots last.

        The roster fills them in this order: the first N environments have the numbers 0 .. N - 1 on any devices.
        """
        return local * self.num_shards + shard


def plan(config: configs.Config, num_shards: int, *, has_seats: bool = False) -> tuple[Layout, tuple[int, ...]]:
    """Returns the places of slots, and the rows a shard of the compiled acting batches, ascending.

    Automatic values of the configuration are resolved. In a league each mover has a call with its part of a group's
    rows, of seats those with a turn are shown, and half a group padded to a whole would cost as much as that: sizes go
    down to a quarter of a group.
    """
    max_rows = -(-config.batcher.max_batch // num_shards)
    min_rows = -(-config.worker.envs_per_group // (num_shards * (4 if config.league.on or has_seats else 1)))
    evaluation = config.evaluation
    num_evaluate = min(evaluation.num_envs, evaluation.episodes, max_rows * num_shards)
    num_evaluate = -(-num_evaluate // num_shards) * num_shards if evaluation.every_updates else 0
    deterministic = config.run.deterministic
    if deterministic:  # all act together, and fill the shards one after the other
        max_rows = max(max_rows, min(config.replay.num_slots // num_shards, config.worker.num_envs))
    sizes = (max_rows,) if deterministic else batch_sizes(max_rows, min_rows, num_evaluate // num_shards)
    return Layout(num_shards, config.replay.num_slots, num_evaluate), sizes


class Message(NamedTuple):
    """A group's newest observations, waiting for actions; where rows are seats, those of the shown rows alone."""

    request: messages.StepRequest  # as the server checked it
    slots: np.ndarray  # [E] int32 global slots of the environments
    arrived: float  # clock reading in seconds
    seating: Seats | None = None  # where rows are seats

    @property
    def first_slot(self) -> int:
        """The group's first slot, which names it."""
        return int(self.slots[0] if self.seating is None else self.seating.first_slot)

    @property
    def num_envs(self) -> int:
        """Rows of the group."""
        return len(self.slots if self.seating is None else self.seating.shown)

    @property
    def games(self) -> np.ndarray:
        """[E] int32, the slot of the first row of each row's game, which names it."""
        return self.slots if self.seating is None else self.seating.games

    def answer(self, actions: np.ndarray) -> tuple[messages.StepRequest, np.ndarray]:
        """Returns the worker's request and the actions of all its rows, given the message's; others are 0."""
        if self.seating is None:
            return self.request, actions
        found = np.zeros((self.num_envs, *actions.shape[1:]), actions.dtype)
        found[self.seating.shown] = actions
        return self.seating.request, found


class Seats(NamedTuple):
    """The places of a message's rows, where rows are seats."""

    shown: np.ndarray  # [rows of the group] bool, true: the row is one of the message's
    games: np.ndarray  # as `Message.games`
    first_slot: int
    request: messages.StepRequest  # with all rows of the group


def seated(request: messages.StepRequest, slots: np.ndarray, arrived: float, num_seats: int) -> Message:
    """Returns the message of a group's slots [rows], which are seats; num_seats: rows of a game."""
    shown, step = request.step.shown, request.step
    if shown is None:
        shown = np.ones(len(slots), bool)
    else:
        step = step.those(shown)
    games = np.repeat(slots[::num_seats], num_seats)
    seating = Seats(shown, games[shown], int(slots[0]), request)
    return Message(request._replace(step=step, first=request.first[shown]), slots[shown], arrived, seating)


class Batch(NamedTuple):
    """Rows of environments for acting: R of one call, or before that N from messages, one after the other (`join`).

    A call of training has D shards with n rows each (R = D * n), padding included; one of a saved agent has its
    environments alone. What a call does not need is None.
    """

    slot: Any  # [R] int32, local; out of range for padding. Before a call [N], global
    reward: Any  # [R] float32
    first: Any  # [R] bool, true: first observation of an episode or run; true for padding
    observation: Any = None  # [R, *observation_shape] of the spec's dtype; before a call None: messages have them
    action_mask: Any = None  # [R, A] bool, true: legal; all true for padding; before a call None without masks
    action_mode: Any = None  # [R] int8, mode of acting: EXPLORE in training, `EnvSpec.default_mode` in evaluations
    terminated: Any = None  # [R] bool; None: evaluations, whose steps nobody learns from
    truncated: Any = None  # [R] bool
    task: Any = None  # [R] int32, place in `EnvSpec.tasks`; None: 0 everywhere
    ring: Any = None  # [R] int32, local; out of range for rows that are not stored: evaluation's, and padding
    group: Any = None  # [N] int32, the first slot of a row's group
    game: Any = None  # [N] int32, the slot of the first row of a row's game; of environments the row's own
    mover: Any = None  # [N] the player to move, 0 or 1; None: players alternate
    num_updates: Any = None  # scalar, of the acting parameters; None: 0
    own: Any = None  # scalar bool, as of `base.Inputs`; None: true
    # [R] int32, the action that led to the row, where no call of this run chose it; -1: one did. None: everywhere
    played: Any = None

    @property
    def final(self) -> np.ndarray:
        """[N] bool, true: last observation of an episode."""
        final: np.ndarray = self.terminated | self.truncated
        return final

    def those(self, chosen: np.ndarray) -> Batch:
        """Returns chosen rows, [N] bool."""
        return Batch(*(None if array is None else array[chosen] for array in self))


def join(messages: Sequence[Message], spec: types.EnvSpec | None = None) -> Batch:
    """Returns the rows of messages, at least one, without their observations.

    spec: of the environments; None: they are known to have one player, or two who alternate.
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
    """Packs rows of messages into the smallest sufficient compiled size.

    Args:
      joined: the rows of these messages.
      mine: [N] bool, true: the row belongs to the call; None: all do.
      action_mode: of all rows, as in `Batch`.
      stored: the rows go into rings, but those of evaluations.
      amends: as of `padding`.

    Returns the call's batch, and [B] int64 the place of each row in it, in the order of the messages.
    """
    chosen: slice | np.ndarray = slice(None) if mine is None else mine
    shard, local = layout.place(joined.slot[chosen])
    rank = np.zeros(len(shard), np.int64)  # how many rows before it lie on the same shard
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
    for frames in (message.request.step.observation for message in messages):  # not joined first: they are large
        kept = frames if mine is None else frames[mine[end : end + len(frames)]]
        batch.observation[rows[start : start + len(kept)]] = kept
        start, end = start + len(kept), end + len(frames)
    return batch, rows


def batch_sizes(max_rows: int, min_rows: int, evaluation_rows: int) -> tuple[int, ...]:
    """Returns the compiled rows a shard, ascending: the maximum and its halves down to `min_rows`.

    Before these comes `evaluation_rows`, if there are any and more than half of an evaluation's call would be padding.
    """
    sizes = [max_rows]
    while sizes[-1] // 2 >= max(1, min_rows):
        sizes.append(sizes[-1] // 2)
    if 0 < evaluation_rows < sizes[-1] / 2:
        sizes.append(evaluation_rows)
    return tuple(reversed(sizes))


def padding(spec: types.EnvSpec, layout: Layout, num_rows: int, *, amends: bool = False) -> Batch:
    """Returns a batch of padding alone: for compilation. num_rows: of each shard. amends: as of `setups.Setup`."""
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
