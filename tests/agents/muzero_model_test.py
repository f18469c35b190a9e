"""What acting and learning of MuZero share: numbers as logits, the discount's sign, extras, the optimizer."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import muzero_cases as cases  # beside this file: see conftest.py
import numpy as np
import optax
import pytest

from seedzero.agents import muzero_model
from seedzero.config import shared


@pytest.mark.parametrize(("num_players", "expected"), [(1, 0.5), (2, -0.5)])
def test_a_value_changes_its_sign_between_two_players(num_players: int, expected: float) -> None:
    parts = cases.hand_model(cases.make_config(reward__discount=0.5))
    parts = parts._replace(spec=dataclasses.replace(parts.spec, num_players=num_players))
    assert muzero_model.signed_discount(parts) == expected


def test_probabilities_stand_for_the_numbers_that_their_logits_mean() -> None:
    parts = cases.hand_model(cases.make_config())
    x = jnp.array([[-20.0, -1.0, 0.0], [0.3, 5.5, 20.0]])
    encoded = muzero_model.encode(parts, x)
    assert encoded.shape == (2, 3, 11)
    np.testing.assert_allclose(encoded.sum(axis=-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(muzero_model.decode(parts, jnp.log(encoded + 1e-12)), x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("weight", "has_projection"), [(0.0, False), (1.0, True)])
@pytest.mark.parametrize("value_prefix", [False, True])
def test_the_network_has_the_extras_that_are_configured(
    weight: float, has_projection: bool, value_prefix: bool
) -> None:
    config = cases.make_config(muzero__consistency_weight=weight, muzero__value_prefix=value_prefix)
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")
    assert (parts.network.projection is not None, parts.network.prefix is not None) == (has_projection, value_prefix)
    params = jax.eval_shape(parts.network.init, jax.random.key(0))
    assert ("projector" in params) == has_projection


# The optimizer -----------------------------------------------------------------------------------------------------


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
    config = shared.OptimizerConfig(
        learning_rate=2.0, schedule=schedule, warmup_updates=warmup, decay_updates=100, decay_rate=0.1
    )
    rate = jax.jit(muzero_model.make_schedule(config))
    for num_updates, share in expected.items():
        np.testing.assert_allclose(rate(num_updates), 2.0 * share, rtol=1e-5)


def test_the_optimizer_is_adamw_that_decays_kernels_only() -> None:
    config = shared.OptimizerConfig(learning_rate=0.1, clip_norm=0.0)
    params = {"kernel": jnp.array([[5000.0, -10_000.0]]), "bias": jnp.array([3.0, 4.0])}
    gradients = {"kernel": jnp.array([[0.3, 0.1]]), "bias": jnp.array([-0.2, 0.4])}
    optimizer = muzero_model.make_optimizer(config)
    directions, _ = optimizer.update(gradients, optimizer.init(params), params)
    # Adam's first direction is the gradient's sign; a kernel's 0.0001th part is added.
    np.testing.assert_allclose(directions["kernel"], [[1.0 + 0.5, 1.0 - 1.0]], atol=1e-5)
    np.testing.assert_allclose(directions["bias"], [-1.0, 1.0], atol=1e-5)


def test_gradients_are_clipped_to_the_global_norm() -> None:
    def moments(clip_norm: float) -> Any:
        optimizer = muzero_model.make_optimizer(shared.OptimizerConfig(clip_norm=clip_norm))
        params = {"w": jnp.zeros(2)}
        _, state = optimizer.update({"w": jnp.array([30.0, 40.0])}, optimizer.init(params), params)
        return optax.tree_utils.tree_get(state, "mu")["w"]

    # Adam's first moment is a tenth of the gradient; its norm 50 is cut to 5.
    np.testing.assert_allclose(moments(5.0), [0.3, 0.4], rtol=1e-5)
    np.testing.assert_allclose(moments(0.0), [3.0, 4.0], rtol=1e-5)
