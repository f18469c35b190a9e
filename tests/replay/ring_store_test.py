"""Rings: rows worked by hand."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import replay_harness as harness

from seedzero.core import errors, types
from seedzero.replay import ring_store, sources, windowing


def row_of(*numbers: int, first: bool = False, weight: Any = None, **stored: Any) -> ring_store.Row:
    """Returns rows in the middle of an episode, or first ones of it, that are recognised by their number."""
    no = np.zeros(len(numbers), bool)
    number = np.array(numbers, np.int32)
    weight = None if weight is None else np.asarray(weight, np.float32)
    return ring_store.Row(number[:, None], np.float32(number / 10), no, no, no | first, stored, weight)


def test_the_next_row_makes_a_row_sampleable_and_the_newest_stays_pending() -> None:
    replay = harness.put(harness.create(2, 4), 10, first=True)
    assert harness.weights(replay) == [0, 0, 0, 0]
    replay = harness.put(replay, 11, num_inserts=6)
    assert harness.weights(replay) == [1, 0, 0, 0]
    assert harness.weights(replay, slot=1) == [0, 0, 0, 0]
    assert np.asarray(replay.inserted_at)[0, 0] == 6
    assert np.asarray(replay.cursor).tolist() == [2, 0]


def test_a_row_after_a_final_one_is_first_even_if_it_does_not_say_so() -> None:
    replay = harness.history(harness.create(1, 8), 10, 11, 20, first=(10,), terminated=(11,))
    assert harness.weights(replay)[:3] == [1, 0, 0]
    assert np.asarray(replay.first)[0, :3].tolist() == [True, False, True]


@pytest.mark.parametrize("crosses", [False, True])
def test_windows_that_cross_episodes_begin_in_last_rows_never_before_a_cut(crosses: bool) -> None:
    def write(replay: ring_store.Rings, number: int, **flags: Any) -> ring_store.Rings:
        row = _complete(row_of(number, weight=[3.0]))
        row = row._replace(stored={name: row.stored[name] for name in harness.STORED})
        row = row._replace(**{name: np.array([value]) for name, value in flags.items()})
        return jitted(replay, np.array([0]), row, np.int32(number))

    jitted = jax.jit(lambda *args: ring_store.write(*args, 1, crosses_episodes=crosses))
    replay = write(harness.create(1, 8, prioritized=True), 0, first=True)
    for number, flags in enumerate(({}, {"truncated": True}, {"first": True}, {}, {"first": True}), start=1):
        replay = write(replay, number, **flags)
    # Rows 0 and 3 have transitions, row 2 ends an episode, row 4 lies before a cut, row 5 is the newest.
    assert harness.weights(replay) == [3, 3, 3.0 if crosses else 0, 3, 0, 0, 0, 0]


def test_padding_rows_and_negative_slots_are_dropped() -> None:
    stored = {**harness.STORED, "state": sources.Stored((), np.dtype(np.int32), every=2)}
    replay = ring_store.create(harness.spec(), stored, 2, 4)
    write = harness.jitted_write(1)
    replay = write(replay, np.array([0]), _complete(row_of(10, first=True)), np.int32(0))
    before = jax.tree.map(np.array, replay)
    row = _complete(row_of(99, 99, 99))._replace(terminated=np.ones(3, bool), truncated=np.ones(3, bool))
    after = write(replay, np.array([2, 2, -1]), row, np.int32(5))
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.array, after))


def _complete(row: ring_store.Row) -> ring_store.Row:
    """Returns the rows with all arrays that these tests store."""
    number = row.observation[:, 0]
    return row._replace(stored={"action": number, "policy": np.ones((len(number), 2), np.float32), "state": number})


def test_a_ring_shorter_than_the_stack_is_refused_by_name() -> None:
    with pytest.raises(errors.CapacityError, match=r"\b3 rows, .* 3 frames .*4.*replay\.capacity.*--replay\.num_envs"):
        harness.put(harness.create(1, 3), 0, stack=3)


@pytest.mark.parametrize(("multiple", "length"), [((), 5), ((1,), 5), ((4,), 8), ((5,), 5), ((6,), 6)])
def test_the_rows_of_a_ring_are_its_share_of_the_capacity_and_a_margin_rounded_up(
    multiple: tuple[int, ...], length: int
) -> None:
    assert ring_store.slot_length(10, 4, 2, *multiple) == length


def test_a_donated_write_is_in_place() -> None:
    stored = {**harness.STORED, "state": sources.Stored((), np.dtype(np.int32), every=2)}
    write = harness.jitted_write(1)
    replay = ring_store.create(harness.spec(), stored, 2, 4)
    arguments = (np.array([0]), _complete(row_of(0, first=True)), np.int32(0))
    memory = write.lower(replay, *arguments).compile().memory_analysis()
    assert memory.alias_size_in_bytes >= sum(x.nbytes for x in jax.tree.leaves(replay))
    pointer = replay.observation.unsafe_buffer_pointer()
    assert write(replay, *arguments).observation.unsafe_buffer_pointer() == pointer


def test_every_observation_is_stored_once() -> None:
    reference = harness.Reference(2, seed=7)
    stored = {**harness.STORED, "state": sources.Stored((2,), np.dtype(np.int32))}
    replay = ring_store.create(harness.spec(), stored, 2, 12)
    for _ in range(80):
        replay = harness.write_step(replay, reference, 3)
    for slot, history in enumerate(reference.slots):
        kept = sorted(np.asarray(replay.observation)[slot, :, 0].tolist())
        assert kept == [row.number for row in history[-12:]]


# Arrays that are kept of some rows alone ---------------------------------------------------------------------------


def test_an_array_of_every_second_row_keeps_the_rows_of_even_number() -> None:
    stored = {"state": sources.Stored((2,), np.dtype(np.float32), every=2)}
    replay = ring_store.create(harness.spec(), stored, 2, 6)
    assert replay.stored["state"].shape == (2, 3, 2)
    write = harness.jitted_write(1)
    for number in range(9):
        # Slot 1 is one row behind slot 0, whose first row it lacks: their even numbers differ.
        slots = [0, 1] if number else [0, harness.PADDING]
        state = np.array([[number, -number], [100 + number, 0]], np.float32)
        replay = write(replay, np.array(slots), row_of(number, number, state=state), np.int32(0))
    assert np.asarray(replay.cursor).tolist() == [9, 8]
    # Rows 6, 8 and 4 of slot 0; of slot 1, rows 6, 2 and 4, which were written with the numbers 7, 3 and 5.
    assert np.asarray(replay.stored["state"])[0].tolist() == [[6, -6], [8, -8], [4, -4]]
    assert np.asarray(replay.stored["state"])[1].tolist() == [[107, 0], [103, 0], [105, 0]]


# Weights from acting -----------------------------------------------------------------------------------------------


def test_a_row_brings_the_weight_of_the_transition_that_it_completes() -> None:
    replay = ring_store.create(harness.spec(), {}, 2, 4, prioritized=True)
    write, both = harness.jitted_write(1), np.array([0, 1])
    replay = write(replay, both, row_of(0, 0, first=True, weight=[7.0, 8.0]), np.int32(0))
    assert not np.asarray(replay.weight).any()  # they complete nothing
    replay = write(replay, both, row_of(1, 1, weight=[0.5, 3.0]), np.int32(0))
    assert np.asarray(replay.weight).tolist() == [[0.5, 0, 0, 0], [3.0, 0, 0, 0]]
    replay = write(replay, both[::-1], row_of(2, 2, weight=[0.25, 2.0]), np.int32(0))
    assert np.asarray(replay.weight).tolist() == [[0.5, 2.0, 0, 0], [3.0, 0.25, 0, 0]]
    replay = write(replay, both[:1], row_of(3, first=True, weight=[9.0]), np.int32(0))
    assert np.asarray(replay.weight)[0].tolist() == [0.5, 2.0, 0, 0]  # a cut


def test_a_weight_that_is_not_finite_counts_as_the_largest_one() -> None:
    """One NaN would make the sum over all rows NaN, and nothing could be drawn any more."""
    replay = ring_store.create(harness.spec(), {}, 3, 4, prioritized=True)._replace(max_weight=jnp.array([5.0]))
    write, every = harness.jitted_write(1), np.array([0, 1, 2])
    replay = write(replay, every, row_of(0, 0, 0, first=True, weight=[1.0] * 3), np.int32(0))
    replay = write(replay, every, row_of(1, 1, 1, weight=[np.nan, np.inf, 2.0]), np.int32(0))
    assert np.asarray(replay.weight)[:, 0].tolist() == [5.0, 5.0, 2.0]


@pytest.mark.parametrize("mine", [[False, True], None], ids=["one of several", "alone"])
def test_a_player_forgets_its_own_rows_and_draws_the_next_ones(mine: list[bool] | None) -> None:
    replay = harness.create(2, 4, shared=mine is not None)
    for slot in (0, 1):
        replay = harness.history(replay, 0, 1, 2, first=(0,), slot=slot)
    replay = ring_store.forget(replay._replace(mine=None if mine is None else np.array(mine)))
    other = [1, 1, 0, 0] if mine else [0] * 4
    assert (harness.weights(replay), harness.weights(replay, slot=1)) == (other, [0] * 4)
    replay = harness.put(replay, 3, slot=1)  # completes the row that was pending then
    assert (harness.weights(replay), harness.weights(replay, slot=1)) == (other, [0, 0, 1, 0])
    assert np.asarray(replay.cursor).tolist() == [3, 4]


def test_the_newest_row_of_chosen_slots_gets_another_value() -> None:
    stored = {"action": sources.Stored((), np.dtype(np.int32))}
    replay = ring_store.create(harness.spec(), stored, 3, 4)
    write = jax.jit(lambda replay, slot, row: ring_store.write(replay, slot, row, np.int32(0), 1))
    for number in range(5):  # slot 1 has rows of two rounds
        replay = write(replay, np.array([1]), row_of(number, action=np.array([10 + number])))
    replay = write(replay, np.array([2]), row_of(9, action=np.array([19])))
    before = np.asarray(replay.stored["action"]).copy()
    slots, values = np.array([1, 2, 3, -1], np.int32), np.array([7, 8, 9, 9], np.int32)
    amend = jax.jit(lambda replay, chosen: ring_store.amend(replay, slots, "action", values, chosen))
    found = amend(replay, np.array([True, False, True, True]))
    expected = before.copy()
    expected[1, 0] = 7  # row 4 lies at 4 % 4
    np.testing.assert_array_equal(found.stored["action"], expected)
    np.testing.assert_array_equal(found.cursor, replay.cursor)


SLOTS, LENGTH, STACK = 3, 5, 2


@pytest.mark.parametrize(
    ("shape", "dtype", "rows"),
    [
        ((96, 96, 1), "uint8", 72),
        ((84, 84, 1), "uint8", 56),  # 7056 numbers, 55.1 rows
        ((84, 84, 3), "uint8", 168),  # 165.4 rows: in whole tiles of 8
        ((210, 160, 3), "uint8", 792),  # 787.5 rows
        ((42, 42, 1), "uint8", 14),  # whole tiles would add a seventh
        ((256,), "float32", 2),
        ((1025,), "bool", 9),
    ],
)
def test_frames_of_a_kibibyte_or_more_lie_in_rows_of_128(shape: tuple[int, ...], dtype: str, rows: int) -> None:
    frames = ring_store.zero_rows(SLOTS, LENGTH, shape, np.dtype(dtype))
    assert frames.shape == (SLOTS, LENGTH, *shape) and frames.dtype == np.dtype(dtype)
    assert frames.packed.shape == (SLOTS, LENGTH, rows, 128)


def test_small_images_lie_flat_and_vectors_as_they_are() -> None:
    frames = ring_store.zero_rows(SLOTS, LENGTH, (10, 10, 10), np.dtype(bool))  # 1000 bytes
    assert frames.shape == (SLOTS, LENGTH, 10, 10, 10) and frames.packed.shape == (SLOTS, LENGTH, 1000)
    for shape in ((), (255,)):
        assert isinstance(ring_store.zero_rows(SLOTS, LENGTH, shape, np.dtype(np.float32)), jax.Array)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((9, 9, 13), "uint8"), ((64, 4), "float32"), ((3, 5), "bool"), ((2,), "int32")]
)
def test_frames_come_back_as_they_were_and_those_of_no_slot_are_dropped(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    frames = ring_store.zero_rows(SLOTS, LENGTH, shape, np.dtype(dtype))
    expected = np.zeros(frames.shape, dtype)
    put = jax.jit(ring_store.put_rows)
    for _ in range(4):
        slot, time = np.array([2, SLOTS, 0]), rng.integers(0, LENGTH, 3)
        new = rng.integers(1, 200, (3, *shape)).astype(dtype)
        frames = put(frames, slot, time, new)
        expected[slot[[0, 2]], time[[0, 2]]] = new[[0, 2]]
    everywhere = np.indices((SLOTS, LENGTH))
    np.testing.assert_array_equal(jax.jit(ring_store.get_frames)(frames, *everywhere), expected)


def test_a_ring_of_large_frames_is_written_in_place_and_read_in_windows() -> None:
    spec = types.EnvSpec(observation_shape=(7, 50, 3), observation_dtype="uint8", num_actions=2)
    rings = jax.jit(lambda: ring_store.create(spec, {}, SLOTS, LENGTH))()
    write = jax.jit(functools.partial(ring_store.write, stack=STACK), donate_argnums=0)
    pointer = rings.observation.packed.unsafe_buffer_pointer()
    slot = np.arange(SLOTS)
    history = np.random.default_rng(1).integers(0, 256, (8, SLOTS, 7, 50, 3)).astype(np.uint8)
    for number, frame in enumerate(history):
        no = np.zeros(SLOTS, bool)
        row = ring_store.Row(frame, np.zeros(SLOTS, np.float32), no, no, no | (number == 0), {})
        rings = write(rings, slot, row, np.int32(number))
    assert rings.observation.packed.unsafe_buffer_pointer() == pointer
    # Rows 4 to 7 of each slot have a whole stack; time 0 is row 5.

    @jax.jit
    def read(rings: ring_store.Rings, time: jax.Array) -> windowing.Windows:
        return windowing.read(rings, windowing.at(rings, slot, time, length=2, observe=(0, 1), stack=STACK))

    found = read(rings, np.zeros(SLOTS, np.int32)).observation[types.OBSERVATION]
    for position, number in enumerate((5, 6)):
        expected = np.concatenate([history[number - 1], history[number]], axis=-1)
        np.testing.assert_array_equal(found[:, position], expected)
