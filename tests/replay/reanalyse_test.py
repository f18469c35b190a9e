"""Drawing steps whose targets have aged, and writing new targets over theirs."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.core import types
from seedzero.replay import reanalyse, ring_store, sources

SPEC = types.EnvSpec(observation_shape=(1,), observation_dtype="int32", num_actions=2)
STORED = {
    "action": sources.Stored((), np.dtype(np.int32)),
    "policy": sources.Stored((2,), np.dtype(np.float32)),
    "value": sources.Stored((), np.dtype(np.float32)),
    "version": sources.Stored((), np.dtype(np.int32)),
    ring_store.TARGET_VERSION: sources.Stored((), np.dtype(np.int32)),
}
SLOTS, LENGTH = 3, 8

retarget = jax.jit(reanalyse.retarget, donate_argnums=0)


@functools.cache
def jitted_draw(batch_size: int, capacity: int = 1_000) -> Any:
    draw = functools.partial(reanalyse.draw_stale, batch_size=batch_size, capacity=capacity, num_inserts=jnp.int32(0))
    return jax.jit(draw)


def filled(weight: Any, version: Any, *, prioritized: bool = False) -> ring_store.Rings:
    """Returns rings with these weights and versions of their targets [S, T]; every other number is another one."""
    replay = ring_store.create(SPEC, STORED, SLOTS, LENGTH, prioritized=prioritized)
    random = np.random.default_rng(0)
    replay = jax.tree.map(lambda x: jnp.asarray(random.integers(0, 100, x.shape), x.dtype), replay)
    return replay._replace(
        weight=jnp.asarray(weight, jnp.float32),
        inserted_at=jnp.zeros((SLOTS, LENGTH), jnp.int32),
        stored={**replay.stored, ring_store.TARGET_VERSION: jnp.asarray(version, jnp.int32)},
    )


def new_targets(batch_size: int) -> dict[str, jax.Array]:
    numbers = 1000.0 + jnp.arange(batch_size)
    return {"policy": jnp.stack([numbers, -numbers], axis=1), "value": numbers / 2}


def counts(replay: ring_store.Rings, *, before: int, batch_size: int = 4_000, **options: int) -> np.ndarray:
    """Returns how often each row [S, T] was drawn."""
    slot, time = jitted_draw(batch_size, **options)(replay, jax.random.key(0), before=jnp.int32(before))
    drawn = np.zeros((SLOTS, LENGTH), int)
    np.add.at(drawn, (np.asarray(slot), np.asarray(time)), 1)
    return drawn


def test_stale_steps_are_drawn_equally_often_whatever_their_priority() -> None:
    random = np.random.default_rng(1)
    weight = np.where(random.random((SLOTS, LENGTH)) < 0.7, 10.0 ** random.integers(-3, 4, (SLOTS, LENGTH)), 0)
    version = random.integers(0, 10, (SLOTS, LENGTH))
    drawn = counts(filled(weight, version, prioritized=True), before=6)
    stale = (weight > 0) & (version < 6)
    assert 5 < stale.sum() < (weight > 0).sum()
    assert (drawn[~stale] == 0).all()
    expected = drawn.sum() / stale.sum()
    assert (abs(drawn[stale] - expected) < 5 * np.sqrt(expected)).all()


def test_steps_older_than_the_capacity_are_not_drawn() -> None:
    replay = filled(np.ones((SLOTS, LENGTH)), np.zeros((SLOTS, LENGTH)))
    kept = np.arange(SLOTS * LENGTH).reshape(SLOTS, LENGTH) >= 20
    replay = replay._replace(inserted_at=jnp.where(kept, -3, -4))
    assert ((counts(replay, before=1, batch_size=200, capacity=3) > 0) == kept).all()


@pytest.mark.parametrize(("weight", "before"), [(1.0, 5), (0.0, 6)])
def test_where_nothing_is_stale_nothing_is_written(weight: float, before: int) -> None:
    replay = filled(np.full((SLOTS, LENGTH), weight), np.full((SLOTS, LENGTH), 5))
    slot, time = jitted_draw(4)(replay, jax.random.key(0), before=jnp.int32(before))
    assert (np.asarray(slot) == SLOTS).all()
    expected = jax.tree.map(np.asarray, replay)
    after, written = retarget(replay, slot, time, new_targets(4), jnp.int32(9))
    assert not np.asarray(written).any()
    jax.tree.map(np.testing.assert_array_equal, after, expected)


@pytest.mark.parametrize("prioritized", [False, True])
def test_new_targets_replace_the_old_ones_of_their_rows_and_nothing_else(prioritized: bool) -> None:
    weight = np.ones((SLOTS, LENGTH))
    weight[1, 3] = 0.0  # a row without a transition
    replay = filled(weight, np.full((SLOTS, LENGTH), 2), prioritized=prioritized)
    before = jax.tree.map(np.array, replay)
    # Row (0, 5) twice, one that can't be sampled, slots that don't exist, of which -3 would be 0 if it wrapped.
    slot = jnp.array([0, 2, 0, 1, SLOTS, -3, 1], jnp.int32)
    time = jnp.array([5, 7, 5, 3, 0, 0, 0], jnp.int32)
    after, written = retarget(replay, slot, time, new_targets(7), jnp.int32(9))
    assert np.asarray(written).tolist() == [True, True, False, False, False, False, True]
    expected = before
    for row, place in ((0, (0, 5)), (1, (2, 7)), (6, (1, 0))):
        expected.stored["policy"][place] = [1000.0 + row, -1000.0 - row]
        expected.stored["value"][place] = (1000.0 + row) / 2
        expected.stored[ring_store.TARGET_VERSION][place] = 9
    jax.tree.map(np.testing.assert_array_equal, after, expected)


def test_targets_that_are_not_finite_are_not_written() -> None:
    replay = filled(np.ones((SLOTS, LENGTH)), np.zeros((SLOTS, LENGTH)))
    before = jax.tree.map(np.array, replay)
    targets = new_targets(3)
    targets["policy"] = targets["policy"].at[0, 1].set(jnp.nan)
    targets["value"] = targets["value"].at[2].set(jnp.inf)
    after, written = retarget(replay, jnp.array([0, 1, 2]), jnp.array([3, 4, 5]), targets, jnp.int32(9))
    assert np.asarray(written).tolist() == [False, True, False]
    before.stored["policy"][1, 4], before.stored["value"][1, 4] = [1001.0, -1001.0], 500.5
    before.stored[ring_store.TARGET_VERSION][1, 4] = 9
    jax.tree.map(np.testing.assert_array_equal, after, before)


def test_rings_that_are_given_away_are_written_in_place() -> None:
    replay = filled(np.ones((SLOTS, LENGTH)), np.zeros((SLOTS, LENGTH)))
    places = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(replay)]
    after, _ = retarget(replay, jnp.array([0]), jnp.array([1]), new_targets(1), jnp.int32(1))
    assert [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(after)] == places


def test_rows_that_others_moved_are_never_drawn() -> None:
    random = np.random.default_rng(2)
    own, version = random.random((SLOTS, LENGTH)) < 0.5, random.integers(0, 4, (SLOTS, LENGTH))
    replay = filled(np.ones((SLOTS, LENGTH)), version)
    marked = replay._replace(stored={**replay.stored, ring_store.OWN: jnp.asarray(own)})
    drawn, stale = counts(marked, before=3, batch_size=10_000), own & (version < 3)
    assert drawn.sum() == 10_000 == drawn[stale].sum() and 3 < stale.sum() < own.sum() < own.size
    expected = 10_000 / stale.sum()
    assert (abs(drawn[stale] - expected) < 5 * np.sqrt(expected)).all()
    nobody = replay._replace(stored={**replay.stored, ring_store.OWN: jnp.zeros_like(own)})
    slot, _ = jitted_draw(4)(nobody, jax.random.key(0), before=jnp.int32(3))
    assert (np.asarray(slot) == SLOTS).all()
