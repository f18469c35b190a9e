"""Histograms of continuous actions, against numbers worked by hand and numpy's interpolation."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.ops import action_distributions

TWO_BINS = jnp.log(jnp.array([[0.25, 0.75]]))

sample = jax.jit(action_distributions.sample, static_argnames=("num_bins", "uniform_share"))


def _uniform(*numbers: float) -> jax.Array:
    return jnp.array(numbers)[None, :, None]


def test_samples_are_the_quantiles_of_the_policy() -> None:
    # A quarter of the policy lies evenly in [-1, 0), the rest in [0, 1].
    samples = sample(TWO_BINS, _uniform(0.125, 0.625, 0.2), num_bins=2, uniform_share=0.0)
    np.testing.assert_allclose(samples.actions[0, :, 0], [-0.5, 0.5, -0.2], atol=1e-6)
    np.testing.assert_array_equal(samples.log_prior, np.zeros((1, 3)))


def test_samples_of_a_wider_proposal_are_the_less_likely_the_more_they_owe_to_it() -> None:
    # The proposal is (0.375, 0.625).
    samples = sample(TWO_BINS, _uniform(0.1875, 0.6875), num_bins=2, uniform_share=0.5)
    np.testing.assert_allclose(samples.actions[0, :, 0], [-0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(samples.log_prior[0], np.log([0.25 / 0.375, 0.75 / 0.625]), rtol=1e-5)


def test_dimensions_are_independent_and_their_log_priors_add_up() -> None:
    logits = jnp.concatenate([TWO_BINS, TWO_BINS[:, ::-1]], axis=1)
    uniform = jnp.array([[[0.1875, 0.8125]]])
    samples = sample(logits, uniform, num_bins=2, uniform_share=0.5)
    np.testing.assert_allclose(samples.actions, [[[-0.5, 0.5]]], atol=1e-6)
    np.testing.assert_allclose(samples.log_prior, [[2 * math.log(0.25 / 0.375)]], rtol=1e-5)


@pytest.mark.parametrize("uniform_share", [0.0, 0.3])
def test_samples_invert_the_distribution_function_as_numpy_does(uniform_share: float) -> None:
    random = np.random.default_rng(0)
    num_bins, num_dimensions = 7, 2
    logits = random.normal(size=(3, num_dimensions * num_bins)).astype(np.float32)
    uniform = random.uniform(size=(3, 50, num_dimensions)).astype(np.float32)
    samples = sample(logits, uniform, num_bins=num_bins, uniform_share=uniform_share)
    policy = np.exp(logits.reshape(3, num_dimensions, num_bins).astype(np.float64))
    policy /= policy.sum(axis=-1, keepdims=True)
    proposal = (1 - uniform_share) * policy + uniform_share / num_bins
    edges = np.linspace(-1, 1, num_bins + 1)
    for row, k, d in np.ndindex(3, 50, num_dimensions):
        heights = np.concatenate([[0.0], np.cumsum(proposal[row, d])])
        expected = np.interp(uniform[row, k, d], heights, edges)
        assert samples.actions[row, k, d] == pytest.approx(expected, abs=2e-4)


def test_weighted_by_the_prior_samples_of_any_proposal_have_the_policys_mean() -> None:
    logits = jnp.array([[0.0, 1.0, 3.0]])
    uniform = (jnp.arange(3000) + 0.5)[None, :, None] / 3000
    policy = np.exp([0.0, 1, 3]) / np.exp([0.0, 1, 3]).sum()
    expected = policy @ [-2 / 3, 0, 2 / 3]
    for uniform_share in (0.0, 0.5, 1.0):
        samples = sample(logits, uniform, num_bins=3, uniform_share=uniform_share)
        weights = jnp.exp(samples.log_prior)
        assert jnp.mean(weights) == pytest.approx(1.0, abs=1e-3)
        assert jnp.mean(weights * samples.actions[..., 0]) == pytest.approx(expected, abs=1e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("num_bins", [2, 15, 255])
def test_a_sample_never_falls_into_another_bin_than_its_own(num_bins: int) -> None:
    # All of the policy is in one bin, whose edges the lowest and highest numbers hit.
    logits = jnp.where(jnp.eye(num_bins, dtype=bool), 0.0, -1e9)
    uniform = jnp.array([0.0, 1e-7, 0.5, 1 - 2.0**-24])[None, :, None]
    samples = sample(logits, uniform, num_bins=num_bins, uniform_share=0.0)
    bins = action_distributions.target(samples.actions, jnp.full((num_bins, 4), 0.25), num_bins=num_bins)
    np.testing.assert_array_equal(bins, np.eye(num_bins))


def test_extreme_logits_give_finite_samples() -> None:
    logits = jnp.array([[1e30, -1e30, 0.0], [-1e4, 1e4, -1e4]])
    for uniform_share in (0.0, 0.1):
        samples = sample(logits, _uniform(0.0, 0.3, 1 - 2.0**-24), num_bins=3, uniform_share=uniform_share)
        assert jnp.all(jnp.abs(samples.actions) < 1)
        assert not jnp.any(jnp.isnan(samples.log_prior) | (samples.log_prior == jnp.inf))


def test_targets_are_the_weights_of_the_samples_in_each_bin() -> None:
    actions = jnp.array([[-1.0, 0.9], [0.1, -0.1], [1.0, -0.9]])
    target = action_distributions.target(actions, jnp.array([0.2, 0.3, 0.5]), num_bins=2)
    np.testing.assert_allclose(target, [0.2, 0.8, 0.8, 0.2], rtol=1e-6)


def test_cross_entropy_with_the_targets_is_that_of_the_samples() -> None:
    random = np.random.default_rng(1)
    num_bins, num_dimensions = 5, 3
    logits = random.normal(size=(2, num_dimensions * num_bins)).astype(np.float32)
    actions = random.uniform(-1, 1, (2, 4, num_dimensions)).astype(np.float32)
    weights = random.dirichlet(np.ones(4), 2).astype(np.float32)
    loss = action_distributions.cross_entropy(
        logits, action_distributions.target(actions, weights, num_bins=num_bins), num_bins=num_bins
    )
    expected = np.zeros(2)
    for row, k, d in np.ndindex(2, 4, num_dimensions):
        of_dimension = logits[row, d * num_bins : (d + 1) * num_bins]
        log_policy = of_dimension - np.log(np.exp(of_dimension).sum())
        expected[row] -= weights[row, k] * log_policy[int((actions[row, k, d] + 1) / 2 * num_bins)]
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_entropy_is_summed_over_dimensions() -> None:
    entropy = action_distributions.entropy(jnp.array([[0.0, 0.0, 0.0, -1e9]]), num_bins=2)
    np.testing.assert_allclose(entropy, [math.log(2)], rtol=1e-6)


def test_a_latin_hypercube_has_one_number_in_each_part_of_every_dimension() -> None:
    cube = jax.jit(functools.partial(action_distributions.latin_hypercube, shape=(3, 8, 2)))
    numbers = np.asarray(cube(jax.random.key(0)))
    for table in (numbers, action_distributions.fixed_hypercube(8, 2)[None]):
        np.testing.assert_array_equal(
            np.sort(np.floor(table * 8), axis=1), np.tile(np.arange(8)[:, None], (1, 2)) + np.zeros((len(table), 1, 1))
        )
    assert not np.array_equal(numbers[0], numbers[1])
    assert not np.array_equal(numbers, cube(jax.random.key(1)))
    # Dimensions are in different orders, or only a diagonal would ever be tried.
    assert abs(np.corrcoef(action_distributions.fixed_hypercube(16, 2).T)[0, 1]) < 0.5


def test_each_number_of_a_latin_hypercube_is_uniform() -> None:
    numbers = np.asarray(action_distributions.latin_hypercube(jax.random.key(0), (4000, 4, 1)))
    assert numbers.min() >= 0 and numbers.max() < 1
    for k in range(4):
        assert np.histogram(numbers[:, k, 0], 10, (0, 1))[0] == pytest.approx(400, abs=100)


_log_density, _slope = jax.jit(action_distributions.log_density), jax.jit(action_distributions.log_tanh_slope)


def test_densities_of_several_numbers_are_multiplied() -> None:
    # At the mean 1 / (sigma sqrt(2 pi)) each: sigma 1 and 2. One sigma away: less by exp(-1/2).
    mean, log_std = np.zeros((2, 2), np.float32), np.log(np.array([1.0, 2.0], np.float32))
    found = _log_density(np.array([[0.0, 0.0], [1.0, -2.0]], np.float32), mean, log_std)
    peak = -np.log(2 * np.pi) - np.log(2.0)
    np.testing.assert_allclose(found, [peak, peak - 1.0], rtol=1e-6)


def test_the_entropy_is_that_of_the_textbook() -> None:
    log_std = np.array([[0.0, 0.0], [np.log(2.0), 0.0]], np.float32)
    one = 0.5 * np.log(2 * np.pi * np.e)
    np.testing.assert_allclose(
        jax.jit(action_distributions.gaussian_entropy)(log_std), [2 * one, 2 * one + np.log(2)], rtol=1e-6
    )


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.5)])
def test_a_squashed_density_sums_to_one(mean: float, log_std: float) -> None:
    edges = np.linspace(-1, 1, 200_002)
    middle = (edges[1:] + edges[:-1]) / 2
    x = np.arctanh(middle).astype(np.float32)[:, None]
    density = np.exp(np.asarray(_log_density(x, np.float32(mean), np.float32(log_std)) - _slope(x)), dtype=np.float64)
    assert np.sum(density) * (edges[1] - edges[0]) == pytest.approx(1.0, abs=1e-3)


def test_the_slope_is_that_of_tanh_and_stays_finite() -> None:
    x = np.array([[-2.0], [0.0], [0.5]], np.float32)
    np.testing.assert_allclose(_slope(x), np.log(1 - np.tanh(x[:, 0].astype(np.float64)) ** 2), rtol=1e-5, atol=1e-6)
    far = np.array([[-50.0], [50.0]], np.float32)
    np.testing.assert_allclose(_slope(far), 2 * np.log(2) - 100, rtol=1e-5)
