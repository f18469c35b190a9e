"""Priorities: their rows in the rings, and the largest one."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import replay_harness as harness

from seedzero.config import sections
from seedzero.replay import priorities, ring_store, sources

PRIORITIZATION = sources.Prioritization(alpha=0.5, beta=0.4, epsilon=0.01)

prioritize = jax.jit(priorities.prioritize, static_argnames="prioritization")
write = jax.jit(functools.partial(ring_store.write, stack=1), donate_argnums=0)


def put(replay: ring_store.Rings, *, first: bool = False) -> ring_store.Rings:
    """Writes one row into slot 0."""
    no = jnp.array([False])
    row = ring_store.Row(jnp.zeros((1, 1), jnp.int32), jnp.zeros(1), no, no, jnp.array([first]), {})
    written: ring_store.Rings = write(replay, jnp.array([0]), row, jnp.int32(0))
    return written


def test_the_weight_of_a_priority_is_that_of_the_paper() -> None:
    # (priority + 0.01) ^ 0.5
    np.testing.assert_allclose(
        priorities.weights(jnp.array([0.0, 0.24, 8.99]), PRIORITIZATION), [0.1, 0.5, 3.0], rtol=1e-6
    )


def test_empty_rings_give_windows_that_weigh_nothing_and_stay_empty() -> None:
    replay = ring_store.create(harness.spec(), {}, 2, 8, prioritized=True)
    drawn = harness.jitted_sample(3)(replay, jax.random.key(0), beta=0.4)
    assert np.asarray(drawn.weight).tolist() == [0.0] * 3
    after = prioritize(replay, drawn.slot, drawn.time, jnp.full(3, 7.0), prioritization=PRIORITIZATION)
    assert not np.asarray(after.weight).any()
    assert float(after.max_weight[0]) == 1.0


def test_new_rows_have_the_largest_priority_ever_seen() -> None:
    replay = ring_store.create(harness.spec(), {}, 2, 6, prioritized=True)
    replay = put(put(replay, first=True))
    assert np.asarray(replay.weight)[0].tolist() == [1, 0, 0, 0, 0, 0]
    replay = prioritize(replay, jnp.array([0]), jnp.array([0]), jnp.array([8.99]), prioritization=PRIORITIZATION)
    assert float(priorities.max_priority(replay.max_weight, PRIORITIZATION)) == pytest.approx(9.0)
    replay = put(replay)
    np.testing.assert_allclose(replay.weight[0], [3, 3, 0, 0, 0, 0], rtol=1e-6)
    # Smaller ones since then don't lower it; neither a cut nor the pending row gets it.
    replay = prioritize(
        replay, jnp.array([0, 0]), jnp.array([0, 1]), jnp.array([0.03, 0.15]), prioritization=PRIORITIZATION
    )
    np.testing.assert_allclose(replay.weight[0], [0.2, 0.4, 0, 0, 0, 0], rtol=1e-5)
    replay = put(put(replay), first=True)
    np.testing.assert_allclose(replay.weight[0], [0.2, 0.4, 3, 0, 0, 0], rtol=1e-5)


def test_only_rows_that_can_be_sampled_get_the_priorities_that_are_written() -> None:
    replay = harness.weighted([[1.0, 0.0, 2.0], [3.0, 0.0, 4.0]])
    slot, time = jnp.array([0, 0, 1, 1]), jnp.array([0, 1, 0, 2])
    after = prioritize(replay, slot, time, jnp.array([0.24, 99.0, 0.0, jnp.nan]), prioritization=PRIORITIZATION)
    np.testing.assert_allclose(after.weight, [[0.5, 0.0, 2.0], [0.1, 0.0, 4.0]], rtol=1e-6)
    assert float(after.max_weight[0]) == 4.0
    endless = prioritize(replay, slot, time, jnp.full(4, jnp.inf), prioritization=PRIORITIZATION)
    np.testing.assert_array_equal(endless.weight, replay.weight)


def test_a_refused_update_leaves_the_largest_weight_and_takes_priorities_to_0() -> None:
    replay = harness.weighted([[1.0, 2.0, 2.0]])._replace(max_weight=jnp.array([4.0]))
    slot, time, priority = jnp.zeros(3, jnp.int32), jnp.arange(3), jnp.array([99.0, jnp.inf, jnp.nan])
    after = prioritize(replay, slot, time, priority, prioritization=PRIORITIZATION, refused=jnp.bool_(True))
    np.testing.assert_allclose(after.weight, [[0.1, 0.1, 2.0]], rtol=1e-6)  # (0 + 0.01) ^ 0.5; NaN keeps its own
    assert after.max_weight.tolist() == [4.0]
    accepted = prioritize(replay, slot, time, priority, prioritization=PRIORITIZATION, refused=jnp.bool_(False))
    np.testing.assert_allclose(accepted.weight, [[99.01**0.5, 2.0, 2.0]], rtol=1e-6)
    np.testing.assert_allclose(accepted.max_weight, [99.01**0.5], rtol=1e-6)


def test_of_a_row_that_was_sampled_more_than_once_the_largest_priority_stays() -> None:
    random = np.random.default_rng(0)
    replay = harness.weighted(np.ones((4, 8)))
    slot, time = random.integers(0, 4, 200), random.integers(0, 8, 200)
    priority = random.random(200).astype(np.float32)
    expected = np.ones((4, 8))
    for place in set(zip(slot.tolist(), time.tolist(), strict=True)):
        expected[place] = np.sqrt(priority[(slot == place[0]) & (time == place[1])].max() + 0.01)
    first: Any = None
    for _ in range(5):
        after = prioritize(replay, slot, time, priority, prioritization=PRIORITIZATION)
        np.testing.assert_allclose(after.weight, expected, rtol=1e-6)
        first = after if first is None else first
        np.testing.assert_array_equal(after.weight, first.weight)
        order = random.permutation(200)
        slot, time, priority = slot[order], time[order], priority[order]


def test_priorities_are_written_in_place() -> None:
    replay = harness.weighted(np.ones((4, 1_000)))
    donating = jax.jit(priorities.prioritize, static_argnames="prioritization", donate_argnums=0)
    arguments = (replay, jnp.zeros(2, jnp.int32), jnp.zeros(2, jnp.int32), jnp.ones(2))
    memory: Any = donating.lower(*arguments, prioritization=PRIORITIZATION).compile().memory_analysis()
    assert memory.alias_size_in_bytes >= sum(x.nbytes for x in jax.tree.leaves(replay))
    assert memory.temp_size_in_bytes < replay.weight.nbytes


def test_without_alpha_nothing_is_prioritized_and_nothing_more_is_stored() -> None:
    assert priorities.prioritization(sections.ReplayConfig()) is None
    how = priorities.prioritization(sections.ReplayConfig(priority_alpha=0.6, priority_beta=0.5, importance_min=0.2))
    assert how == (0.6, 0.5, 1e-3, 0.2)
    assert ring_store.create(harness.spec(), {}, 2, 8).max_weight is None
    assert ring_store.create(harness.spec(), {}, 4, 8, num_shards=2, prioritized=True).max_weight.shape == (2,)  # type: ignore[union-attr]
