"""MuZero's consistency loss (EfficientZero), against numpy."""

from __future__ import annotations

import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import pytest

from seedzero.agents import muzero_loss, muzero_model
from seedzero.config import configs
from seedzero.core import types
from seedzero.networks import muzero_net
from seedzero.replay import windowing


def _consistency(
    parts: muzero_model.Parts, params: Any, hidden: jax.Array, windows: windowing.Windows
) -> tuple[jax.Array, jax.Array]:
    """Of projections that are the hidden states themselves; predictions are those with the second number scaled."""
    how = muzero_net.Projection(
        project=lambda params, hidden: hidden * params["project"],
        predict=lambda params, x: x * jnp.array([1.0, 2.0]),
    )
    network = parts.network._replace(
        represent=lambda params, observation: observation[types.OBSERVATION] * params["represent"]
    )
    return muzero_loss._consistency(parts._replace(network=network), how, params, hidden, windows)


def _consistency_case(config: configs.Config) -> tuple[Any, jax.Array, windowing.Windows]:
    random = np.random.default_rng(1)
    params = {"project": jnp.array([0.5, -2.0]), "represent": jnp.array([3.0, 1.0])}
    hidden = jnp.asarray(random.normal(size=(cases.BATCH, 3, 2)), jnp.float32)
    observation = jnp.asarray(random.normal(size=(cases.BATCH, 3, 2)), jnp.float32)
    windows = cases.make_windows(config)._replace(weight=jnp.array([1.0, 2.0, 0.5, 3.0]))
    windows = agent_cases.show(windows, observation)
    # The second window has nothing but its first position, the third one more; that is a terminal one.
    valid = windows.valid.at[1, 1:].set(False).at[2, 2:].set(False)
    return params, hidden, windows._replace(valid=valid, terminated=windows.terminated.at[2, 1].set(True))


@pytest.mark.parametrize("num_steps", [0, 1])
def test_the_consistency_loss_is_what_numpy_computes(num_steps: int) -> None:
    config = cases.make_config(muzero__consistency_weight=2.0, muzero__consistency_steps=num_steps)
    params, hidden, windows = _consistency_case(config)
    loss, spread = jax.jit(functools.partial(_consistency, cases.hand_model(config)))(params, hidden, windows)
    expected = 0.0
    for b in range(cases.BATCH):
        for k in range(1, 1 + (num_steps or 2)):
            if windows.valid[b, k]:
                x = np.array(hidden[b, k]) * [0.5, -2.0] * [1.0, 2.0]
                y = np.array(agent_cases.shown(windows)[b, k]) * [3.0, 1.0] * [0.5, -2.0]
                cosine = x @ y / np.sqrt((x @ x) * (y @ y))
                expected -= float(windows.weight[b]) * cosine / 2 / cases.BATCH
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert 0.0 < spread < 1.0


def test_no_gradient_of_the_consistency_goes_into_what_was_seen_later() -> None:
    config = cases.make_config(muzero__consistency_weight=2.0)
    params, hidden, windows = _consistency_case(config)
    parts = cases.hand_model(config)
    gradient, into_hidden = jax.jit(jax.grad(lambda *args: _consistency(parts, *args, windows)[0], argnums=(0, 1)))(
        params, hidden
    )
    assert (gradient["represent"] == 0).all()
    assert (gradient["project"] != 0).all()
    assert (into_hidden[0, 1:] != 0).all()
    assert (into_hidden[:, 0] == 0).all()  # the first state has seen its observation
    assert (into_hidden[1] == 0).all()
    assert (into_hidden[2, 2] == 0).all()


def test_projections_of_one_direction_have_no_spread() -> None:
    config = cases.make_config(muzero__consistency_weight=2.0)
    params, hidden, windows = _consistency_case(config)
    same = agent_cases.show(windows, jnp.ones_like(agent_cases.shown(windows)))
    _, spread = _consistency(cases.hand_model(config), params, hidden, same)
    np.testing.assert_allclose(spread, 0.0, atol=1e-6)
