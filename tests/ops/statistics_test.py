"""Running moments and sizes against numpy over the same samples."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.ops import statistics


def _moments(batches: Sequence[np.ndarray]) -> statistics.Moments:
    add = jax.jit(statistics.add_features)
    found = statistics.no_moments(batches[0].shape[1])
    for batch in batches:
        found = add(found, jnp.asarray(batch, jnp.float32), jnp.ones(len(batch), bool))
    return found


def _batches(num: int = 3, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    scales, offsets = np.array([1.0, 1e4, 1e-3]), np.array([0.0, 5e4, 1.0])
    return [offsets + scales * (random.normal(size=(50 * (k + 1), 3)) + k) for k in range(num)]


def test_moments_are_those_of_all_samples_with_fading_weights() -> None:
    batches = _batches()
    found = _moments(batches)
    samples = np.concatenate(batches)
    weights = np.concatenate([np.full(len(batch), statistics.KEPT ** (2 - k)) for k, batch in enumerate(batches)])
    mean = np.average(samples, axis=0, weights=weights)
    variance = np.average((samples - mean) ** 2, axis=0, weights=weights)
    np.testing.assert_allclose(found.weight, weights.sum(), rtol=1e-6)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-3)


def test_devices_with_parts_of_a_batch_find_the_moments_of_the_whole() -> None:
    batch = jnp.asarray(_batches(1)[0], jnp.float32)
    whole, counted = _moments([np.asarray(batch)]), jnp.ones((2, 25), bool)
    add = functools.partial(statistics.add_features, statistics.no_moments(3), axis_name="devices")
    found = jax.vmap(add, axis_name="devices")(batch.reshape(2, 25, 3), counted)
    for leaf, expected in zip(found, whole, strict=True):
        np.testing.assert_array_equal(leaf[0], leaf[1])
        np.testing.assert_allclose(leaf[0], expected, rtol=1e-4)


def test_normalized_features_have_mean_0_and_variance_1_whatever_their_scale() -> None:
    (batch,) = _batches(1)
    normalized = np.asarray(statistics.normalize(_moments([batch]), jnp.asarray(batch, jnp.float32)))
    np.testing.assert_allclose(normalized.mean(axis=0), 0.0, atol=1e-3)
    np.testing.assert_allclose(normalized.std(axis=0), 1.0, rtol=1e-3)


def test_before_anything_was_seen_features_stay_as_they_are() -> None:
    x = jnp.array([[0.5, -3.0]])
    np.testing.assert_array_equal(statistics.normalize(statistics.no_moments(2), x), x)


def test_a_constant_feature_becomes_0_and_its_first_change_is_clipped() -> None:
    moments = _moments([np.full((10, 2), [7e6, 0.1])])
    normalized = statistics.normalize(moments, jnp.array([[7e6, 0.1], [9e6, 0.2]]))
    np.testing.assert_allclose(normalized, [[0.0, 0.0], [statistics.LIMIT, statistics.LIMIT]], atol=0.05)


def test_samples_that_do_not_count_move_nothing() -> None:
    (batch,) = _batches(1)
    more = jnp.asarray(np.concatenate([batch, 99.0 * batch]), jnp.float32)
    found = statistics.add_features(statistics.no_moments(3), more, jnp.arange(100) < 50)
    for leaf, expected in zip(found, _moments([batch]), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=1e-5)
    after = statistics.add_features(found, more, jnp.zeros(100, bool))
    np.testing.assert_array_equal(after.mean, found.mean)
    np.testing.assert_array_equal(after.variance, found.variance)


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_move_nothing(broken: float) -> None:
    before = _moments([np.array([[1.0], [3.0]])])
    after = statistics.add_features(before, jnp.array([[2.0], [broken]]), jnp.ones(2, bool))
    np.testing.assert_allclose(after.mean, 2.0)
    assert np.isfinite(after.variance).all()
    size = statistics.add_numbers(statistics.no_size(), jnp.array([2.0, broken]), jnp.ones(2, bool))
    assert float(statistics.root_mean_square(size)) == 2.0


def test_the_size_counts_numbers_that_are_not_0_where_told() -> None:
    size = statistics.no_size()
    assert float(statistics.root_mean_square(size)) == 1.0
    size = statistics.add_numbers(size, jnp.zeros(5), jnp.ones(5, bool))
    assert float(statistics.root_mean_square(size)) == 1.0
    size = statistics.add_numbers(size, jnp.array([3.0, 0.0, -4.0, 100.0]), jnp.array([True, True, True, False]))
    np.testing.assert_allclose(statistics.root_mean_square(size), np.sqrt(12.5), rtol=1e-6)
    # Two numbers with a weight that has faded, two new ones.
    size = statistics.add_numbers(size, jnp.array([1.0, 1.0]), jnp.ones(2, bool))
    expected = (statistics.KEPT * 25 + 2) / (statistics.KEPT * 2 + 2)
    np.testing.assert_allclose(statistics.root_mean_square(size), np.sqrt(expected), rtol=1e-6)


def test_rewards_of_one_size_have_exactly_that_size() -> None:
    size = statistics.no_size()
    for _ in range(20):
        size = statistics.add_numbers(size, jnp.array([1.0, -1.0, 0.0]), jnp.ones(3, bool))
    assert float(statistics.root_mean_square(size)) == 1.0


def test_devices_agree_on_the_size() -> None:
    x = jnp.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    add = functools.partial(statistics.add_numbers, statistics.no_size(), axis_name="devices")
    sizes = jax.vmap(add, axis_name="devices")(x, jnp.ones((2, 3), bool))
    np.testing.assert_allclose(jax.vmap(statistics.root_mean_square)(sizes), np.sqrt(2.5), rtol=1e-6)


def test_the_root_mean_square_of_a_batch_is_over_what_counts() -> None:
    x, counted = jnp.array([[3.0, 4.0], [0.0, np.nan]]), jnp.array([[True, True], [True, False]])
    find = jax.jit(statistics.batch_root_mean_square)
    np.testing.assert_allclose(find(x, counted), np.sqrt(25 / 3), rtol=1e-6)
    assert float(find(x, jnp.zeros((2, 2), bool))) == 0.0
    of_devices = functools.partial(statistics.batch_root_mean_square, axis_name="devices")
    np.testing.assert_allclose(jax.vmap(of_devices, axis_name="devices")(x, counted), [np.sqrt(25 / 3)] * 2, rtol=1e-6)
