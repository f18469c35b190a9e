"""The optimizer and its learning rate."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from seedzero.agents import muzero_model
from seedzero.config import muzero as muzero_config


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 0, {0: 1.0, 10: 1.0, 1000: 1.0}),
        ("constant", 4, {0: 0.25, 1: 0.5, 3: 1.0, 4: 1.0}),
        ("cosine", 4, {0: 0.25, 4: 1.0, 54: 0.55, 104: 0.1, 500: 0.1}),
        ("cosine", 1, {0: 1.0, 1: 1.0, 51: 0.55}),
        ("exponential", 0, {0: 1.0, 100: 0.1, 200: 0.01}),
        ("exponential", 4, {0: 0.25, 3: 1.0, 4: 1.0, 104: 0.1}),
        ("linear", 0, {0: 1.0, 50: 0.55, 100: 0.1, 500: 0.1}),
        ("linear", 4, {0: 0.25, 4: 1.0, 54: 0.55, 104: 0.1}),
    ],
)
def test_the_learning_rate_follows_its_schedule(schedule: str, warmup: int, expected: dict[int, float]) -> None:
    config = muzero_config.OptimizerConfig(
        learning_rate=2.0, schedule=schedule, warmup_updates=warmup, decay_updates=100, decay_rate=0.1
    )
    rate = jax.jit(muzero_model.make_schedule(config))
    for num_updates, share in expected.items():
        np.testing.assert_allclose(rate(num_updates), 2.0 * share, rtol=1e-5)


def test_the_optimizer_is_adamw_that_decays_kernels_only() -> None:
    config = muzero_config.OptimizerConfig(learning_rate=0.1, weight_decay=0.5, clip_norm=0.0)
    params = {"kernel": jnp.array([[1.0, -2.0]]), "bias": jnp.array([3.0, 4.0])}
    gradients = {"kernel": jnp.array([[0.3, 0.1]]), "bias": jnp.array([-0.2, 0.4])}
    optimizer = muzero_model.make_optimizer(config)
    directions, _ = optimizer.update(gradients, optimizer.init(params), params)
    # Adam's first direction is the gradient's sign.
    np.testing.assert_allclose(directions["kernel"], [[1.0 + 0.5 * 1.0, 1.0 - 0.5 * 2.0]], atol=1e-5)
    np.testing.assert_allclose(directions["bias"], [-1.0, 1.0], atol=1e-5)


def test_gradients_are_clipped_to_the_global_norm() -> None:
    def moments(clip_norm: float) -> Any:
        optimizer = muzero_model.make_optimizer(muzero_config.OptimizerConfig(clip_norm=clip_norm))
        params = {"w": jnp.zeros(2)}
        _, state = optimizer.update({"w": jnp.array([30.0, 40.0])}, optimizer.init(params), params)
        return optax.tree_utils.tree_get(state, "mu")["w"]

    # Adam's first moment is a tenth of the gradient; its norm 50 is cut to 5.
    np.testing.assert_allclose(moments(5.0), [0.3, 0.4], rtol=1e-5)
    np.testing.assert_allclose(moments(0.0), [3.0, 4.0], rtol=1e-5)
