"""Sampling by priority: exact probabilities, what is written back, and importance weights by hand."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import config
from seedzero.core import types
from seedzero.replay import rings

SPEC = types.EnvSpec(observation_shape=(1,), observation_dtype="int32", num_actions=2)
HOW = rings.Prioritization(alpha=0.5, beta=0.4, beta_updates=0, epsilon=0.01)


@functools.cache
def jitted_sample(batch_size: int, *, capacity: int = 2_000_000) -> Any:
    sample = functools.partial(rings.sample, batch_size=batch_size, capacity=capacity, future=0, offsets=(0,), stack=1)
    return jax.jit(functools.partial(sample, num_inserts=np.int32(0)))


prioritize = jax.jit(rings.prioritize, static_argnames="how")
write = jax.jit(functools.partial(rings.write, stack=1), donate_argnums=0)


def filled(weight: Any) -> rings.Rings:
    """Returns rings whose rows [S, T] have these weights, and have all been written."""
    weight = jnp.asarray(weight, jnp.float32)
    replay = rings.create(SPEC, {}, *weight.shape, prioritized=True)
    return replay._replace(weight=weight, cursor=jnp.full(weight.shape[0], weight.shape[1], jnp.int32))


def put(replay: rings.Rings, *, first: bool = False) -> rings.Rings:
    """Writes one row into slot 0."""
    no = jnp.array([False])
    row = rings.Row(jnp.zeros((1, 1), jnp.int32), jnp.zeros(1), no, no, jnp.array([first]), {})
    written: rings.Rings = write(replay, jnp.array([0]), row, jnp.int32(0))
    return written


# Sampling ---------------------------------------------------------------------------------------------------------


def chi_square_is_ordinary(counts: np.ndarray, expected: np.ndarray) -> bool:
    """Whether counts are as far from what is expected as chance has them: within 4 standard deviations."""
    counts, expected = counts[expected > 20], expected[expected > 20]
    degrees = len(counts) - 1
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    return bool(abs(chi_square - degrees) < 4 * np.sqrt(2 * degrees))


def test_a_million_skewed_priorities_are_drawn_as_often_as_they_should_be() -> None:
    random = np.random.default_rng(0)
    weight = np.exp(3 * random.standard_normal((100, 10_000))).astype(np.float32)  # from a millionth to a million
    weight[random.random(weight.shape) < 0.2] = 0.0
    weight[:, 5_000:5_200] = 0.0
    replay, draw, per_call = filled(weight), jitted_sample(20_000), 20_000
    counts = np.zeros(weight.size, np.int64)
    for seed in range(40):
        drawn = draw(replay, jax.random.key(seed), beta=0.4)
        np.add.at(counts, np.asarray(drawn.slot) * weight.shape[1] + np.asarray(drawn.time), 1)
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


def test_single_rows_are_drawn_with_their_own_probability() -> None:
    weight = np.exp(2 * np.random.default_rng(1).standard_normal((3, 70)))
    weight[1, 10:50] = 0.0
    drawn = jitted_sample(400_000)(filled(weight), jax.random.key(0), beta=0.4)
    counts = np.zeros(weight.shape)
    np.add.at(counts, (np.asarray(drawn.slot), np.asarray(drawn.time)), 1)
    expected = 400_000 * weight / weight.sum()
    assert counts[weight == 0].sum() == 0
    assert chi_square_is_ordinary(counts.reshape(-1), expected.reshape(-1))


@pytest.mark.parametrize("num_children", [3, 32, 5_000])
def test_nothing_of_weight_zero_is_chosen_whatever_the_random_number(num_children: int) -> None:
    random = np.random.default_rng(num_children)
    weight = np.exp(8 * random.standard_normal((300, num_children))).astype(np.float32)
    weight[random.random(weight.shape) < random.random((300, 1))] = 0.0
    weight[weight.sum(axis=1) == 0, 1] = 1e-30
    weight[:, [0, -1]] = 0.0
    weight[weight.sum(axis=1) == 0, 1] = 1e-30
    choose = jax.jit(rings._choose_positive)
    # The smallest numbers there are, the largest, and some between.
    for uniform in (0.0, 2.0**-23, 0.3, 0.9, 1 - 2.0**-23, 1 - 2.0**-24):
        chosen = np.asarray(choose(weight, jnp.full(300, uniform)))
        assert (weight[np.arange(300), chosen] > 0).all()


def test_steps_older_than_the_capacity_are_not_drawn_by_priority_either() -> None:
    replay = filled([[100.0, 100.0, 1.0, 2.0]])._replace(inserted_at=jnp.array([[-5, -4, -3, -2]], jnp.int32))
    drawn = jitted_sample(200, capacity=3)(replay, jax.random.key(0), beta=1.0)
    assert set(np.asarray(drawn.time).tolist()) == {2, 3}
    # Nor do they count for the importance weights.
    expected = np.where(np.asarray(drawn.time) == 2, 1.0, 0.5)
    np.testing.assert_allclose(drawn.weight, expected, rtol=1e-6)


def test_without_priorities_the_same_rows_are_drawn_as_ever() -> None:
    """Recorded before there were priorities."""
    weight = (np.arange(900).reshape(3, 300) % 7 != 3).astype(np.float32)
    replay = filled(weight)._replace(max_weight=None)
    drawn = jitted_sample(8)(replay, jax.random.key(3))
    recorded = np.array([0, 49, 271, 147, 524, 771, 678, 8])
    assert (np.asarray(drawn.slot) * 300 + np.asarray(drawn.time)).tolist() == recorded.tolist()
    assert np.asarray(drawn.weight).tolist() == [1.0] * 8


# Importance weights -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_importance_weights_are_those_of_the_paper(beta: float) -> None:
    weight = np.array([[0.0, 1.0, 4.0, 0.0, 16.0]])
    drawn = jitted_sample(64)(filled(weight), jax.random.key(0), beta=beta)
    probability = (weight / weight.sum())[0, np.asarray(drawn.time)]
    assert set(np.asarray(drawn.time).tolist()) == {1, 2, 4}
    unscaled = (3 * probability) ** -beta
    np.testing.assert_allclose(drawn.weight, unscaled / unscaled.max(), rtol=1e-6)


def test_the_exponent_grows_linearly_to_one_where_it_shall() -> None:
    growing = HOW._replace(beta_updates=100)
    found = [float(rings.importance_exponent(growing, jnp.int32(updates))) for updates in (0, 50, 100, 1_000)]
    assert found == pytest.approx([0.4, 0.7, 1.0, 1.0])
    assert float(rings.importance_exponent(HOW, jnp.int32(1_000))) == pytest.approx(0.4)


def test_empty_rings_give_windows_that_weigh_nothing_and_stay_empty() -> None:
    replay = rings.create(SPEC, {}, 2, 8, prioritized=True)
    drawn = jitted_sample(3)(replay, jax.random.key(0), beta=0.4)
    assert np.asarray(drawn.weight).tolist() == [0.0] * 3
    after = prioritize(replay, drawn.slot, drawn.time, jnp.full(3, 7.0), how=HOW)
    assert not np.asarray(after.weight).any()
    assert float(after.max_weight[0]) == 1.0


# Priorities -------------------------------------------------------------------------------------------------------


def test_new_rows_have_the_largest_priority_ever_seen() -> None:
    replay = rings.create(SPEC, {}, 2, 6, prioritized=True)
    replay = put(put(replay, first=True))
    assert np.asarray(replay.weight)[0].tolist() == [1, 0, 0, 0, 0, 0]
    replay = prioritize(replay, jnp.array([0]), jnp.array([0]), jnp.array([8.99]), how=HOW)
    assert float(rings.max_priority(replay, HOW)) == pytest.approx(9.0)
    replay = put(replay)
    np.testing.assert_allclose(replay.weight[0], [3, 3, 0, 0, 0, 0], rtol=1e-6)
    # Smaller ones since then don't lower it; neither a cut nor the pending row gets it.
    replay = prioritize(replay, jnp.array([0, 0]), jnp.array([0, 1]), jnp.array([0.03, 0.15]), how=HOW)
    np.testing.assert_allclose(replay.weight[0], [0.2, 0.4, 0, 0, 0, 0], rtol=1e-5)
    replay = put(put(replay), first=True)
    np.testing.assert_allclose(replay.weight[0], [0.2, 0.4, 3, 0, 0, 0], rtol=1e-5)


def test_only_rows_that_can_be_sampled_get_the_priorities_that_are_written() -> None:
    replay = filled([[1.0, 0.0, 2.0], [3.0, 0.0, 4.0]])
    slot, time = jnp.array([0, 0, 1, 1]), jnp.array([0, 1, 0, 2])
    after = prioritize(replay, slot, time, jnp.array([0.24, 99.0, 0.0, jnp.nan]), how=HOW)
    np.testing.assert_allclose(after.weight, [[0.5, 0.0, 2.0], [0.1, 0.0, 4.0]], rtol=1e-6)
    assert float(after.max_weight[0]) == 4.0
    endless = prioritize(replay, slot, time, jnp.full(4, jnp.inf), how=HOW)
    np.testing.assert_array_equal(endless.weight, replay.weight)


def test_of_a_row_that_was_sampled_more_than_once_the_largest_priority_stays() -> None:
    random = np.random.default_rng(0)
    replay = filled(np.ones((4, 8)))
    slot, time = random.integers(0, 4, 200), random.integers(0, 8, 200)
    priority = random.random(200).astype(np.float32)
    expected = np.ones((4, 8))
    for place in set(zip(slot.tolist(), time.tolist(), strict=True)):
        expected[place] = np.sqrt(priority[(slot == place[0]) & (time == place[1])].max() + 0.01)
    first: Any = None
    for _ in range(5):
        after = prioritize(replay, slot, time, priority, how=HOW)
        np.testing.assert_allclose(after.weight, expected, rtol=1e-6)
        first = after if first is None else first
        np.testing.assert_array_equal(after.weight, first.weight)
        order = random.permutation(200)
        slot, time, priority = slot[order], time[order], priority[order]


def test_priorities_are_written_in_place() -> None:
    replay = filled(np.ones((4, 1_000)))
    donating = jax.jit(rings.prioritize, static_argnames="how", donate_argnums=0)
    arguments = (replay, jnp.zeros(2, jnp.int32), jnp.zeros(2, jnp.int32), jnp.ones(2))
    memory: Any = donating.lower(*arguments, how=HOW).compile().memory_analysis()
    assert memory.alias_size_in_bytes >= sum(x.nbytes for x in jax.tree.leaves(replay))
    assert memory.temp_size_in_bytes < replay.weight.nbytes


def test_without_alpha_nothing_is_prioritized_and_nothing_more_is_stored() -> None:
    assert rings.prioritization(config.ReplayConfig()) is None
    how = rings.prioritization(config.ReplayConfig(priority_alpha=0.6, priority_beta=0.5, priority_beta_updates=9))
    assert how == (0.6, 0.5, 9, 1e-3)
    assert rings.create(SPEC, {}, 2, 8).max_weight is None
    assert rings.create(SPEC, {}, 4, 8, num_shards=2, prioritized=True).max_weight.shape == (2,)  # type: ignore[union-attr]
