"""Generalized advantage estimation against numbers worked by hand, and against rlax's.

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

from seedzero.ops import gae

VALUE = [1.0, 2.0, 3.0, 4.0]
REWARD = [10.0, 20.0, 40.0]
RLAX = json.loads((pathlib.Path(__file__).parent / "gae_rlax.json").read_text())
"""Written by rlax_reference.py."""

_advantages = functools.cache(lambda trace_decay: jax.jit(functools.partial(gae.advantages, trace_decay=trace_decay)))


def _find(
    value: Any = VALUE, reward: Any = REWARD, discount: Any = 0.5, is_step: Any = True, trace_decay: float = 1.0
) -> np.ndarray:
    shape = (1, len(reward))
    found = _advantages(trace_decay)(
        np.array([value], np.float32),
        np.array([reward], np.float32),
        np.broadcast_to(np.float32(discount), shape),
        np.broadcast_to(is_step, shape),
    )
    return np.asarray(found[0])


@pytest.mark.parametrize(
    ("trace_decay", "expected"),
    [
        # Returns 10 + 20/2 + 40/4 + 4/8, 20 + 40/2 + 4/4, 40 + 4/2, less the values.
        (1.0, [29.5, 39.0, 39.0]),
        # Differences 10 + 2/2 - 1 = 10, 20 + 3/2 - 2 = 19.5, 40 + 4/2 - 3 = 39; 19.5 + 39/4 = 29.25; 10 + 29.25/4.
        (0.5, [17.3125, 29.25, 39.0]),
        (0.0, [10.0, 19.5, 39.0]),
    ],
)
def test_lambda_mixes_returns_of_all_lengths(trace_decay: float, expected: list[float]) -> None:
    np.testing.assert_allclose(_find(trace_decay=trace_decay), expected)


def test_a_terminal_observation_is_worth_nothing_and_is_no_step() -> None:
    found = _find(reward=[10.0, 20.0, 99.0], discount=[0.5, 0.0, 0.5], is_step=[True, True, False])
    # 10 + 20/2 - 1, 20 - 2
    np.testing.assert_allclose(found, [19.0, 18.0, 0.0])


def test_the_last_observation_of_a_truncated_episode_bootstraps_and_is_no_step() -> None:
    found = _find(reward=[10.0, 20.0, 99.0], is_step=[True, True, False])
    # 10 + 20/2 + 3/4 - 1, 20 + 3/2 - 2
    np.testing.assert_allclose(found, [19.75, 19.5, 0.0])


def test_nothing_of_the_next_episode_reaches_the_one_before() -> None:
    found = _find(
        value=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        reward=[10.0, 20.0, 99.0, 40.0, 80.0],
        is_step=[True, True, False, True, True],
        trace_decay=0.5,
    )
    # Differences 10, 19.5; 40 + 5/2 - 4 = 38.5, 80 + 6/2 - 5 = 78. 10 + 19.5/4; 38.5 + 78/4.
    np.testing.assert_allclose(found, [14.875, 19.5, 0.0, 58.0, 78.0])


def test_rows_of_a_batch_do_not_mix() -> None:
    value = np.array([VALUE, [0.0] * 4], np.float32)
    reward = np.array([REWARD, [1.0, 0.0, 0.0]], np.float32)
    found = _advantages(1.0)(value, reward, np.full((2, 3), np.float32(0.5)), np.ones((2, 3), bool))
    np.testing.assert_allclose(found, [_find(), [1.0, 0.0, 0.0]])


def test_it_is_the_same_without_jit_and_no_gradient_goes_through_it() -> None:
    arrays = (jnp.array([REWARD]), jnp.full((1, 3), 0.5), jnp.ones((1, 3), bool))
    with jax.disable_jit():
        np.testing.assert_allclose(
            gae.advantages(jnp.array([VALUE]), *arrays, trace_decay=0.5)[0], _find(trace_decay=0.5)
        )
    gradient = jax.jit(jax.grad(lambda value: jnp.sum(gae.advantages(value, *arrays, trace_decay=1.0))))
    assert not np.any(gradient(jnp.array([VALUE])))


@pytest.mark.parametrize("case", RLAX, ids=lambda case: f"lambda{case['trace_decay']}")
def test_advantages_are_those_of_rlax(case: dict[str, Any]) -> None:
    found = _find(case["value"], case["reward"], case["discount"], trace_decay=case["trace_decay"])
    np.testing.assert_allclose(found, case["advantage"], atol=2e-5)


def test_the_cases_of_rlax_cover_decays_and_ends() -> None:
    assert {case["trace_decay"] for case in RLAX} == {1.0, 0.95, 0.5, 0.0}
    assert sum(0.0 in case["discount"] for case in RLAX) >= 3
