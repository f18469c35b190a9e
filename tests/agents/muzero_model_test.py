"""What acting and learning of MuZero share: numbers as logits, the discount's sign, the network's extras."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import muzero_cases as cases  # beside this file: see conftest.py
import numpy as np
import pytest

from seedzero.agents import muzero_model


@pytest.mark.parametrize(("num_players", "expected"), [(1, 0.5), (2, -0.5)])
def test_a_value_changes_its_sign_between_two_players(num_players: int, expected: float) -> None:
    parts = cases.hand_model(cases.make_config(muzero__discount=0.5))
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
