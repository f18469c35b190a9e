"""V-trace's optimizers and its learning rate, by the steps that they take."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import vtrace_cases as cases

from seedzero.agents import learning
from seedzero.config import config as configs


def _step(config: configs.Config, *, num_updates: int = 0) -> tuple[cases.Linear, cases.Linear]:
    """Returns the gradient, and the change of the parameters by one update."""
    windows = cases.make_windows()
    after, _ = cases.update(config, windows, num_updates=num_updates)
    _, gradient = cases.value_and_grad(config, windows)
    changes = (np.asarray(new) - old for new, old in zip(after.params, cases.PARAMS, strict=True))
    return gradient, cases.Linear(*changes)


def test_rmsprop_divides_by_the_root_of_the_mean_square_and_epsilon() -> None:
    gradient, change = _step(cases.make_config(learning_rate=0.01, rmsprop_decay=0.9, rmsprop_epsilon=0.5))
    for g, d in zip(gradient, change, strict=True):
        np.testing.assert_allclose(d, -0.01 * g / np.sqrt(0.1 * g**2 + 0.5), rtol=1e-3, atol=1e-6)


def test_the_learning_rate_falls_linearly_to_0_or_stays() -> None:
    falling = learning.schedule(cases.make_config(learning_rate=0.5, decay_updates=100).vtrace.descent)
    rates = [float(falling(jnp.int32(n))) for n in (0, 25, 50, 100, 1000)]
    np.testing.assert_allclose(rates, [0.5, 0.375, 0.25, 0.0, 0.0], atol=1e-7)
    constant = learning.schedule(cases.make_config(learning_rate=0.5).vtrace.descent)
    assert [float(constant(jnp.int32(n))) for n in (0, 10**6)] == [0.5, 0.5]


def test_updates_are_as_large_as_the_schedule_says() -> None:
    config = cases.make_config(learning_rate=0.01, decay_updates=100)
    _, begin = _step(config)
    _, half = _step(config, num_updates=50)
    _, end = _step(config, num_updates=100)
    np.testing.assert_allclose(half.w, begin.w / 2, rtol=1e-3)
    assert not np.any(end.w)
