"""Packed frames against plain arrays of numpy: the same frames, whatever their shape."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from seedzero.core import types
from seedzero.replay import frame_rows, ring_store, windowing

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
    frames = frame_rows.zeros(SLOTS, LENGTH, shape, np.dtype(dtype))
    assert frames.shape == (SLOTS, LENGTH, *shape) and frames.dtype == np.dtype(dtype)
    assert frames.packed.shape == (SLOTS, LENGTH, rows, 128)


def test_small_images_lie_flat_and_vectors_as_they_are() -> None:
    frames = frame_rows.zeros(SLOTS, LENGTH, (10, 10, 10), np.dtype(bool))  # 1000 bytes
    assert frames.shape == (SLOTS, LENGTH, 10, 10, 10) and frames.packed.shape == (SLOTS, LENGTH, 1000)
    for shape in ((), (255,)):
        assert isinstance(frame_rows.zeros(SLOTS, LENGTH, shape, np.dtype(np.float32)), jax.Array)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((9, 9, 13), "uint8"), ((64, 4), "float32"), ((3, 5), "bool"), ((2,), "int32")]
)
def test_frames_come_back_as_they_were_and_those_of_no_slot_are_dropped(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    frames = frame_rows.zeros(SLOTS, LENGTH, shape, np.dtype(dtype))
    expected = np.zeros(frames.shape, dtype)
    put = jax.jit(frame_rows.put)
    for _ in range(4):
        slot, time = np.array([2, SLOTS, 0]), rng.integers(0, LENGTH, 3)
        new = rng.integers(1, 200, (3, *shape)).astype(dtype)
        frames = put(frames, slot, time, new)
        expected[slot[[0, 2]], time[[0, 2]]] = new[[0, 2]]
    everywhere = np.indices((SLOTS, LENGTH))
    np.testing.assert_array_equal(jax.jit(frame_rows.get)(frames, *everywhere), expected)


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
