"""The newest rows of a ring, read by a program of its own."""

from __future__ import annotations

import threading

import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.core import types
from seedzero.device import newest_rows
from seedzero.replay import ring_store, sources

SPEC = types.EnvSpec((2,), "float32", 3)
_NUMBER = np.dtype(np.float32)
STORED = {
    "value": sources.Stored((), _NUMBER),
    "policy": sources.Stored((3,), _NUMBER),
    "state": sources.Stored((4,), _NUMBER),
    "action": sources.Stored((), np.dtype(np.int32)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("num_rows", [3, 7, 11])
def test_the_newest_rows_are_read_in_their_order(num_rows: int) -> None:
    rings = ring_store.create(SPEC, STORED, 2, 8)
    for index in range(num_rows):
        row = ring_store.Row(
            observation=jnp.zeros((1, 2)),
            reward=jnp.full(1, float(index)),
            terminated=jnp.zeros(1, bool),
            truncated=jnp.zeros(1, bool),
            first=jnp.full(1, index == 0),
            stored={
                "value": jnp.full(1, 10.0 + index),
                "policy": jnp.full((1, 3), 0.5 * index),
                "state": jnp.zeros((1, 4)),
                "action": jnp.full(1, index % 3, jnp.int32),
            },
        )
        rings = ring_store.write(rings, jnp.array([1], jnp.int32), row, jnp.int32(index), 1)
    reader = newest_rows.NewestReader(rings)
    for thread in threading.enumerate():
        if thread.name == "peek":
            thread.join(60)
    assert reader.columns == [("value", 1), ("policy", 3)] and reader.is_ready
    look = reader.look(rings, 1)
    assert look is not None
    rows, has_action = look.rows()
    first = max(0, num_rows - 8)
    assert has_action and rows.tolist() == [
        [index, index == 0, index % 3, 10.0 + index, *[0.5 * index] * 3] for index in range(first, num_rows)
    ]
    shorter = ring_store.create(SPEC, STORED, 2, 4)
    assert reader.look(shorter, 1) is None and not reader.is_ready  # and the loop goes on


@pytest.mark.parametrize(("width", "is_shown"), [(newest_rows.MAX_WIDTH, True), (newest_rows.MAX_WIDTH + 1, False)])
def test_the_widest_arrays_are_left_out(width: int, is_shown: bool) -> None:
    rings = ring_store.create(SPEC, {"policy": sources.Stored((width,), _NUMBER)}, 1, 2)
    assert newest_rows.NewestReader(rings).columns == [("policy", width)] * is_shown


def test_without_such_numbers_nothing_is_compiled() -> None:
    rings = ring_store.create(SPEC, {"action": STORED["action"]}, 2, 8)
    assert not newest_rows.NewestReader(rings).columns
