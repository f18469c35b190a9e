"""Losses with the actions of other windows, with a loss and numbers worked out by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
import shuffled_actions  # see conftest.py


class _Windows(NamedTuple):
    stored: dict[str, Any]


def _learned(parts: Any, params: Any, windows: Any, targets: Any, key: Any, axis_name: Any) -> tuple[Any, Any, Any]:
    """A model that expects the target as action: each loss is its factor times the mean squared difference."""
    error = jnp.mean(jnp.square(params * windows.stored["action"] - targets))
    return error, {name: factor * error for factor, name in enumerate(shuffled_actions.LOSSES, 1)}, None


def test_other_windows_actions_raise_the_metrics_and_not_the_loss() -> None:
    windows, targets = _Windows({"action": jnp.array([[0.0], [1.0], [3.0]])}), jnp.array([[0.0], [1.0], [3.0]])
    loss_and_metrics = shuffled_actions.with_other_actions(_learned)

    def loss(params: jax.Array) -> tuple[jax.Array, Any]:
        value, metrics, _ = loss_and_metrics(None, params, windows, targets, None)
        return value, metrics

    (value, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(jnp.array(2.0))
    # With twice the action: (0 + 1 + 9) / 3; with the actions 3, 0, 1 of others: (36 + 1 + 1) / 3.
    assert float(value) == float(metrics["loss_reward"]) == float(metrics["loss_reward_own_actions"])
    assert float(value) == pytest.approx(10 / 3)
    assert float(gradient) == pytest.approx(20 / 3)  # 2 (2 a - t) a, as without the other losses
    assert float(metrics["loss_reward_other_actions"]) == pytest.approx(38 / 3)
    assert float(metrics["loss_policy_other_actions"]) == pytest.approx(38)
    rows = [{name: float(x) for name, x in metrics.items()}, {"update": 3}]
    assert shuffled_actions.ratios(rows)["loss_value"] == pytest.approx((20 / 3, 3.8))
