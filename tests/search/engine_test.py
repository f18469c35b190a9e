"""Gamma draws: distributed as they should be, for large and small alpha."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import muzero_config
from seedzero.search import engine, selection


def _p_value(drawn: float, supposed: float) -> float:
    """Returns how probable draws of one alpha are if it were another."""
    from scipy import stats  # type: ignore[import-untyped]  # takes seconds, in each process that reads this file

    draws = np.exp(np.asarray(engine.log_gamma(jax.random.key(0), drawn, (20_000,)), np.float64))
    return float(stats.kstest(draws, stats.gamma(supposed).cdf).pvalue)


@pytest.mark.thorough
@pytest.mark.parametrize("alpha", [0.03, 0.3, 1.0, 5.0])
def test_draws_are_distributed_as_gamma(alpha: float) -> None:
    assert _p_value(alpha, alpha) > 0.01


def test_the_test_sees_a_wrong_alpha() -> None:
    assert _p_value(0.3, 0.32) < 0.001


@pytest.mark.thorough
def test_logarithms_are_finite_where_draws_are_too_small_for_a_float() -> None:
    draws = engine.log_gamma(jax.random.key(1), 0.001, (10_000,))
    assert np.isfinite(draws).all()
    assert np.min(draws) < -1000


@pytest.mark.thorough
def test_draws_repeat_with_the_key_and_differ_from_each_other() -> None:
    draw = jax.jit(engine.log_gamma, static_argnums=(1, 2))
    np.testing.assert_array_equal(draw(jax.random.key(2), 0.3, (5,)), draw(jax.random.key(2), 0.3, (5,)))
    assert jnp.unique(draw(jax.random.key(3), 0.3, (100,))).size == 100


def test_all_noise_goes_to_legal_actions_of_rows_that_explore() -> None:
    invalid = jnp.tile(jnp.arange(6) >= 2, (2, 1))
    logits = selection.masked(jnp.zeros((2, 6)), invalid)
    noisy = engine._add_dirichlet_noise(
        jax.random.key(4), logits, invalid, jnp.array([True, False]), muzero_config.SearchSection()
    )
    found = np.exp(noisy)
    np.testing.assert_allclose(found[:, :2].sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(found[1], [0.5, 0.5, 0, 0, 0, 0], rtol=1e-5)
    assert abs(found[0, 0] - 0.5) > 0.01
