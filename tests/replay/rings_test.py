"""Rings: rows and windows worked by hand, and against episodes kept as plain lists."""

import dataclasses
import functools
import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.core import errors, types
from seedzero.replay import rings

EXTRAS = {"action": ((), np.dtype(np.int32)), "policy": ((2,), np.dtype(np.float32))}
PADDING = 1_000


def spec(shape: tuple[int, ...] = (1,), dtype: str = "int32") -> types.EnvSpec:
    return types.EnvSpec(observation_shape=shape, observation_dtype=dtype, num_actions=2)


@functools.cache
def jitted_write(stack: int) -> Any:
    return jax.jit(functools.partial(rings.write, stack=stack), donate_argnums=0)


@functools.cache
def jitted_sample(
    batch_size: int,
    *,
    capacity: int = 1_000,
    future: int = 0,
    offsets: tuple[int, ...] = (0,),
    stack: int = 1,
    lag: int = 0,
) -> Any:
    sample = functools.partial(
        rings.sample, batch_size=batch_size, capacity=capacity, future=future, offsets=offsets, stack=stack, lag=lag
    )
    return jax.jit(sample)


def put(
    replay: rings.Rings,
    number: int,
    *,
    slot: int = 0,
    first: bool = False,
    terminated: bool = False,
    truncated: bool = False,
    num_inserts: int = 0,
    stack: int = 1,
) -> rings.Rings:
    """Writes one row that is recognised by `number` into one slot."""
    row = rings.Row(
        observation=jnp.full((1, *replay.observation.shape[2:]), number, replay.observation.dtype),
        reward=jnp.array([number / 10]),
        terminated=jnp.array([terminated]),
        truncated=jnp.array([truncated]),
        first=jnp.array([first]),
        extras={"action": jnp.array([number % 7]), "policy": jnp.array([[number, -number]], jnp.float32)},
    )
    written: rings.Rings = jitted_write(stack)(replay, jnp.array([slot]), row, jnp.int32(num_inserts))
    return written


def weights(replay: rings.Rings, slot: int = 0) -> list[float]:
    return [float(weight) for weight in np.asarray(replay.weight)[slot]]


def window(replay: rings.Rings, time: int, *, future: int, offsets: tuple[int, ...] = (0,), stack: int = 1) -> Any:
    look = jax.jit(functools.partial(rings.windows_at, future=future, offsets=offsets, stack=stack))
    return jax.tree.map(lambda x: np.asarray(x)[0], look(replay, jnp.array([0]), jnp.array([time])))


def test_the_next_row_makes_a_row_sampleable_and_the_newest_stays_pending() -> None:
    replay = put(rings.create(spec(), EXTRAS, 2, 4), 10, first=True)
    assert weights(replay) == [0, 0, 0, 0]
    replay = put(replay, 11, num_inserts=6)
    assert weights(replay) == [1, 0, 0, 0]
    assert weights(replay, slot=1) == [0, 0, 0, 0]
    assert np.asarray(replay.inserted_at)[0, 0] == 6
    assert np.asarray(replay.cursor).tolist() == [2, 0]


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_a_final_row_is_never_sampled_but_closes_the_window_before_it(flag: str) -> None:
    replay = put(rings.create(spec(), EXTRAS, 1, 8), 10, first=True)
    replay = put(replay, 11, **{flag: True})
    replay = put(replay, 20, first=True)
    replay = put(replay, 21)
    assert weights(replay) == [1, 0, 1, 0, 0, 0, 0, 0]
    seen = window(replay, 0, future=3, offsets=(0, 1, 2))
    assert seen.valid.tolist() == [True, True, False, False]
    assert getattr(seen, flag).tolist()[:2] == [False, True]
    assert seen.reward.tolist()[:2] == pytest.approx([1.0, 1.1])
    assert seen.observation[:, 0].tolist() == [10, 11, 11]


def test_a_row_after_a_final_one_is_first_even_if_it_does_not_say_so() -> None:
    replay = put(rings.create(spec(), EXTRAS, 1, 8), 10, first=True)
    replay = put(replay, 11, terminated=True)
    replay = put(replay, 20)
    assert weights(replay)[:3] == [1, 0, 0]
    assert np.asarray(replay.first)[0, :3].tolist() == [True, False, True]


def test_a_cut_leaves_its_last_row_without_transition() -> None:
    replay = put(rings.create(spec(), EXTRAS, 1, 8), 10, first=True)
    replay = put(replay, 11)
    replay = put(replay, 20, first=True)
    replay = put(replay, 21)
    assert weights(replay)[:4] == [1, 0, 1, 0]
    assert window(replay, 0, future=2).valid.tolist() == [True, True, False]


def test_wrapping_around_overwrites_the_oldest_row() -> None:
    replay = put(rings.create(spec(), EXTRAS, 1, 4), 10, first=True)
    for number in range(11, 16):
        replay = put(replay, number)
    # Rows 12 to 15 are there, at 2, 3, 0, 1; 15 is pending.
    assert np.asarray(replay.observation)[0, :, 0].tolist() == [14, 15, 12, 13]
    assert weights(replay) == [1, 0, 1, 1]
    seen = window(replay, 3, future=3, offsets=(0, 1, 2, 3))
    assert seen.valid.tolist() == [True, True, True, False]
    assert seen.observation[:, 0].tolist() == [13, 14, 15, 15]


def test_a_row_whose_frame_stack_is_overwritten_is_not_sampled() -> None:
    replay = put(rings.create(spec(), EXTRAS, 1, 6), 10, first=True, stack=3)
    for number in range(11, 18):
        replay = put(replay, number, stack=3)
    # Rows 12 to 17 are there, at 2, 3, 4, 5, 0, 1; 12 and 13 lack a frame, 17 is pending.
    assert weights(replay) == [1, 0, 0, 0, 1, 1]
    assert window(replay, 4, future=1, offsets=(0, 1), stack=3).observation.tolist() == [[12, 13, 14], [13, 14, 15]]


def test_a_stack_repeats_the_first_frame_of_its_episode() -> None:
    replay = put(rings.create(spec(), EXTRAS, 1, 8), 10, first=True, stack=3)
    replay = put(replay, 11, terminated=True, stack=3)
    for number, first in ((20, True), (21, False), (22, False), (23, False)):
        replay = put(replay, number, first=first, stack=3)
    seen = window(replay, 2, future=3, offsets=(0, 1, 2, 3), stack=3)
    assert seen.observation.tolist() == [[20, 20, 20], [20, 20, 21], [20, 21, 22], [21, 22, 23]]


def test_stacked_frames_lie_on_the_last_axis_oldest_first() -> None:
    replay = rings.create(spec((2, 3, 2), "uint8"), EXTRAS, 1, 8)
    for number in range(3):
        replay = put(replay, number, first=number == 0, stack=2)
    seen = window(replay, 1, future=0, stack=2)
    assert seen.observation.shape == (1, 2, 3, 4)
    assert seen.observation.dtype == np.uint8
    assert seen.observation[0, 1, 2].tolist() == [0, 0, 1, 1]


def test_extras_come_with_every_position() -> None:
    replay = put(rings.create(spec(), EXTRAS, 1, 8), 3, first=True)
    replay = put(replay, 4)
    seen = window(replay, 0, future=1)
    assert seen.extras["action"].tolist() == [3, 4]
    assert seen.extras["policy"].tolist() == [[3, -3], [4, -4]]


def test_padding_rows_and_negative_slots_are_dropped() -> None:
    replay = put(rings.create(spec(), EXTRAS, 2, 4), 10, first=True)
    before = jax.tree.map(np.array, replay)
    row = rings.Row(
        observation=jnp.full((3, 1), 99, jnp.int32),
        reward=jnp.ones(3),
        terminated=jnp.ones(3, bool),
        truncated=jnp.ones(3, bool),
        first=jnp.zeros(3, bool),
        extras={"action": jnp.ones(3, jnp.int32), "policy": jnp.ones((3, 2))},
    )
    after = rings.write(replay, jnp.array([2, 2, -1]), row, jnp.int32(5), 1)
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.array, after))


def test_a_ring_shorter_than_the_stack_is_refused_by_name() -> None:
    with pytest.raises(errors.CapacityError, match=r"3 rows, a stack of 3 frames needs 4.*replay\.capacity"):
        put(rings.create(spec(), EXTRAS, 1, 3), 0, stack=3)


def test_the_rows_of_a_ring_are_its_share_of_the_capacity_and_a_margin() -> None:
    assert rings.slot_length(10, 4, 2) == 5


def test_a_donated_write_is_in_place() -> None:
    write = jitted_write(1)
    replay = rings.create(spec(), EXTRAS, 2, 4)
    row = rings.Row(
        jnp.zeros((1, 1), jnp.int32),
        jnp.zeros(1),
        jnp.zeros(1, bool),
        jnp.zeros(1, bool),
        jnp.ones(1, bool),
        {"action": jnp.zeros(1, jnp.int32), "policy": jnp.zeros((1, 2))},
    )
    memory = write.lower(replay, jnp.array([0]), row, jnp.int32(0)).compile().memory_analysis()
    assert memory.alias_size_in_bytes >= sum(x.nbytes for x in jax.tree.leaves(replay))
    pointer = replay.observation.unsafe_buffer_pointer()
    assert write(replay, jnp.array([0]), row, jnp.int32(0)).observation.unsafe_buffer_pointer() == pointer


def test_sampling_is_uniform_over_steps_not_over_slots() -> None:
    replay = rings.create(spec(), EXTRAS, 3, 300)
    weight = np.zeros((3, 300), np.float32)
    weight[0, :200], weight[2, 5:15] = 1, 1
    replay = replay._replace(weight=jnp.asarray(weight), cursor=jnp.array([300, 300, 300]))
    draws = 21_000
    drawn = jitted_sample(draws)(replay, jax.random.key(3), num_inserts=jnp.int32(0))
    counts = np.zeros((3, 300))
    np.add.at(counts, (np.asarray(drawn.slot), np.asarray(drawn.time)), 1)
    assert counts[weight == 0].sum() == 0
    expected = draws / 210
    chi_square = ((counts[weight == 1] - expected) ** 2 / expected).sum()
    # 209 degrees of freedom: mean 209, standard deviation 20.4; the key is fixed.
    assert 209 - 4 * 20.4 < chi_square < 209 + 4 * 20.4
    assert np.asarray(drawn.weight).tolist() == [1.0] * draws


def test_sampling_follows_weights_that_are_not_one() -> None:
    replay = rings.create(spec(), EXTRAS, 1, 8)
    replay = replay._replace(weight=jnp.array([[0, 1, 0, 3, 0, 0, 0, 0]], jnp.float32), cursor=jnp.array([8]))
    drawn = jitted_sample(4_000)(replay, jax.random.key(0), num_inserts=jnp.int32(0))
    counts = np.bincount(np.asarray(drawn.time), minlength=8)
    assert counts[[1, 3]].sum() == 4_000
    assert counts[3] == pytest.approx(3_000, abs=120)


def test_steps_older_than_the_capacity_do_not_count() -> None:
    replay = put(rings.create(spec(), EXTRAS, 1, 32), 0, first=True)
    for number in range(1, 11):
        replay = put(replay, number, num_inserts=number - 1)
    # Rows 0 to 9 were inserted as number 0 to 9; of 10 steps the newest 4 are 6 to 9.
    weight = np.asarray(rings.sampling_weight(replay, jnp.int32(10), 4))[0]
    assert np.flatnonzero(weight).tolist() == [6, 7, 8, 9]
    drawn = jitted_sample(200, capacity=4)(replay, jax.random.key(0), num_inserts=jnp.int32(10))
    assert set(np.asarray(drawn.time).tolist()) == {6, 7, 8, 9}


@pytest.mark.parametrize(("stack", "lag", "left"), [(1, 0, 7), (1, 3, 4), (2, 3, 3)])
def test_rows_that_are_overwritten_within_the_lag_are_not_sampled(stack: int, lag: int, left: int) -> None:
    replay = put(rings.create(spec(), EXTRAS, 1, 8), 0, first=True, stack=stack)
    for number in range(1, 21):
        replay = put(replay, number, stack=stack)
    drawn = jitted_sample(300, stack=stack, lag=lag)(replay, jax.random.key(0), num_inserts=jnp.int32(0))
    # Row 20 is the newest and pending; 13 would be overwritten next.
    assert {int(number) for number in np.asarray(drawn.observation)[:, 0, -1]} == set(range(20 - left, 20))
    assert set(np.asarray(drawn.weight).tolist()) == {1.0}


def test_windows_from_empty_rings_weigh_nothing() -> None:
    replay = rings.create(spec(), EXTRAS, 1, 8)
    drawn = jitted_sample(2)(replay, jax.random.key(0), num_inserts=jnp.int32(0))
    assert np.asarray(drawn.weight).tolist() == [0.0, 0.0]


@dataclasses.dataclass
class Record:
    """One row as the reference keeps it."""

    number: int
    terminated: bool = False
    truncated: bool = False
    episode: int = 0
    inserted_at: int = -1
    has_transition: bool = False


class Reference:
    """Histories as plain lists of episodes' rows, nothing overwritten."""

    def __init__(self, num_slots: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.slots: list[list[Record]] = [[] for _ in range(num_slots)]
        self.number = 0
        self.num_inserts = 0

    def step(self) -> tuple[list[int], list[Record], list[bool]]:
        """Appends a row to a few slots; returns the slots, rows, and whether each is a first one."""
        chosen = self.random.sample(range(len(self.slots)), self.random.randint(1, len(self.slots)))
        rows, firsts, inserts = [], [], 0
        for slot in chosen:
            history = self.slots[slot]
            before = history[-1] if history else None
            cut = self.random.random() < 0.05
            first = before is None or before.terminated or before.truncated or cut
            ends = self.random.random()
            row = Record(self.number, not first and ends < 0.1, not first and 0.1 <= ends < 0.2)
            row.episode = (before.episode if before else 0) + first
            self.number += 1
            if before and not first:
                before.has_transition, before.inserted_at = True, self.num_inserts
                inserts += 1
            history.append(row)
            rows.append(row)
            firsts.append(first)
        self.num_inserts += inserts
        return chosen, rows, firsts

    def sampleable(self, length: int, stack: int, capacity: int) -> set[tuple[int, int]]:
        """Returns (slot, row number) of the steps that can be sampled.

        A full stack must lie in the ring, also where the episode's start would make a shorter one do.
        """
        found = set()
        for slot, history in enumerate(self.slots):
            for n, row in enumerate(history):
                in_ring = n - (stack - 1) >= len(history) - length
                if row.has_transition and in_ring and row.inserted_at >= self.num_inserts - capacity:
                    found.add((slot, n))
        return found

    def window(self, slot: int, n: int, future: int) -> list[Record]:
        """Returns the rows of the window: those of the same episode, at most future + 1."""
        history = self.slots[slot]
        return [row for row in history[n : n + future + 1] if row.episode == history[n].episode]

    def stack(self, slot: int, row: Record, stack: int) -> list[int]:
        """Returns the numbers of the row's newest frames, oldest first."""
        history = [r for r in self.slots[slot] if r.episode == row.episode and r.number <= row.number]
        return [history[max(len(history) - stack + i, 0)].number for i in range(stack)]


def write_step(replay: rings.Rings, reference: Reference, stack: int) -> rings.Rings:
    """Lets the reference go on and writes the same rows, padded to one batch size."""
    num_slots = len(reference.slots)
    num_inserts = reference.num_inserts
    slots, rows, firsts = reference.step()
    pad = num_slots - len(slots)
    numbers = np.array([row.number for row in rows] + [-1] * pad, np.int32)
    row = rings.Row(
        observation=jnp.asarray(numbers[:, None]),
        reward=jnp.asarray(numbers, jnp.float32),
        terminated=jnp.array([row.terminated for row in rows] + [True] * pad),
        truncated=jnp.array([row.truncated for row in rows] + [True] * pad),
        first=jnp.array(firsts + [False] * pad),
        extras={"action": jnp.asarray(numbers), "policy": jnp.zeros((num_slots, 2))},
    )
    slot = jnp.array(slots + [PADDING] * pad)
    written: rings.Rings = jitted_write(stack)(replay, slot, row, jnp.int32(num_inserts))
    return written


def check_windows(replay: rings.Rings, reference: Reference, drawn: rings.Windows, future: int, stack: int) -> None:
    """Compares windows that began at sampleable rows with the reference's rows."""
    drawn = jax.tree.map(np.asarray, drawn)
    length = replay.weight.shape[1]
    for i, (slot, time) in enumerate(zip(drawn.slot.tolist(), drawn.time.tolist(), strict=True)):
        newest = len(reference.slots[slot]) - 1
        n = newest - (newest - time) % length
        rows = reference.window(slot, n, future)
        count = len(rows)
        assert drawn.valid[i].tolist() == [True] * count + [False] * (future + 1 - count)
        assert drawn.reward[i, :count].tolist() == [row.number for row in rows]
        assert drawn.extras["action"][i, :count].tolist() == [row.number for row in rows]
        assert drawn.terminated[i, :count].tolist() == [row.terminated for row in rows]
        assert drawn.truncated[i, :count].tolist() == [row.truncated for row in rows]
        stacks = [reference.stack(slot, row, stack) for row in rows]
        assert drawn.observation[i].tolist() == stacks + [stacks[-1]] * (future + 1 - count)


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize(
    ("length", "stack", "future", "capacity"), [(12, 1, 5, 1000), (9, 3, 4, 1000), (16, 4, 20, 25), (5, 4, 2, 1000)]
)
def test_random_histories_agree_with_plain_lists(
    length: int, stack: int, future: int, capacity: int, prioritized: bool
) -> None:
    num_slots = 3
    reference = Reference(num_slots, seed=length * 100 + stack)
    replay = rings.create(spec(), EXTRAS, num_slots, length, prioritized=prioritized)
    how = rings.Prioritization(alpha=0.6, beta=0.4, beta_updates=0, epsilon=0.01)
    prioritize = jax.jit(functools.partial(rings.prioritize, how=how), donate_argnums=0)
    weigh = jax.jit(functools.partial(rings.sampling_weight, capacity=capacity))
    draw = jitted_sample(16, capacity=capacity, future=future, offsets=tuple(range(future + 1)), stack=stack)
    longest = 0
    for step in range(150):
        replay = write_step(replay, reference, stack)
        expected = reference.sampleable(length, stack, capacity)
        weight = np.asarray(weigh(replay, num_inserts=jnp.int32(reference.num_inserts)))
        assert {(s, n % length) for s, n in expected} == set(zip(*(x.tolist() for x in weight.nonzero()), strict=True))
        if expected:
            beta = how.beta if prioritized else None
            drawn = draw(replay, jax.random.key(step), num_inserts=jnp.int32(reference.num_inserts), beta=beta)
            check_windows(replay, reference, drawn, future, stack)
            if prioritized:
                replay = prioritize(replay, drawn.slot, drawn.time, jax.random.uniform(jax.random.key(step), (16,)))
        longest = max(longest, len(expected))
    assert min(len(history) for history in reference.slots) > 2 * length
    assert longest >= 3


def test_every_observation_is_stored_once() -> None:
    reference = Reference(2, seed=7)
    replay = rings.create(spec(), EXTRAS, 2, 12)
    for _ in range(80):
        replay = write_step(replay, reference, 3)
    for slot, history in enumerate(reference.slots):
        stored = sorted(np.asarray(replay.observation)[slot, :, 0].tolist())
        assert stored == [row.number for row in history[-12:]]
