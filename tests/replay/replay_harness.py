"""Rings with rows that tell their own number, and the same histories as plain lists."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.core import types
from seedzero.replay import ring_store, sampling, sources, windowing

STORED = {
    "action": sources.Stored((), np.dtype(np.int32)),
    "policy": sources.Stored((2,), np.dtype(np.float32)),
}
ONE_ROW = sources.Replay(length=1, observe=(0,))
PADDING = 1_000


def spec(shape: tuple[int, ...] = (1,), dtype: str = "int32") -> types.EnvSpec:
    return types.EnvSpec(observation_shape=shape, observation_dtype=dtype, num_actions=2)


def create(num_slots: int, length: int, **options: Any) -> ring_store.Rings:
    return ring_store.create(spec(), STORED, num_slots, length, **options)


@functools.cache
def jitted_write(stack: int) -> Any:
    return jax.jit(functools.partial(ring_store.write, stack=stack), donate_argnums=0)


@functools.cache
def jitted_sample(
    batch_size: int,
    replay: sources.Replay = ONE_ROW,
    *,
    capacity: int = 1_000,
    stack: int = 1,
    lag: int = 0,
) -> Any:
    """Returns the jitted function to windows with their frames."""

    def sample(
        stored: ring_store.Rings,
        key: jax.Array,
        num_inserts: jax.Array | int = 0,
        beta: float | None = None,
        least: float = 0.0,
    ) -> windowing.Windows:
        drawn = sampling.sample(
            stored,
            key,
            batch_size,
            replay,
            stack=stack,
            num_inserts=jnp.asarray(num_inserts, jnp.int32),
            capacity=capacity,
            lag=lag,
            beta=beta,
            least=least,
        )
        return windowing.read(stored, drawn)

    return jax.jit(sample)


def sample(rings: ring_store.Rings, batch_size: int, seed: int = 0, **options: Any) -> windowing.Windows:
    """Returns windows with their frames, as numpy's arrays; options of `jitted_sample` and of its function."""
    given = {name: options.pop(name) for name in ("num_inserts", "beta", "least") if name in options}
    drawn = jitted_sample(batch_size, **options)(rings, jax.random.key(seed), **given)
    found: windowing.Windows = jax.tree.map(np.asarray, drawn)
    return found


def counts(drawn: windowing.Windows, shape: tuple[int, int]) -> np.ndarray:
    """Returns how often windows begin at each row [S, T]."""
    found = np.zeros(shape, np.int64)
    np.add.at(found, (drawn.slot, drawn.time), 1)
    return found


@functools.cache
def jitted_look(length: int, observe: tuple[int, ...], stack: int, crosses_episodes: bool) -> Any:
    """Returns the jitted function to the windows at some places, with their frames."""

    def look(replay: ring_store.Rings, slot: jax.Array, time: jax.Array) -> windowing.Windows:
        options: Any = {"length": length, "observe": observe, "stack": stack, "crosses_episodes": crosses_episodes}
        return windowing.read(replay, windowing.at(replay, slot, time, **options))

    return jax.jit(look)


def weighted(weight: Any) -> ring_store.Rings:
    """Returns prioritized rings whose rows [S, T] have these weights, and have all been written."""
    weight = jnp.asarray(weight, jnp.float32)
    replay = ring_store.create(spec(), {}, *weight.shape, prioritized=True)
    return replay._replace(weight=weight, cursor=jnp.full(weight.shape[0], weight.shape[1], jnp.int32))


def put(
    replay: ring_store.Rings,
    number: int,
    *,
    slot: int = 0,
    first: bool = False,
    terminated: bool = False,
    truncated: bool = False,
    num_inserts: int = 0,
    stack: int = 1,
) -> ring_store.Rings:
    """Writes one row that is recognised by `number` into one slot."""
    row = ring_store.Row(
        observation=np.full((1, *replay.observation.shape[2:]), number, replay.observation.dtype),
        reward=np.array([number / 10], np.float32),
        terminated=np.array([terminated]),
        truncated=np.array([truncated]),
        first=np.array([first]),
        stored={
            "action": np.array([number % 7], np.int32),
            "policy": np.array([[number, -number]], np.float32),
        },
    )
    written: ring_store.Rings = jitted_write(stack)(replay, np.array([slot], np.int32), row, np.int32(num_inserts))
    return written


def history(
    replay: ring_store.Rings,
    *numbers: int,
    first: Collection[int] = (),
    terminated: Collection[int] = (),
    truncated: Collection[int] = (),
    num_inserts: Callable[[int], int] = lambda number: 0,
    **options: int,
) -> ring_store.Rings:
    """Writes a row for each number; those named begin or end an episode."""
    for number in numbers:
        flags = {"first": number in first, "terminated": number in terminated, "truncated": number in truncated}
        replay = put(replay, number, num_inserts=num_inserts(number), **flags, **options)  # type: ignore[arg-type]
    return replay


def weights(replay: ring_store.Rings, slot: int = 0) -> list[float]:
    return [float(weight) for weight in np.asarray(replay.weight)[slot]]


def window(
    replay: ring_store.Rings,
    time: int,
    *,
    length: int,
    observe: tuple[int, ...] = (0,),
    stack: int = 1,
    crosses_episodes: bool = False,
) -> Any:
    """Returns one window with its frames, as numpy's arrays without the axis of the batch."""
    look = jitted_look(length, observe, stack, crosses_episodes)
    found = look(replay, np.array([0]), np.array([time]))
    return jax.tree.map(lambda x: np.asarray(x)[0], found)


def frames(found: Any) -> Any:
    """Returns the observations of windows."""
    return found.observation[types.OBSERVATION]


@dataclasses.dataclass
class Record:
    """One row as the reference keeps it."""

    number: int
    terminated: bool = False
    truncated: bool = False
    first: bool = False
    episode: int = 0
    session: int = 0  # rows that no cut separates
    inserted_at: int = -1
    has_transition: bool = False


class Reference:
    """Histories as plain lists of episodes' rows, nothing overwritten."""

    def __init__(self, num_slots: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.slots: list[list[Record]] = [[] for _ in range(num_slots)]
        self.number = 0
        self.num_inserts = 0

    def step(self) -> tuple[list[int], list[Record]]:
        """Appends a row to a few slots; returns the slots and rows."""
        chosen = self.random.sample(range(len(self.slots)), self.random.randint(1, len(self.slots)))
        rows, inserts = [], 0
        for slot in chosen:
            history = self.slots[slot]
            before = history[-1] if history else None
            lost = self.random.random() < 0.05
            first = before is None or before.terminated or before.truncated or lost
            ends = self.random.random()
            row = Record(self.number, not first and ends < 0.1, not first and 0.1 <= ends < 0.2, first)
            row.episode = (before.episode if before else 0) + first
            row.session = (before.session if before else 0) + self._is_cut(before, first)
            self.number += 1
            if before and not first:
                before.has_transition, before.inserted_at = True, self.num_inserts
                inserts += 1
            history.append(row)
            rows.append(row)
        self.num_inserts += inserts
        return chosen, rows

    def _is_cut(self, before: Record | None, first: bool) -> bool:
        return first and before is not None and not before.terminated and not before.truncated

    def sampleable(self, length: int, stack: int, capacity: int, stride: int = 1) -> set[tuple[int, int]]:
        """Returns (slot, row number) of the steps that can be sampled.

        A full stack must lie in the ring, also where the episode's start would make a shorter one do.
        """
        found = set()
        for slot, history in enumerate(self.slots):
            for n, row in enumerate(history):
                in_ring = n - (stack - 1) >= len(history) - length and n % stride == 0
                if row.has_transition and in_ring and row.inserted_at >= self.num_inserts - capacity:
                    found.add((slot, n))
        return found

    def window(self, slot: int, n: int, length: int, *, crosses_episodes: bool) -> list[Record]:
        """Returns the rows of the window: at most `length` of the same episode or session."""
        history = self.slots[slot]
        name = "session" if crosses_episodes else "episode"
        return [row for row in history[n : n + length] if getattr(row, name) == getattr(history[n], name)]

    def stack(self, slot: int, row: Record, stack: int) -> list[int]:
        """Returns the numbers of the row's newest frames, oldest first."""
        history = [r for r in self.slots[slot] if r.episode == row.episode and r.number <= row.number]
        return [history[max(len(history) - stack + i, 0)].number for i in range(stack)]


def write_step(replay: ring_store.Rings, reference: Reference, stack: int) -> ring_store.Rings:
    """Lets the reference go on and writes the same rows, padded to one batch size."""
    num_slots = len(reference.slots)
    num_inserts = reference.num_inserts
    slots, rows = reference.step()
    pad = num_slots - len(slots)
    numbers = np.array([row.number for row in rows] + [-1] * pad, np.int32)
    row = ring_store.Row(
        observation=numbers[:, None],
        reward=numbers.astype(np.float32),
        terminated=np.array([row.terminated for row in rows] + [True] * pad),
        truncated=np.array([row.truncated for row in rows] + [True] * pad),
        first=np.array([row.first for row in rows] + [False] * pad),
        stored={
            "action": numbers,
            "policy": np.zeros((num_slots, 2), np.float32),
            "state": np.stack([numbers, -numbers], axis=1),
        },
    )
    slot = np.array(slots + [PADDING] * pad, np.int32)
    written: ring_store.Rings = jitted_write(stack)(replay, slot, row, np.int32(num_inserts))
    return written
