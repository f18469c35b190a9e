"""V-trace against numbers worked by hand, and against rlax's.

By hand, unless a test says otherwise: three steps, discount 1/2, values 1, 2, 3 and 4, rewards 10, 20 and 40.
"""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.ops import vtrace

VALUE = [1.0, 2.0, 3.0, 4.0]
REWARD = [10.0, 20.0, 40.0]
RLAX = json.loads((pathlib.Path(__file__).parent / "vtrace_rlax.json").read_text())
"""Written by rlax_reference.py."""


@functools.cache
def _targets(**options: Any) -> Any:
    return jax.jit(functools.partial(vtrace.targets, **options))


def _make_targets(
    value: Any = VALUE, reward: Any = REWARD, discount: Any = 0.5, rho: Any = 1.0, is_step: Any = True, **options: Any
) -> vtrace.VtraceTargets:
    shape = (1, len(reward))
    found = _targets(**options)(
        np.float32([value]),
        np.float32([reward]),
        np.broadcast_to(np.float32(discount), shape),
        np.log(np.broadcast_to(np.float32(rho), shape)),
        np.broadcast_to(is_step, shape),
    )
    return vtrace.VtraceTargets(*(np.asarray(x[0]) for x in found))


def test_on_policy_the_targets_are_n_step_returns() -> None:
    found = _make_targets()
    # 10 + 20/2 + 40/4 + 4/8, 20 + 40/2 + 4/4, 40 + 4/2
    np.testing.assert_allclose(found.value, [30.5, 41.0, 42.0])
    # These returns less 1, 2 and 3: 10 + 41/2 - 1, 20 + 42/2 - 2, 40 + 4/2 - 3
    np.testing.assert_allclose(found.advantage, [29.5, 39.0, 39.0])
    np.testing.assert_allclose(found.q_estimate, [30.5, 41.0, 42.0])


def test_an_estimate_for_an_action_leaves_its_own_weight_to_the_policy_gradient() -> None:
    found = _make_targets(rho=[0.5, 0.1, 0.25])
    # 40 + 4/2; 3 + 0.25 (42 - 3) = 12.75, 20 + 12.75/2; 2 + 0.1 (26.375 - 2) = 4.4375, 10 + 4.4375/2
    np.testing.assert_allclose(found.q_estimate, [12.21875, 26.375, 42.0], rtol=1e-6)
    np.testing.assert_allclose(found.advantage, [0.5 * 11.21875, 0.1 * 24.375, 0.25 * 39.0], rtol=1e-6)


def test_importance_weights_are_clipped_at_one_by_default() -> None:
    found = _make_targets(rho=[4.0, 0.5, 1.0])
    # Weights 1, 1/2 and 1. Temporal differences: 10 + 2/2 - 1 = 10; (20 + 3/2 - 2) / 2 = 9.75; 40 + 4/2 - 3 = 39.
    # Errors backwards: 39; 9.75 + 39 * 1/2 * 1/2 = 19.5; 10 + 19.5 * 1/2 * 1 = 19.75. Targets: errors plus values.
    np.testing.assert_allclose(found.value, [20.75, 21.5, 42.0])
    # 1 (10 + 21.5/2 - 1), 1/2 (20 + 42/2 - 2), 1 (40 + 4/2 - 3)
    np.testing.assert_allclose(found.advantage, [19.75, 19.5, 39.0])


@pytest.mark.parametrize(("clip_c", "first"), [(1.0, 30.75), (3.0, 50.25), (9.0, 60.0)])
def test_differences_and_traces_have_a_clip_each(clip_c: float, first: float) -> None:
    found = _make_targets(rho=[4.0, 0.5, 1.0], clip_rho=2.0, clip_c=clip_c)
    # The first difference counts twice, 20, and the errors behind it, 19.5, by 1/2 of 1, of 3, or of 4:
    # 20 + 9.75 + 1, 20 + 29.25 + 1, 20 + 39 + 1.
    np.testing.assert_allclose(found.value, [first, 21.5, 42.0], rtol=1e-6)
    # 2 (10 + 21.5/2 - 1), whatever the traces are
    np.testing.assert_allclose(found.advantage, [39.5, 19.5, 39.0], rtol=1e-6)


def test_lambda_mixes_returns_of_all_lengths() -> None:
    half = _make_targets(trace_decay=0.5)
    # Differences 10, 19.5 and 39; errors backwards: 39; 19.5 + 39/4 = 29.25; 10 + 29.25/4 = 17.3125.
    np.testing.assert_allclose(half.value, [18.3125, 31.25, 42.0])
    # Behind a step lies the mean of target and value: (31.25 + 2)/2 = 16.625 and (42 + 3)/2 = 22.5; at the end 4.
    # 10 + 16.625/2 - 1, 20 + 22.5/2 - 2, 40 + 4/2 - 3
    np.testing.assert_allclose(half.advantage, [17.3125, 29.25, 39.0])
    none = _make_targets(trace_decay=0.0)
    # 10 + 2/2, 20 + 3/2, 40 + 4/2
    np.testing.assert_allclose(none.value, [11.0, 21.5, 42.0])
    np.testing.assert_allclose(none.advantage, [10.0, 19.5, 39.0])


def test_a_terminal_observation_is_worth_nothing_and_is_no_step() -> None:
    found = _make_targets(reward=[10.0, 20.0, 99.0], discount=[0.5, 0.0, 0.5], is_step=[True, True, False])
    # 10 + 20/2, 20; the last observation keeps its value.
    np.testing.assert_allclose(found.value, [20.0, 20.0, 3.0])
    # 10 + 20/2 - 1, 20 - 2
    np.testing.assert_allclose(found.advantage, [19.0, 18.0, 0.0])


def test_the_last_observation_of_a_truncated_episode_bootstraps_and_is_no_step() -> None:
    found = _make_targets(reward=[10.0, 20.0, 99.0], is_step=[True, True, False])
    # 10 + 20/2 + 3/4, 20 + 3/2
    np.testing.assert_allclose(found.value, [20.75, 21.5, 3.0])
    # 10 + 21.5/2 - 1, 20 + 3/2 - 2
    np.testing.assert_allclose(found.advantage, [19.75, 19.5, 0.0])


@pytest.mark.parametrize("trace_decay", [1.0, 0.5])
def test_nothing_of_the_next_episode_reaches_the_one_before(trace_decay: float) -> None:
    found = _make_targets(
        value=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        reward=[10.0, 20.0, 99.0, 40.0, 80.0],
        rho=[1.0, 1.0, np.nan, 1.0, 1.0],  # the action on the last observation was arbitrary
        is_step=[True, True, False, True, True],
        trace_decay=trace_decay,
    )
    np.testing.assert_allclose(found.value[2], 3.0)
    np.testing.assert_allclose(found.advantage[2], 0.0)
    if trace_decay == 1:
        # 10 + 20/2 + 3/4, 20 + 3/2; 40 + 80/2 + 6/4, 80 + 6/2
        np.testing.assert_allclose(found.value[[0, 1, 3, 4]], [20.75, 21.5, 81.5, 83.0])
        # These less 1, 2, 4 and 5
        np.testing.assert_allclose(found.advantage[[0, 1, 3, 4]], [19.75, 19.5, 77.5, 78.0])
    else:
        # Differences 10 + 2/2 - 1 = 10, 20 + 3/2 - 2 = 19.5; 40 + 5/2 - 4 = 38.5, 80 + 6/2 - 5 = 78.
        # Errors 10 + 19.5/4 = 14.875, 19.5; 38.5 + 78/4 = 58, 78.
        np.testing.assert_allclose(found.value[[0, 1, 3, 4]], [15.875, 21.5, 62.0, 83.0])
        np.testing.assert_allclose(found.advantage[[0, 1, 3, 4]], [14.875, 19.5, 58.0, 78.0])


def test_rows_of_a_batch_do_not_mix() -> None:
    arrays = [jnp.array([VALUE, [0.0] * 4]), jnp.array([REWARD, [1.0, 0.0, 0.0]]), jnp.full((2, 3), 0.5)]
    found = jax.jit(vtrace.targets)(*arrays, jnp.zeros((2, 3)), jnp.ones((2, 3), bool))
    np.testing.assert_allclose(found.value, [_make_targets().value, [1.0, 0.0, 0.0]])


def test_no_gradient_goes_through_the_targets() -> None:
    def total(value: jax.Array, log_rho: jax.Array) -> jax.Array:
        found = vtrace.targets(value, jnp.array([REWARD]), jnp.full((1, 3), 0.5), log_rho, jnp.ones((1, 3), bool))
        return jnp.sum(found.value) + jnp.sum(found.advantage)

    gradients = jax.grad(total, argnums=(0, 1))(jnp.array([VALUE]), jnp.full((1, 3), -0.5))
    assert not any(np.asarray(gradient).any() for gradient in gradients)


@pytest.mark.thorough
@pytest.mark.parametrize("case", RLAX, ids=lambda case: f"lambda{case['trace_decay']}-clip{case['clip_rho']}")
def test_targets_and_advantages_are_those_of_rlax(case: dict[str, Any]) -> None:
    found = _make_targets(
        case["value"],
        case["reward"],
        case["discount"],
        np.exp(np.array(case["log_rho"], np.float32)),
        clip_rho=case["clip_rho"],
        trace_decay=case["trace_decay"],
    )
    np.testing.assert_allclose(found.value - np.array(case["value"][:-1]), case["error"], atol=2e-5)
    np.testing.assert_allclose(found.advantage, case["advantage"], atol=2e-5)
    weight = np.minimum(np.exp(case["log_rho"]), case["clip_rho"])
    np.testing.assert_allclose(weight * (found.q_estimate - case["value"][:-1]), case["advantage"], atol=2e-5)


def test_the_cases_of_rlax_cover_clips_decays_and_ends() -> None:
    assert {case["trace_decay"] for case in RLAX} == {1.0, 0.9, 0.0}
    assert {case["clip_rho"] for case in RLAX} == {0.5, 1.0, 1.7}
    assert sum(0.0 in case["discount"] for case in RLAX) >= 5
