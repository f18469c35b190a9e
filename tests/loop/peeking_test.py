"""Stored numbers of watched steps: each step gets its own, and steps that are not stored get none."""

from __future__ import annotations

import threading
import types as python_types
from typing import Any

import jax.numpy as jnp
import loop_world
import numpy as np
import pytest

from seedzero.core import types
from seedzero.loop import peeking
from seedzero.replay import data as sources
from seedzero.replay import rings as ring_store

SPEC = types.EnvSpec((2,), "float32", 3)


def _compiled() -> None:
    for thread in threading.enumerate():
        if thread.name == "peek":
            thread.join(60)


def _step(**values: Any) -> Any:
    return python_types.SimpleNamespace(stored=None, **values)


def _look(peek: peeking.Peek, rings: ring_store.Rings, num_rows: int) -> peeking.Looked:
    looked = peek.look(rings, 1, num_rows - 1)
    assert looked is not None
    return looked


@pytest.mark.parametrize("num_rows", [3, 7, 11])
def test_rows_belong_to_the_newest_steps(num_rows: int) -> None:
    number = np.dtype(np.float32)
    stored = {
        "value": sources.Stored((), number),
        "policy": sources.Stored((3,), number),
        "state": sources.Stored((4,), number),
        "action": sources.Stored((), np.dtype(np.int32)),
    }
    rings = ring_store.create(SPEC, stored, 2, 8)
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
    peek = peeking.Peek(rings)
    _compiled()
    assert peek.columns == [("value", 1), ("policy", 3)] and peek.is_ready
    steps = [
        _step(number=index, reward=float(index), first=index == 0, action=index % 3 if index % 2 else None)
        for index in range(num_rows + 1)  # the last one was shown after the look
    ]
    assert _look(peek, rings, num_rows).fill(steps)
    expected = [[10.0 + index, *[0.5 * index] * 3] for index in range(num_rows)]
    kept = min(num_rows, 8)
    assert [step.stored for step in steps] == [*[None] * (num_rows - kept), *expected[num_rows - kept :], None]
    last = num_rows - 1
    for reward, action in ((99.0, None), (float(last), (last + 1) % 3)):
        other = _step(number=last, reward=reward, first=False, action=action)
        assert not _look(peek, rings, num_rows).fill([other]) and other.stored is None
    shorter = ring_store.create(SPEC, stored, 2, 4)
    assert peek.look(shorter, 1, 0) is None and not peek.is_ready  # and the loop goes on


def test_without_such_numbers_nothing_is_compiled() -> None:
    rings = ring_store.create(SPEC, {"action": sources.Stored((), np.dtype(np.int32))}, 2, 8)
    assert not peeking.Peek(rings).columns


@pytest.mark.parametrize(("name", "widths"), [("make", {"value": 1, "policy": 3}), ("make_queued", {"logits": 3})])
def test_a_watched_environment_gets_its_numbers(
    request: pytest.FixtureRequest, name: str, widths: dict[str, int]
) -> None:
    world: loop_world.World = request.getfixturevalue(name)()
    tap, session = world.dispatcher.tap, world.join()
    tap.ask()
    tap.steps_since(1, 0)
    world.play(session, 1)
    _compiled()
    for index in range(1, 8):
        for group in range(len(session.slots)):
            world.show(session, group, float(index), reward=float(index))
        world.work()
        kept = tap.steps_since(1, 0)
    assert kept is not None and dict(kept.columns) == widths
    filled = [step for step in kept.steps if step.stored is not None]
    assert filled and filled[-1] is kept.steps[-1]
    if name == "make":
        value = np.asarray(world.player.rings.stored["value"])
        assert filled[-1].stored is not None and filled[-1].stored[0] == value[1, filled[-1].number]
