"""Transformed categorical values against numbers worked by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.ops import value_transforms


def test_the_transform_is_what_its_formula_gives() -> None:
    x = jnp.array([0.0, 3.0, -3.0, 99.0, 0.21])
    # sqrt(4) - 1 + 0.003, sqrt(100) - 1 + 0.099, sqrt(1.21) - 1 + 0.00021
    expected = [0.0, 1.003, -1.003, 9.099, 0.10021]
    np.testing.assert_allclose(jax.jit(value_transforms.signed_hyperbolic)(x), expected, rtol=1e-6)


def test_the_inverse_is_what_its_formula_gives() -> None:
    y = jnp.array([0.0, 1.003, -1.003, 9.099])
    inverse = jax.jit(value_transforms.inverse_signed_hyperbolic)(y)
    np.testing.assert_allclose(inverse, [0.0, 3.0, -3.0, 99.0], rtol=1e-5)
    assert inverse[0] == 0.0


@pytest.mark.parametrize("x", [1e-6, 1e-3, 0.1, 1.0, 21.0, 500.0, 1e5])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_the_inverse_undoes_the_transform_to_float32_accuracy(x: float, sign: float) -> None:
    there = value_transforms.signed_hyperbolic(jnp.float32(sign * x))
    np.testing.assert_allclose(value_transforms.inverse_signed_hyperbolic(there), sign * x, rtol=3e-6)


def test_two_hot_spreads_a_number_over_the_two_nearest_bins() -> None:
    two_hot = jax.jit(value_transforms.two_hot, static_argnums=(1, 2))
    # Bins at -2, -1, 0, 1, 2; h(3) = 1.003.
    expected = [[0, 0, 0, 0.997, 0.003], [0.003, 0.997, 0, 0, 0], [0, 0, 1, 0, 0]]
    np.testing.assert_allclose(two_hot(jnp.array([3.0, -3.0, 0.0]), 5, 2.0), expected, atol=1e-6)


def test_two_hot_puts_what_lies_beyond_the_support_on_the_outermost_bin() -> None:
    probs = value_transforms.two_hot(jnp.array([1e6, -1e6]), 5, 2.0)
    np.testing.assert_array_equal(probs, [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0]])


def test_two_hot_is_a_distribution_of_the_right_mean_for_any_shape() -> None:
    x = jnp.linspace(-300.0, 300.0, 24).reshape(2, 3, 4)
    probs = value_transforms.two_hot(x, 121, 30.0)
    assert probs.shape == (2, 3, 4, 121)
    np.testing.assert_allclose(probs.sum(-1), 1.0, atol=1e-5)
    mean = probs @ jnp.linspace(-30.0, 30.0, 121)
    np.testing.assert_allclose(mean, value_transforms.signed_hyperbolic(x), atol=1e-4)


@pytest.mark.parametrize("num_bins", [5, 121, 600, 601])
def test_equal_logits_mean_exactly_zero(num_bins: int) -> None:
    expectation = jax.jit(value_transforms.expectation, static_argnums=1)
    assert np.all(np.asarray(expectation(jnp.zeros((3, num_bins)), 30.0)) == 0.0)


@pytest.mark.parametrize("num_bins", [120, 121])
def test_expectation_decodes_what_two_hot_encodes(num_bins: int) -> None:
    x = jnp.array([-250.0, -1.0, 0.0, 0.3, 17.0, 400.0])
    logits = jnp.log(value_transforms.two_hot(x, num_bins, 30.0))
    decoded = jax.jit(value_transforms.expectation, static_argnums=1)(logits, 30.0)
    np.testing.assert_allclose(decoded, x, rtol=1e-4, atol=1e-4)


def test_symlog_is_what_its_formula_gives_and_symexp_undoes_it() -> None:
    x = jnp.array([0.0, np.e - 1, 1 - np.e, 1e6])
    squashed = jax.jit(value_transforms.symlog)(x)
    np.testing.assert_allclose(squashed, [0.0, 1.0, -1.0, np.log(1e6 + 1)], rtol=1e-6)
    np.testing.assert_allclose(jax.jit(value_transforms.symexp)(squashed), x, rtol=1e-5)


def test_bins_of_symlog_reach_far_beyond_those_of_the_square_root() -> None:
    x = jnp.array([-20_000.0, 0.0, 0.3, 5_000.0])

    def decoded(name: str) -> np.ndarray:
        logits = jnp.log(value_transforms.two_hot(x, 121, 10.0, name))
        return np.asarray(value_transforms.expectation(logits, 10.0, name))

    np.testing.assert_allclose(decoded("symlog"), x, rtol=1e-4, atol=1e-4)
    assert decoded("hyperbolic")[3] < 200


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["hyperbolic", "symlog"])
def test_what_exceeds_the_bins_is_what_two_hot_clips(name: str) -> None:
    x = jnp.asarray(np.geomspace(1.0, 1e6, 61, dtype=np.float32))
    x = jnp.concatenate([-x, x])
    decoded = value_transforms.expectation(jnp.log(value_transforms.two_hot(x, 121, 10.0, name)), 10.0, name)
    is_clipped = np.abs(np.asarray(decoded / x) - 1) > 1e-2
    assert 0 < is_clipped.sum() < len(x)
    np.testing.assert_array_equal(value_transforms.exceeds(x, 10.0, name), is_clipped)
