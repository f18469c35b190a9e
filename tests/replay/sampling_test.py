"""Sampling: exact probabilities, uniform and by priority, and importance weights by hand."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import replay_harness as harness

from seedzero.config import sections
from seedzero.replay import ring_store, sampling, sources


def one_by_one(replay: ring_store.Rings, *numbers: int) -> ring_store.Rings:
    """Writes the rows of one episode; row n completes transition n - 1 of all."""
    return harness.history(replay, *numbers, first=(0,), num_inserts=lambda number: max(number - 1, 0))


def chi_square_is_ordinary(counts: np.ndarray, expected: np.ndarray) -> bool:
    """Whether counts are as far from what is expected as chance has them: within 4 standard deviations."""
    counts, expected = counts[expected > 20], expected[expected > 20]
    degrees = len(counts) - 1
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    return bool(abs(chi_square - degrees) < 4 * np.sqrt(2 * degrees))


# Uniformly -----------------------------------------------------------------------------------------------------------


def test_sampling_is_uniform_over_steps_not_over_slots() -> None:
    weight = np.zeros((3, 300), np.float32)
    weight[0, :200], weight[2, 5:15] = 1, 1
    drawn = harness.sample(harness.weighted(weight), 21_000, seed=3)
    counts = harness.counts(drawn, weight.shape)
    assert counts[weight == 0].sum() == 0
    # 209 degrees of freedom; the key is fixed.
    assert chi_square_is_ordinary(counts[weight == 1], np.full(210, 21_000 / 210))
    assert drawn.weight.tolist() == [1.0] * 21_000


def test_sampling_follows_weights_that_are_not_one() -> None:
    counts = harness.counts(harness.sample(harness.weighted([[0, 1, 0, 3, 0, 0, 0, 0]]), 4_000), (1, 8))[0]
    assert counts[[1, 3]].sum() == 4_000
    assert counts[3] == pytest.approx(3_000, abs=120)


@pytest.mark.thorough
def test_steps_older_than_the_capacity_do_not_count() -> None:
    replay = one_by_one(harness.create(1, 32), *range(11))
    # Rows 0 to 9 were inserted as number 0 to 9; of 10 steps the newest 4 are 6 to 9.
    weight = np.asarray(sampling.sampling_weight(replay, jnp.int32(10), 4))[0]
    assert np.flatnonzero(weight).tolist() == [6, 7, 8, 9]
    assert set(harness.sample(replay, 200, capacity=4, num_inserts=10).time.tolist()) == {6, 7, 8, 9}


def test_a_player_draws_its_own_slots_alone() -> None:
    replay = harness.weighted(np.ones((4, 8)))
    drawn = harness.sample(replay._replace(mine=np.array([False, True, False, True])), 400)
    assert set(drawn.slot.tolist()) == {1, 3} and set(drawn.weight.tolist()) == {1.0}
    assert set(harness.sample(replay, 400).slot.tolist()) == {0, 1, 2, 3}


def test_steps_are_counted_beyond_the_largest_number_of_32_bits() -> None:
    def wrapped(number: int) -> int:
        return int(np.uint32(number % 2**32).astype(np.int32))

    before = 2**31 - 5  # rows 1 to 10 are inserted around the largest int32
    replay = harness.create(2, 32)
    replay = harness.history(replay, *range(11), first=(0,), num_inserts=lambda number: wrapped(before + number - 1))
    old = replay.weight.at[1, 3].set(1.0)  # of a worker that left when the run began

    def sampled(num_inserts: int) -> list[tuple[int, int]]:
        weight = sampling.sampling_weight(replay._replace(weight=old), jnp.int32(wrapped(num_inserts)), 4)
        return [(int(slot), int(time)) for slot, time in np.argwhere(np.asarray(weight))]

    assert sampled(before + 10) == [(0, 6), (0, 7), (0, 8), (0, 9)]
    assert sampled(2**31 + 100) == sampled(2**32 - 100) == []


def test_rows_with_too_few_rows_behind_them_wait() -> None:
    replay = one_by_one(harness.create(1, 8), *range(7))
    wanted = sources.Replay(length=2, observe=(0,), following=3)
    assert set(harness.sample(replay, 200, replay=wanted, num_inserts=10).time.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(("stack", "lag", "left"), [(1, 0, 7), (1, 3, 4), (2, 3, 3)])
def test_rows_that_are_overwritten_within_the_lag_are_not_sampled(stack: int, lag: int, left: int) -> None:
    replay = harness.history(harness.create(1, 8), *range(21), first=(0,), stack=stack)
    drawn = harness.sample(replay, 300, stack=stack, lag=lag)
    # Row 20 is the newest and pending; 13 would be overwritten next.
    assert {int(number) for number in harness.frames(drawn)[:, 0, -1]} == set(range(20 - left, 20))
    assert set(drawn.weight.tolist()) == {1.0}


def test_windows_from_empty_rings_weigh_nothing() -> None:
    assert harness.sample(harness.create(1, 8), 2).weight.tolist() == [0.0, 0.0]


# A stride ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [None, 1.0])
def test_windows_with_a_stride_begin_at_rows_whose_number_is_a_multiple(beta: float | None) -> None:
    weight = np.ones((2, 12), np.float32)
    weight[0, [3, 4]] = 0
    replay = harness.weighted(weight * np.array([[1.0], [2.0]]))._replace(cursor=jnp.array([12, 29]))
    wanted = sources.Replay(length=1, observe=(0,), stride=3)
    drawn = harness.sample(replay, 4_000, replay=wanted, beta=beta)
    counts = harness.counts(drawn, (2, 12))
    # Slot 0 can begin at places 0, 6 and 9, slot 1 at 0, 3, 6 and 9 twice as likely: 3 of 11, and 8.
    assert (np.flatnonzero(counts[0]).tolist(), np.flatnonzero(counts[1]).tolist()) == ([0, 6, 9], [0, 3, 6, 9])
    assert counts[0].sum() == pytest.approx(4_000 * 3 / 11, abs=120)
    expected = np.ones(4_000) if beta is None else np.where(drawn.slot == 0, 1.0, 0.5)
    np.testing.assert_allclose(drawn.weight, expected, rtol=1e-6)


def test_where_no_row_of_the_stride_can_be_sampled_windows_weigh_nothing() -> None:
    replay = harness.weighted([[0.0, 1.0, 0.0, 1.0]])
    wanted = sources.Replay(length=1, observe=(0,), stride=2)
    for beta in (None, 0.4):
        assert harness.sample(replay, 3, replay=wanted, beta=beta).weight.tolist() == [0.0] * 3


# By priority ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # single rows are drawn with their own probability below
def test_a_million_skewed_priorities_are_drawn_as_often_as_they_should_be() -> None:
    random = np.random.default_rng(0)
    weight = np.exp(3 * random.standard_normal((100, 10_000))).astype(np.float32)  # from a millionth to a million
    weight[random.random(weight.shape) < 0.2] = 0.0
    weight[:, 5_000:5_200] = 0.0
    replay, per_call = harness.weighted(weight), 20_000
    found = (harness.counts(harness.sample(replay, per_call, seed, beta=0.4), (100, 10_000)) for seed in range(40))
    counts = np.sum(list(found), axis=0).reshape(-1)
    flat = weight.reshape(-1).astype(np.float64)
    assert counts.sum() == 40 * per_call
    assert counts[flat == 0].sum() == 0
    expected = flat / flat.sum() * counts.sum()
    # Bins of about equal expectation: of rows that are alike in weight, of neighbours, and of every 1,000th row.
    for order in (np.argsort(flat), np.arange(flat.size), np.arange(flat.size).reshape(-1, 1_000).T.reshape(-1)):
        edges = np.searchsorted(np.cumsum(expected[order]), np.linspace(0, counts.sum(), 501)[1:-1])
        binned = [np.array([part.sum() for part in np.split(x[order], np.unique(edges))]) for x in (counts, expected)]
        assert len(binned[0]) > 300
        assert chi_square_is_ordinary(*binned)
    # The rarest two thirds of the rows altogether, which one cumulative sum over all would hardly tell from nothing.
    rare = np.argsort(flat)[: flat.size * 2 // 3]
    assert counts[rare].sum() == pytest.approx(expected[rare].sum(), abs=4 * np.sqrt(expected[rare].sum()))
    assert expected[rare].sum() > 1_000


@pytest.mark.thorough
def test_single_rows_are_drawn_with_their_own_probability() -> None:
    weight = np.exp(2 * np.random.default_rng(1).standard_normal((3, 70)))
    weight[1, 10:50] = 0.0
    counts = harness.counts(harness.sample(harness.weighted(weight), 400_000, beta=0.4), (3, 70))
    expected = 400_000 * weight / weight.sum()
    assert counts[weight == 0].sum() == 0
    assert chi_square_is_ordinary(counts.reshape(-1), expected.reshape(-1))


@pytest.mark.thorough
@pytest.mark.parametrize("num_children", [3, 32, 5_000])
def test_nothing_of_weight_zero_is_chosen_whatever_the_random_number(num_children: int) -> None:
    random = np.random.default_rng(num_children)
    weight = np.exp(8 * random.standard_normal((300, num_children))).astype(np.float32)
    weight[random.random(weight.shape) < random.random((300, 1))] = 0.0
    weight[weight.sum(axis=1) == 0, 1] = 1e-30
    weight[:, [0, -1]] = 0.0
    weight[weight.sum(axis=1) == 0, 1] = 1e-30
    choose = jax.jit(sampling._choose_positive)
    # The smallest numbers there are, the largest, and some between.
    for uniform in (0.0, 2.0**-23, 0.3, 0.9, 1 - 2.0**-23, 1 - 2.0**-24):
        chosen = np.asarray(choose(weight, jnp.full(300, uniform)))
        assert (weight[np.arange(300), chosen] > 0).all()


def test_steps_older_than_the_capacity_are_not_drawn_by_priority_either() -> None:
    replay = harness.weighted([[100.0, 100.0, 1.0, 2.0]])
    replay = replay._replace(inserted_at=jnp.array([[-5, -4, -3, -2]], jnp.int32))
    drawn = harness.sample(replay, 200, capacity=3, beta=1.0)
    assert set(drawn.time.tolist()) == {2, 3}
    # Nor do they count for the importance weights.
    np.testing.assert_allclose(drawn.weight, np.where(drawn.time == 2, 1.0, 0.5), rtol=1e-6)


# Importance weights --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_importance_weights_are_those_of_the_paper(beta: float) -> None:
    weight = np.array([[0.0, 1.0, 4.0, 0.0, 16.0]])
    drawn = harness.sample(harness.weighted(weight), 64, beta=beta)
    probability = (weight / weight.sum())[0, drawn.time]
    assert set(drawn.time.tolist()) == {1, 2, 4}
    unscaled = (3 * probability) ** -beta
    np.testing.assert_allclose(drawn.weight, unscaled / unscaled.max(), rtol=1e-6)


@pytest.mark.thorough
def test_importance_weights_have_a_least_share_of_the_largest() -> None:
    weight = np.array([[1.0, 4.0, 16.0]])
    drawn = harness.sample(harness.weighted(weight), 64, beta=1.0, least=0.1)
    expected = np.array([1.0, 0.25, 0.1])[drawn.time]  # in place of 1/16
    np.testing.assert_allclose(drawn.weight, expected, rtol=1e-6)
    nothing = harness.sample(harness.weighted(0 * weight), 4, beta=1.0, least=0.1)
    assert nothing.weight.tolist() == [0.0] * 4


PRIORITIZATION = sources.Prioritization(alpha=0.5, beta=0.4, epsilon=0.01)

prioritize = jax.jit(sampling.prioritize, static_argnames="prioritization")
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
        sampling.weights(jnp.array([0.0, 0.24, 8.99]), PRIORITIZATION), [0.1, 0.5, 3.0], rtol=1e-6
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
    assert float(sampling.max_priority(replay.max_weight, PRIORITIZATION)) == pytest.approx(9.0)
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
    donating = jax.jit(sampling.prioritize, static_argnames="prioritization", donate_argnums=0)
    arguments = (replay, jnp.zeros(2, jnp.int32), jnp.zeros(2, jnp.int32), jnp.ones(2))
    memory: Any = donating.lower(*arguments, prioritization=PRIORITIZATION).compile().memory_analysis()
    assert memory.alias_size_in_bytes >= sum(x.nbytes for x in jax.tree.leaves(replay))
    assert memory.temp_size_in_bytes < replay.weight.nbytes


def test_without_alpha_nothing_is_prioritized_and_nothing_more_is_stored() -> None:
    assert sampling.prioritization(sections.ReplayConfig()) is None
    how = sampling.prioritization(sections.ReplayConfig(priority_alpha=0.6, priority_beta=0.5, importance_min=0.2))
    assert how == (0.6, 0.5, 1e-3, 0.2)
    assert ring_store.create(harness.spec(), {}, 2, 8).max_weight is None
    assert ring_store.create(harness.spec(), {}, 4, 8, num_shards=2, prioritized=True).max_weight.shape == (2,)  # type: ignore[union-attr]
