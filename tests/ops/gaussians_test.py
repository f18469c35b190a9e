"""Normal distributions and their image under tanh, against numbers worked by hand, sums over a grid, and rlax."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import jax
import numpy as np
import pytest

from seedzero.ops import gaussians

RLAX = json.loads((pathlib.Path(__file__).parent / "policies_rlax.json").read_text())["densities"]
"""Written by rlax_reference.py."""
_log_density, _slope = jax.jit(gaussians.log_density), jax.jit(gaussians.log_tanh_slope)


def test_densities_of_several_numbers_are_multiplied() -> None:
    # At the mean 1 / (sigma sqrt(2 pi)) each: sigma 1 and 2. One sigma away: less by exp(-1/2).
    mean, log_std = np.zeros((2, 2), np.float32), np.log(np.array([1.0, 2.0], np.float32))
    found = _log_density(np.array([[0.0, 0.0], [1.0, -2.0]], np.float32), mean, log_std)
    peak = -np.log(2 * np.pi) - np.log(2.0)
    np.testing.assert_allclose(found, [peak, peak - 1.0], rtol=1e-6)


def test_the_entropy_is_that_of_the_textbook() -> None:
    log_std = np.array([[0.0, 0.0], [np.log(2.0), 0.0]], np.float32)
    one = 0.5 * np.log(2 * np.pi * np.e)
    np.testing.assert_allclose(jax.jit(gaussians.entropy)(log_std), [2 * one, 2 * one + np.log(2)], rtol=1e-6)


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


@pytest.mark.parametrize("case", RLAX, ids=range(len(RLAX)))
def test_densities_and_entropies_are_those_of_rlax(case: dict[str, Any]) -> None:
    x, mean, log_std = (np.array(case[name], np.float32) for name in ("x", "mean", "log_std"))
    found = _log_density(x, mean, log_std)
    np.testing.assert_allclose(found, case["log_density"], rtol=1e-4)
    np.testing.assert_allclose(jax.jit(gaussians.entropy)(log_std), case["entropy"], rtol=1e-5)
    np.testing.assert_allclose(found - _slope(x), case["log_squashed"], rtol=2e-3)
