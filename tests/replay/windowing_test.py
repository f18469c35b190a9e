"""Windows worked by hand, and against episodes kept as plain lists."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
import replay_harness as harness

from seedzero.core import types
from seedzero.replay import ring_store, sampling, sources, windowing


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_a_final_row_is_never_sampled_but_closes_the_window_before_it(flag: str) -> None:
    replay = harness.history(harness.create(1, 8), 10, 11, 20, 21, first=(10, 20), **{flag: (11,)})
    assert harness.weights(replay) == [1, 0, 1, 0, 0, 0, 0, 0]
    seen = harness.window(replay, 0, length=4, observe=(0, 1, 2))
    assert seen.valid.tolist() == [True, True, False, False]
    assert getattr(seen, flag).tolist()[:2] == [False, True]
    assert seen.reward.tolist()[:2] == pytest.approx([1.0, 1.1])
    assert harness.frames(seen)[:, 0].tolist() == [10, 11, 11]


def test_a_row_whose_frame_stack_is_overwritten_is_not_sampled() -> None:
    replay = harness.history(harness.create(1, 6), *range(10, 18), first=(10,), stack=3)
    # Rows 12 to 17 are there, at 2, 3, 4, 5, 0, 1; 12 and 13 lack a frame, 17 is pending.
    assert harness.weights(replay) == [1, 0, 0, 0, 1, 1]
    seen = harness.window(replay, 4, length=2, observe=(0, 1), stack=3)
    assert harness.frames(seen).tolist() == [[12, 13, 14], [13, 14, 15]]


def test_a_stack_repeats_the_first_frame_of_its_episode() -> None:
    replay = harness.create(1, 8)
    replay = harness.history(replay, 10, 11, 20, 21, 22, 23, first=(10, 20), terminated=(11,), stack=3)
    seen = harness.window(replay, 2, length=4, observe=(0, 1, 2, 3), stack=3)
    assert harness.frames(seen).tolist() == [[20, 20, 20], [20, 20, 21], [20, 21, 22], [21, 22, 23]]


def test_stacked_frames_lie_on_the_last_axis_oldest_first() -> None:
    replay = ring_store.create(harness.spec((2, 3, 2), "uint8"), harness.STORED, 1, 8)
    replay = harness.history(replay, 0, 1, 2, first=(0,), stack=2)
    seen = harness.frames(harness.window(replay, 1, length=1, stack=2))
    assert seen.shape == (1, 2, 3, 4)
    assert seen.dtype == np.uint8
    assert seen[0, 1, 2].tolist() == [0, 0, 1, 1]


def test_without_frames_windows_name_the_places_of_theirs() -> None:
    replay = harness.history(harness.create(2, 4), *range(10, 16), first=(10,), slot=1, stack=2)
    # Rows 12 to 15 lie at 2, 3, 0, 1.
    slot, time = np.array([1, 1]), np.array([3, 0])
    found = jax.jit(functools.partial(windowing.at, length=3, observe=(0, 2), stack=2))(replay, slot, time)
    assert found.observation == {}
    # The second window ends with row 15: its last position repeats that one's frames.
    assert found.places.tolist() == [[[2, 3], [0, 1]], [[3, 0], [0, 1]]]
    frames = np.asarray(replay.observation)[np.asarray(found.slot)[:, None, None], np.asarray(found.places)]
    seen = jax.jit(windowing.read)(replay, found)
    np.testing.assert_array_equal(
        jax.jit(windowing.with_frames)(found, frames).observation[types.OBSERVATION],
        seen.observation[types.OBSERVATION],
    )
    assert harness.frames(seen).tolist() == [[[12, 13], [14, 15]], [[13, 14], [14, 15]]]


# Across episodes ---------------------------------------------------------------------------------------------------


def three_episodes(flag: str) -> ring_store.Rings:
    """Returns rows 10, 11; 20, 21, where a worker was lost; 30, 31. The first episode ends with `flag`."""
    numbers = (10, 11, 20, 21, 30, 31)
    return harness.history(harness.create(1, 8), *numbers, first=(10, 20, 30), stack=2, **{flag: (11,)})


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_windows_that_cross_episodes_end_at_a_cut(flag: str) -> None:
    replay = three_episodes(flag)
    look = functools.partial(harness.window, replay, observe=(0, 1, 2, 3, 4, 5), stack=2, crosses_episodes=True)
    seen = look(0, length=6)
    assert seen.valid.tolist() == [True] * 4 + [False] * 2
    assert seen.first[:4].tolist() == [True, False, True, False]
    assert getattr(seen, flag)[:4].tolist() == [False, True, False, False]
    # A stack stays in its own episode; past the last valid position it repeats that one's.
    assert harness.frames(seen).tolist() == [[10, 10], [10, 11], [20, 20], [20, 21], [20, 21], [20, 21]]
    assert look(1, length=6).valid.tolist() == [True] * 3 + [False] * 3  # from the final row itself
    # Position 0 may be first after a cut; the newest row ends the window.
    assert look(4, length=6).valid.tolist() == [True, True, False, False, False, False]
    within = harness.window(replay, 0, length=6)
    assert within.valid.tolist() == [True] * 2 + [False] * 4


def test_rows_after_the_newest_one_belong_to_no_window_even_if_they_went_on_from_it() -> None:
    """What lies behind the newest row is the oldest one."""
    replay = harness.history(harness.create(1, 4), *range(10, 15), first=(10, 12), terminated=(11, 14))
    # 14, 11, 12, 13: 14 is final and the newest, 11 has been final too.
    seen = harness.window(replay, 2, length=4, crosses_episodes=True)
    assert seen.valid.tolist() == [True, True, True, False]
    replay = harness.put(replay, 15)
    assert harness.window(replay, 2, length=4, crosses_episodes=True).valid.tolist() == [True] * 4


def _jitted_read(wanted: sources.Replay | sources.Queue, stack: int) -> Any:
    """Returns the jitted function to the windows that an agent wants, with their frames."""

    def read(replay: ring_store.Rings, slot: jax.Array, time: jax.Array) -> windowing.Windows:
        return windowing.read(replay, windowing.from_data(replay, slot, time, wanted, stack))

    return jax.jit(read)


def test_the_unrolls_of_a_queue_cross_episodes_and_show_every_observation() -> None:
    replay = three_episodes("terminated")
    queue = sources.Queue(length=3, batch_size=2, max_lag=1, wait_seconds=0.0)
    seen = _jitted_read(queue, 2)(replay, np.array([0, 0]), np.array([0, 1]))
    assert seen.valid.tolist() == [[True] * 4, [True] * 3 + [False]]
    assert harness.frames(seen)[0].tolist() == [[10, 10], [10, 11], [20, 20], [20, 21]]
    assert seen.stored["policy"][0, :, 0].tolist() == [10, 11, 20, 21]
    assert seen.weight.tolist() == [1, 1]


@pytest.mark.parametrize("crosses", [False, True])
def test_the_windows_of_a_replay_are_those_that_it_names(crosses: bool) -> None:
    replay = three_episodes("terminated")
    wanted = sources.Replay(length=4, observe=(0, 3), crosses_episodes=crosses)
    seen = _jitted_read(wanted, 1)(replay, np.array([0]), np.array([0]))
    assert seen.valid.tolist() == [[True, True, crosses, crosses]]
    assert harness.frames(seen)[0, :, 0].tolist() == [10, 21 if crosses else 11]


# Arrays that are kept of some rows alone ---------------------------------------------------------------------------


def test_an_array_of_every_third_row_comes_from_the_windows_first_row_on() -> None:
    replay = ring_store.create(harness.spec(), {"state": sources.Stored((), np.dtype(np.int32), every=3)}, 1, 9)
    no, slot = np.zeros(1, bool), np.array([0])
    for number in range(13):
        state = np.array([number], np.int32)
        row = ring_store.Row(np.zeros((1, 1), np.int32), np.zeros(1, np.float32), no, no, no, {"state": state})
        replay = harness.jitted_write(1)(replay, slot, row, np.int32(0))
    # Rows 9 and 12 lie at 0 and 3, 6 at 6.
    found = [harness.jitted_look(n, (0,), 1, False)(replay, slot, np.array([6])) for n in (1, 3, 4, 7)]
    assert [x.stored["state"].tolist() for x in found] == [[[6]], [[6]], [[6, 9]], [[6, 9, 12]]]


# Against plain lists -----------------------------------------------------------------------------------------------


def check_windows(
    replay: ring_store.Rings,
    reference: harness.Reference,
    drawn: windowing.Windows,
    wanted: sources.Replay,
    stack: int,
) -> set[tuple[int, int]]:
    """Compares windows with the reference's rows; returns slot and number of the rows that they begin with."""
    drawn = jax.tree.map(np.asarray, drawn)
    ring_length, length, found = replay.weight.shape[1], wanted.length, set()
    for i, (slot, time) in enumerate(zip(drawn.slot.tolist(), drawn.time.tolist(), strict=True)):
        newest = len(reference.slots[slot]) - 1
        n = newest - (newest - time) % ring_length
        found.add((slot, n))
        rows = reference.window(slot, n, length, crosses_episodes=wanted.crosses_episodes)
        count = len(rows)
        assert drawn.valid[i].tolist() == [True] * count + [False] * (length - count)
        assert drawn.reward[i, :count].tolist() == [row.number for row in rows]
        assert drawn.stored["action"][i, :count].tolist() == [row.number for row in rows]
        for name in ("terminated", "truncated", "first"):
            assert getattr(drawn, name)[i, :count].tolist() == [getattr(row, name) for row in rows]
        kept = [[row.number, -row.number] for row in rows[:: wanted.stride]]
        assert drawn.stored["state"].shape[1] == -(-length // wanted.stride)
        assert drawn.stored["state"][i, : len(kept)].tolist() == kept
        stacks = [reference.stack(slot, row, stack) for row in rows]
        assert harness.frames(drawn)[i].tolist() == stacks + [stacks[-1]] * (length - count)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("ring_length", "stack", "length", "capacity", "crosses", "stride", "prioritized"),
    [
        (12, 1, 6, 1000, False, 1, False),
        (12, 1, 6, 1000, False, 1, True),
        (9, 3, 5, 1000, False, 1, False),
        (16, 4, 21, 25, False, 1, True),
        (5, 4, 3, 1000, False, 1, False),
        (12, 1, 9, 1000, True, 1, False),
        (12, 3, 8, 1000, True, 4, True),
        (16, 2, 5, 25, False, 2, False),
    ],
)
def test_random_histories_agree_with_plain_lists(
    ring_length: int, stack: int, length: int, capacity: int, crosses: bool, stride: int, prioritized: bool
) -> None:
    num_slots = 3
    reference = harness.Reference(num_slots, seed=ring_length * 100 + stack)
    stored = {**harness.STORED, "state": sources.Stored((2,), np.dtype(np.int32), every=stride)}
    create = functools.partial(
        ring_store.create, harness.spec(), stored, num_slots, ring_length, prioritized=prioritized
    )
    replay = jax.jit(create)()  # one program in place of one for each array
    prioritization = sources.Prioritization(alpha=0.6, beta=0.4, epsilon=0.01)
    prioritize = jax.jit(functools.partial(sampling.prioritize, prioritization=prioritization), donate_argnums=0)
    weigh = jax.jit(functools.partial(sampling.sampling_weight, capacity=capacity))
    wanted = sources.Replay(length, tuple(range(length)), stride, crosses)
    draw = harness.jitted_sample(16, wanted, capacity=capacity, stack=stack)
    longest, begun = 0, set()
    for step in range(150):
        replay = harness.write_step(replay, reference, stack)
        expected = reference.sampleable(ring_length, stack, capacity)
        weight = np.asarray(weigh(replay, num_inserts=np.int32(reference.num_inserts)))
        places = {(slot, n % ring_length) for slot, n in expected}
        assert places == set(zip(*(x.tolist() for x in weight.nonzero()), strict=True))
        can_begin = reference.sampleable(ring_length, stack, capacity, stride)
        if can_begin:
            beta: Any = prioritization.beta if prioritized else None
            drawn = draw(replay, jax.random.key(step), num_inserts=np.int32(reference.num_inserts), beta=beta)
            found = check_windows(replay, reference, drawn, wanted, stack)
            assert found <= can_begin
            begun |= found
            if prioritized:
                replay = prioritize(replay, drawn.slot, drawn.time, jax.random.uniform(jax.random.key(step), (16,)))
        longest = max(longest, len(expected))
    assert min(len(history) for history in reference.slots) > 2 * ring_length
    assert longest >= 3 and len(begun) > 20


# Rows before a window ----------------------------------------------------------------------------------------------

FIRSTS = (0, 1, 7, 22, 23, 31)
NUM_BEFORE, EVERY = 6, 4


def _with_states(num_rows: int) -> ring_store.Rings:
    """Returns a ring of 20 rows, numbered 0, 1, ..; all have an action, every fourth a state: their numbers."""
    stored = {
        "action": sources.Stored((), np.dtype(np.int32)),
        "state": sources.Stored((), np.dtype(np.int32), every=EVERY),
    }
    rings = ring_store.create(harness.spec(), stored, 1, 20)
    write = jax.jit(functools.partial(ring_store.write, stack=2 + NUM_BEFORE))
    for number in range(num_rows):
        numbers = np.array([number], np.int32)
        row = ring_store.Row(
            observation=numbers[:, None],
            reward=numbers / np.float32(10),
            terminated=np.isin(numbers + 1, FIRSTS),
            truncated=np.zeros(1, bool),
            first=np.isin(numbers, FIRSTS),
            stored={"action": numbers, "state": numbers},
        )
        rings = write(rings, np.zeros(1, np.int32), row, np.int32(0))
    return rings


@functools.cache
def _look_back() -> Any:
    replay = sources.Replay(length=3, observe=(0, 1), before=NUM_BEFORE)
    return jax.jit(
        lambda rings, slot, time: windowing.read(rings, windowing.from_data(rings, slot, time, replay, stack=2))
    )


@pytest.mark.thorough
@pytest.mark.parametrize("num_rows", [12, 20, 37])
def test_rows_before_a_window_are_its_episode_s_and_all_still_there(num_rows: int) -> None:
    rings = _with_states(num_rows)
    times = np.flatnonzero(np.asarray(rings.weight)[0])
    newest = num_rows - 1
    rows = np.array([newest - (newest - time) % 20 for time in times])
    found = jax.tree.map(np.asarray, _look_back()(rings, np.zeros_like(times), times))
    assert np.all(rows - NUM_BEFORE - 1 > newest - 20) or num_rows <= 20
    for index, row in enumerate(rows):
        begin = max(first for first in FIRSTS if first <= row)
        for place, earlier in enumerate(range(row - NUM_BEFORE, row)):
            if earlier < begin:
                continue
            assert found.before.stored["action"][index, place] == earlier
            assert found.before.first[index, place] == (earlier in FIRSTS)
            assert found.before.reward[index, place] == pytest.approx(earlier / 10)
            frames = found.before.observation[types.OBSERVATION][index, place]
            assert frames.tolist() == [max(earlier - 1, begin), earlier]
        kept = [earlier for earlier in range(row - NUM_BEFORE, row) if earlier % EVERY == 0]
        assert found.before.stored["state"].shape[1] == 2
        for state, earlier in zip(found.before.stored["state"][index], kept, strict=False):
            assert state == earlier or earlier < begin
        # The window itself is as ever.
        assert found.stored["action"][index, 0] == row
        assert found.observation[types.OBSERVATION][index, 0].tolist() == [max(row - 1, begin), row]


def test_without_rows_before_a_window_fewer_are_kept() -> None:
    rings = _with_states(37)
    # Rows 17 to 36 are there. Row 17 + 7 is the first with its six rows before, and their frames.
    numbers = [row for row in range(17, 37) if np.asarray(rings.weight)[0, row % 20]]
    assert min(numbers) == 24 and 36 not in numbers
    assert _look_back()(rings, np.zeros(1, int), np.array([4])).places.shape == (1, NUM_BEFORE + 2, 2)


@pytest.mark.thorough
@pytest.mark.parametrize(("before", "oldest"), [(0, 6), (3, 9)])
def test_rows_about_to_be_overwritten_are_not_looked_back_to(before: int, oldest: int) -> None:
    rings = harness.history(harness.create(1, 16), *range(16), first=(0,))
    replay = sources.Replay(length=1, observe=(0,), before=before)
    drawn = harness.sample(rings, 400, replay=replay, lag=6)
    assert drawn.time.min() == oldest and drawn.time.max() == 14
